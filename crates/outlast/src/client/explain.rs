//! Why a run is in its current state, as data and as sentences.

mod compensating;
mod pause;
mod probe;
mod retried;
mod retrying;
mod schedule;
mod sentence;
mod stopping;

use std::collections::BTreeMap;

use outlast_core::limits::DEADLINE_GRACE;
use outlast_core::queue::workflow_of_step;
use outlast_core::view::{kept_hooks, operations};
use outlast_core::{
    Failure, OpNumber, OperationKind, OperationView, Outcome, RunId, RunView, SessionId, Status, StuckReason,
    Timestamp, TurnRecord, Wait, WorkerView,
};
use serde::Serialize;

pub use self::compensating::Compensating;
pub use self::probe::Probe;
pub use self::retried::Retried;
pub use self::retrying::NextTry;
pub use self::stopping::Stopping;
use super::Client;
use crate::error::{Error, ErrorKind};
use crate::schedule::ScheduleView;

/// How often the run and the workers are read, if the run changes in between.
const SNAPSHOTS_MAX: usize = 3;

/// An explanation of a run's current state; returned by [`Client::explain`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The run.
    pub run: RunId,
    /// The status of the run.
    pub status: Status,
    /// The reason, as data for programs.
    pub because: Because,
    /// The request to stop, if the run was asked to stop and has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
    /// Whether the run is in quarantine: pruning, retention and bulk calls leave it out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_quarantined: bool,
    /// How far the run's compensations are, if it compensates and has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compensating: Option<Compensating>,
    /// The next try of the run, if it failed and begins again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<NextTry>,
    /// The last retry of the run, if it was retried and has not ended since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried: Option<Retried>,
    /// The schedule, if the run is one and has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleView>,
    /// The transaction of another client that blocks writes to the run, if any (on Postgres).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// The error with which the world refuses the run's last turn, if its worker tries to commit it again: the disk is
    /// full, for example. The steps that are being attempted are then not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_committed: Option<String>,
    /// A description of the damage, if the run's history or inbox cannot be read. The explanation is then derived from
    /// the run's row alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// The reason and the remedy as a sentence, for people.
    pub sentence: String,
}

/// The reason for a run's current state, as data.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Because {
    /// The run has ended.
    Ended {
        /// Its final status.
        status: Status,
        /// When it ended.
        at: Timestamp,
        /// The failure, if the run did not complete.
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// The run was started with a delay.
    Delayed {
        /// When it begins.
        until: Timestamp,
        /// The number of joined workers that have its code.
        workers: usize,
    },
    /// A worker holds the run.
    Held {
        /// The worker.
        worker: JoinedWorker,
        /// When the worker claimed the run, or when the last message after that was accepted.
        since: Timestamp,
        /// The steps that are being attempted. Empty if that is not known, because the run's last turn is
        /// [not committed](Explanation::not_committed).
        attempts: Vec<Attempting>,
    },
    /// The worker that holds the run seems to be gone: its session has expired.
    WorkerGone {
        /// The worker's session.
        worker: SessionId,
        /// The worker's host and process, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        place: Option<String>,
        /// When the session expired, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        expired_at: Option<Timestamp>,
        /// The other joined workers.
        others: Vec<JoinedWorker>,
    },
    /// The run waits, and continues when one of its waits ends.
    Waits {
        /// The run's workflow.
        workflow: String,
        /// The version of its workflow.
        version: u32,
        /// The run's queue.
        queue: String,
        /// What the run waits for.
        waits: Vec<Waiting>,
        /// The names of hooks with payloads that the workflow has not taken.
        kept: Vec<String>,
        /// The number of joined workers that have its code and may continue it.
        workers: usize,
        /// The builds that failed to continue the run since it last progressed, oldest first. They may not continue it.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        failed_builds: Vec<String>,
    },
    /// The run is ready, and waits for a worker with free capacity.
    Ready {
        /// When it became ready.
        since: Timestamp,
        /// The number of worker crashes that count against the run. From two on it is executed in smaller groups.
        crashes: u32,
        /// The joined workers that have the run's code.
        workers: Vec<JoinedWorker>,
        /// Those of them that take no other run at the moment, because they try one that has crashed workers.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        probes: Vec<Probe>,
    },
    /// The run is ready, but the joined workers with its code are of older builds, which cannot read it.
    NotReadable {
        /// The lowest durable format that a reader of the run needs.
        format: u32,
        /// The joined workers that serve the queue and have its code.
        workers: Vec<JoinedWorker>,
    },
    /// The run is ready, but no joined worker that serves its queue has its code.
    NoCode {
        /// The run's workflow.
        workflow: String,
        /// The version of its workflow.
        version: u32,
        /// The run's queue.
        queue: String,
        /// The joined workers that serve the queue.
        workers: Vec<JoinedWorker>,
    },
    /// The run is ready, but no joined worker serves its queue.
    NotServed {
        /// The run's workflow.
        workflow: String,
        /// The version of its workflow.
        version: u32,
        /// The run's queue.
        queue: String,
        /// The joined workers.
        workers: Vec<JoinedWorker>,
    },
    /// The run is ready, but no worker is joined.
    NoWorker {
        /// The run's workflow.
        workflow: String,
        /// The version of its workflow.
        version: u32,
        /// The run's queue.
        queue: String,
    },
    /// The run is stuck: its worker's code could not continue it.
    Stuck {
        /// The kind of problem.
        reason: StuckReason,
        /// A description of the problem.
        message: String,
        /// The build that could not continue the run.
        build: String,
        /// The builds that failed to continue the run since it last progressed, oldest first.
        failed_builds: Vec<String>,
        /// Other joined builds that have the run's code and will try it.
        other_builds: Vec<String>,
        /// When they will try it, if not at once: after many failed builds there is a pause.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
        /// The steps that were open, if the run is stuck because it crashed its worker too often.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        open_steps: Vec<String>,
    },
    /// The run is paused.
    Paused {
        /// The reason given by the caller who paused it; empty if there is none.
        reason: String,
        /// When it was paused.
        since: Timestamp,
        /// Who paused it, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        actor: Option<String>,
        /// The deadline of the run, which ends the pause.
        #[serde(skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        /// The steps that are still being attempted. Their outcomes are delivered when the run is resumed.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        attempts: Vec<Attempting>,
    },
    /// The run is ready, but every joined build that has its code has failed to continue it.
    BuildsFailed {
        /// The builds that failed to continue the run since it last progressed, oldest first.
        failed_builds: Vec<String>,
        /// The joined workers that have the run's code.
        workers: Vec<JoinedWorker>,
    },
    /// The deadline of the run has passed, and the run has not been notified yet.
    PastDeadline {
        /// The deadline.
        deadline: Timestamp,
        /// When a worker without the code ends the run.
        overdue_at: Timestamp,
        /// The number of joined workers.
        workers: usize,
        /// The number of them that have the run's code.
        with_code: usize,
    },
}

/// A joined worker, as part of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JoinedWorker {
    /// The worker's session.
    pub session: SessionId,
    /// The name of its host.
    pub host: String,
    /// The id of its process.
    pub pid: u32,
    /// The build of its code.
    pub build: String,
    /// The number of runs that it holds.
    pub held: u64,
    /// The queues that it serves.
    pub queues: Vec<String>,
    /// The versions of the run's workflow for which it has the code.
    pub versions: Vec<u32>,
    /// The highest durable format that its build can read.
    pub format: u32,
}

/// A step that is being attempted, as part of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Attempting {
    /// The operation's number.
    pub op: u64,
    /// The step's name.
    pub step: String,
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
    /// The time from which the attempt could begin.
    pub since: Timestamp,
}

/// One wait of a run, as part of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Waiting {
    /// What the run waits for.
    #[serde(flatten)]
    pub wait: Wait,
    /// When the wait began.
    pub since: Timestamp,
    /// The status of the child or queued step, if the wait is for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<Status>,
    /// The number of joined workers that serve the queue and have the step's code, if the wait is for a queued step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// The failure of the last attempt, if the wait is a pause before the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The number of payloads that were rejected since the wait began, if the wait is for a hook.
    pub rejected: usize,
    /// The reason for the last rejection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejection: Option<String>,
}

impl Client {
    /// Explains why a run is in its current state, and what to do about it.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// use outlast::Because;
    ///
    /// # #[workflow] async fn invoice(ctx: Context, order: u64) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// let run = client.start(invoice, 42).await?;
    /// let why = client.explain(run.id()).await?;
    /// assert!(matches!(why.because, Because::NoWorker { .. }));
    /// assert_eq!(
    ///     why.sentence,
    ///     "It is ready, but no worker is joined. Start one that has workflow `invoice`, version 1."
    /// );
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Unavailable` if the world does not respond.
    pub async fn explain(&self, run: RunId) -> Result<Explanation, Error> {
        let snapshot = self.consistent_snapshot(run).await?;
        // The row can be explained even if the history or the inbox is damaged.
        let mut damage = None;
        let has_ended = snapshot.view.ended_at.is_some();
        let history = if has_ended { Ok(Vec::new()) } else { self.history(run).await };
        let history = unless_damaged(history, &mut damage)?;
        let retried = unless_damaged(self.last_retry(&snapshot.view, &history).await, &mut damage)?;
        let asked = self.stopping(&snapshot.view, &history, retried.as_ref());
        let stopping = unless_damaged(asked.await, &mut damage)?;
        let mut because = self.because(&snapshot, &history, &mut damage).await?;
        let not_committed = self.commit_error(&snapshot, &mut because);
        let mut sentence = sentence::text_of(&because, damage.as_deref(), snapshot.now);
        if let Some(error) = &not_committed {
            sentence::add_not_committed(&mut sentence, error);
        }
        if !has_ended {
            sentence::add_kept(
                &mut sentence,
                snapshot.view.kept,
                snapshot.view.sent - snapshot.view.consumed,
            );
        }
        sentence.extend(retried.as_ref().map(|retried| retried.sentence(snapshot.now)));
        let compensating = Compensating::of(&history);
        if let Some(compensating) = &compensating {
            sentence.push_str(&compensating.sentence());
        }
        let next_try = NextTry::of(&history);
        sentence.extend(next_try.as_ref().map(NextTry::sentence));
        if let Some(stopping) = stopping.as_ref().filter(|_| compensating.is_none()) {
            sentence::add_stopping(&mut sentence, stopping, snapshot.now);
        }
        let schedule = self.explained_schedule(&snapshot.view, &mut sentence).await?;
        let is_quarantined = snapshot.view.marks.is_quarantined();
        if is_quarantined {
            sentence::add_quarantine(&mut sentence);
        }
        let blocked_by = if has_ended { None } else { self.repeat(|| self.world.blocked_by(run)).await? };
        sentence.extend(blocked_by.as_deref().map(sentence::blocked_by));
        Ok(Explanation {
            run,
            status: snapshot.view.status,
            because,
            stopping,
            is_quarantined,
            compensating,
            next_try,
            retried,
            schedule,
            blocked_by,
            not_committed,
            damage,
            sentence,
        })
    }

    /// The row of the run and the joined workers, among which is the one that holds the run.
    async fn consistent_snapshot(&self, run: RunId) -> Result<Snapshot, Error> {
        let mut snapshot = self.snapshot(run).await?;
        for _ in 1..SNAPSHOTS_MAX {
            // The worker that holds it joined or left between the two reads.
            if snapshot.view.owner.is_none() || snapshot.owner().is_some() {
                break;
            }
            snapshot = self.snapshot(run).await?;
        }
        Ok(snapshot)
    }

    /// The error with which the world refuses a turn of a held run. The history then does not tell which steps are
    /// being attempted: they are removed.
    fn commit_error(&self, snapshot: &Snapshot, because: &mut Because) -> Option<String> {
        let Because::Held { attempts, .. } = because else { return None };
        let run = snapshot.view.id;
        let reported = || {
            let uncommitted = snapshot.owner()?.report.uncommitted.as_ref()?;
            uncommitted.runs.contains(&run).then(|| uncommitted.error.clone())
        };
        let error = self.local.commit_error(run).or_else(reported)?;
        attempts.clear();
        Some(error)
    }

    async fn snapshot(&self, run: RunId) -> Result<Snapshot, Error> {
        let view = self.repeat(|| self.world.run(run)).await?;
        let workers = self.repeat(|| self.world.workers()).await?;
        let clock = self.world.clock();
        let ignores_expiry = clock.is_virtual() && self.local.any();
        let is_held_locally = clock.is_virtual() && self.local.hold(run);
        Ok(Snapshot { view, workers, now: clock.now(), ignores_expiry, is_held_locally })
    }

    async fn because(
        &self,
        snapshot: &Snapshot,
        history: &[TurnRecord],
        damage: &mut Option<String>,
    ) -> Result<Because, Error> {
        let view = &snapshot.view;
        if let Some(at) = view.ended_at {
            let failure = unless_damaged(self.failure(view.id).await, damage)?;
            return Ok(Because::Ended { status: view.status, at, failure });
        }
        if let Some(because) = self.pause_cause(snapshot, history, damage).await? {
            return Ok(because);
        }
        if let Some(because) = snapshot.blocking_cause(history) {
            return Ok(because);
        }
        if let Some(owner) = snapshot.owner() {
            return Ok(snapshot.held(owner, &operations(history)));
        }
        match snapshot.unclaimed_cause() {
            Some(Because::Ready { since, crashes, workers, .. }) => {
                let probes = self.probes(&workers, snapshot.now).await?;
                Ok(Because::Ready { since, crashes, workers, probes })
            }
            Some(because) => Ok(because),
            None => self.waits(snapshot, history).await,
        }
    }

    async fn failure(&self, run: RunId) -> Result<Option<Failure>, Error> {
        let ended = self.repeat(|| self.world.ended(run, Timestamp::from_micros(0))).await?;
        Ok(ended.and_then(|ended| match ended.outcome {
            Outcome::Completed(_) => None,
            Outcome::Failed(failure) | Outcome::Cancelled(failure) => Some(failure),
        }))
    }

    async fn waits(&self, snapshot: &Snapshot, history: &[TurnRecord]) -> Result<Because, Error> {
        let operations = operations(history);
        let by_number: BTreeMap<OpNumber, &OperationView> =
            operations.iter().map(|operation| (operation.op, operation)).collect();
        let mut waits = Vec::with_capacity(snapshot.view.waits.len());
        for wait in &snapshot.view.waits {
            let operation = by_number.get(&wait.op());
            let child = match wait {
                Wait::Child { run, .. } | Wait::Step { run, .. } => {
                    self.run(*run).await.ok().map(|child| child.status)
                }
                _ => None,
            };
            let workers = match wait {
                Wait::Step { name, queue, .. } => Some(snapshot.serving_step(name, queue)),
                _ => None,
            };
            let failure = operation.and_then(|operation| operation.failure.as_ref());
            waits.push(Waiting {
                wait: wait.clone(),
                since: operation.map_or(snapshot.view.updated_at, |operation| operation.changed_at),
                child,
                workers,
                failure: failure.map(|failure| failure.message.clone()),
                rejected: operation.map_or(0, |operation| operation.rejected.len()),
                rejection: operation.and_then(|hook| hook.rejected.last()).map(|last| last.reason.clone()),
            });
        }
        let kept = kept_hooks(history).iter().map(ToString::to_string).collect();
        let (workflow, version) = (snapshot.view.workflow.to_string(), snapshot.view.version);
        let (queue, workers) = (snapshot.view.queue.to_string(), snapshot.eligible().count());
        let failed_builds = snapshot.failed_builds();
        Ok(Because::Waits { workflow, version, queue, waits, kept, workers, failed_builds })
    }
}

/// The value that was read, or a default when it is damaged. The first damage is stored in `damage`.
fn unless_damaged<T: Default>(read: Result<T, Error>, damage: &mut Option<String>) -> Result<T, Error> {
    match read {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            damage.get_or_insert_with(|| error.message().to_owned());
            Ok(T::default())
        }
        read => read,
    }
}

/// The names of the open steps that a crashed worker may have been attempting.
fn open_in_place(history: &[TurnRecord], now: Timestamp) -> Vec<String> {
    let operations = operations(history);
    let open = operations.iter().filter(|operation| operation.is_attempted_in_place(now));
    open.map(|step| step.name.to_string()).collect()
}

fn serves(worker: &WorkerView, queue: &str) -> bool {
    worker.queues.iter().any(|served| served == queue)
}

/// The run and the workers at one time.
struct Snapshot {
    view: RunView,
    workers: Vec<WorkerView>,
    now: Timestamp,
    /// Whether an expired session means nothing: under a virtual clock workers do not beat.
    ignores_expiry: bool,
    /// Whether a worker of this process holds the run under a virtual clock.
    is_held_locally: bool,
}

impl Snapshot {
    /// The worker that holds the run.
    fn owner(&self) -> Option<&WorkerView> {
        self.workers.iter().find(|worker| Some(worker.session) == self.view.owner)
    }

    fn joined_workers(&self) -> impl Iterator<Item = &WorkerView> {
        self.workers.iter().filter(|worker| self.is_joined(worker))
    }

    fn is_joined(&self, worker: &WorkerView) -> bool {
        self.ignores_expiry || worker.expires_at > self.now
    }

    /// The workers that can claim the run: they have its code, can read it, and their builds have not failed to continue
    /// it.
    fn eligible(&self) -> impl Iterator<Item = &WorkerView> {
        self.not_failed().filter(|worker| worker.format >= self.view.format)
    }

    /// The workers that have the code of the run, and whose builds have not failed to continue it.
    fn not_failed(&self) -> impl Iterator<Item = &WorkerView> {
        self.with_code().filter(|worker| !self.view.failed_builds.contains(&worker.build))
    }

    /// The builds that have failed to continue the run since it last progressed.
    fn failed_builds(&self) -> Vec<String> {
        self.view.failed_builds.builds().iter().map(ToString::to_string).collect()
    }

    /// The workers that serve the run's queue and have its code.
    fn with_code(&self) -> impl Iterator<Item = &WorkerView> {
        self.serving().filter(|worker| self.has_code(worker))
    }

    fn serving(&self) -> impl Iterator<Item = &WorkerView> {
        self.joined_workers().filter(|worker| serves(worker, &self.view.queue))
    }

    /// The number of workers that can claim a queued step.
    fn serving_step(&self, step: &str, queue: &str) -> usize {
        let workflow = workflow_of_step(step);
        let has = |worker: &&WorkerView| worker.code.iter().any(|code| code.workflow == workflow);
        self.joined_workers().filter(|worker| serves(worker, queue)).filter(has).count()
    }

    fn has_code(&self, worker: &WorkerView) -> bool {
        let has = |workflow: &str, version| workflow == &*self.view.workflow && version == self.view.version;
        worker.code.iter().any(|code| has(&code.workflow, code.version))
    }

    fn joined(&self, worker: &WorkerView) -> JoinedWorker {
        let code = worker.code.iter().filter(|code| code.workflow == self.view.workflow);
        let mut versions: Vec<u32> = code.map(|code| code.version).collect();
        versions.sort_unstable();
        JoinedWorker {
            session: worker.session,
            host: worker.host.clone(),
            pid: worker.pid,
            build: worker.build.clone(),
            held: worker.held,
            queues: worker.queues.clone(),
            versions,
            format: worker.format,
        }
    }

    /// Why the run does not continue, if it is stuck or its worker is lost.
    fn blocking_cause(&self, history: &[TurnRecord]) -> Option<Because> {
        if let Some(stuck) = self.view.stuck.as_ref().filter(|_| self.view.status == Status::Stuck) {
            let mut other_builds: Vec<String> = self.eligible().map(|worker| worker.build.clone()).collect();
            let is_poison = stuck.reason == StuckReason::Poison;
            let open_steps = if is_poison { open_in_place(history, self.now) } else { Vec::new() };
            other_builds.sort_unstable();
            other_builds.dedup();
            return Some(Because::Stuck {
                reason: stuck.reason,
                message: stuck.message.clone(),
                build: stuck.build.clone(),
                failed_builds: self.failed_builds(),
                other_builds,
                retry_at: self.view.retry_at.filter(|at| *at > self.now),
                open_steps,
            });
        }
        let session = self.view.owner?;
        let owner = self.owner();
        if owner.is_some_and(|owner| self.is_held_locally || owner.expires_at > self.now) {
            return None;
        }
        Some(Because::WorkerGone {
            worker: session,
            place: owner.map(|owner| format!("process {} on {}", owner.pid, owner.host)),
            expired_at: owner.map(|owner| owner.expires_at),
            others: self
                .joined_workers()
                .filter(|worker| worker.session != session)
                .map(|worker| self.joined(worker))
                .collect(),
        })
    }

    fn held(&self, owner: &WorkerView, operations: &[OperationView]) -> Because {
        let steps = operations.iter().filter(|step| step.is_open() && step.kind == OperationKind::Step);
        let attempts = steps.filter_map(|step| {
            // The end of a pause is not recorded: once it is due, the next attempt is in progress.
            let (attempt, since) = match step.retry_at {
                None => (step.attempt_count, step.started_at),
                Some(due) if due <= self.now => (step.attempt_count + 1, due),
                Some(_) => return None,
            };
            Some(Attempting { op: step.op.0, step: step.name.to_string(), attempt, since })
        });
        Because::Held {
            worker: self.joined(owner),
            since: self.view.updated_at,
            attempts: attempts.collect(),
        }
    }

    /// When a worker without the code ends the run: a grace period after the deadline and after the worker joined.
    fn overdue_at(&self, deadline: Timestamp) -> Timestamp {
        let joined = self.joined_workers().map(|worker| worker.joined_at).min().unwrap_or(self.now);
        deadline.max(joined).plus(DEADLINE_GRACE)
    }

    /// Why a run that no worker holds is not claimed; `None` when it waits for something.
    fn unclaimed_cause(&self) -> Option<Because> {
        let Self { view, now, .. } = self;
        if let Some(deadline) = view.deadline.filter(|deadline| deadline <= now) {
            return Some(Because::PastDeadline {
                deadline,
                overdue_at: self.overdue_at(deadline),
                workers: self.joined_workers().count(),
                with_code: self.with_code().count(),
            });
        }
        let has_unread = view.sent > view.consumed;
        let since = match (view.status, view.wake_at) {
            (Status::Pending, Some(until)) if until > *now => {
                return Some(Because::Delayed { until, workers: self.with_code().count() });
            }
            (Status::Pending, due) => due.unwrap_or(view.updated_at).max(view.updated_at),
            (_, Some(due)) if due <= *now => due,
            _ if has_unread => view.updated_at,
            _ => return None,
        };
        let (workflow, version, queue) = (view.workflow.to_string(), view.version, view.queue.to_string());
        let eligible: Vec<_> = self.eligible().map(|worker| self.joined(worker)).collect();
        let workers: Vec<_> = self.with_code().map(|worker| self.joined(worker)).collect();
        Some(if !eligible.is_empty() {
            Because::Ready { since, crashes: view.crashes, workers: eligible, probes: Vec::new() }
        } else if self.not_failed().next().is_some() {
            Because::NotReadable { format: view.format, workers }
        } else if !workers.is_empty() {
            Because::BuildsFailed { failed_builds: self.failed_builds(), workers }
        } else if self.serving().next().is_some() {
            let workers = self.serving().map(|worker| self.joined(worker)).collect();
            Because::NoCode { workflow, version, queue, workers }
        } else if self.joined_workers().next().is_some() {
            let workers = self.joined_workers().map(|worker| self.joined(worker)).collect();
            Because::NotServed { workflow, version, queue, workers }
        } else {
            Because::NoWorker { workflow, version, queue }
        })
    }
}
