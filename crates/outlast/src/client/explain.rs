//! Why a run is where it is, as data and as a sentence.

mod probe;
mod sentence;

use std::collections::BTreeMap;

use outlast_core::limits::DEADLINE_GRACE;
use outlast_core::queue::workflow_of_step;
use outlast_core::view::{kept_hooks, operations};
use outlast_core::{
    Event, Failure, MessageBody, OpNumber, OperationKind, OperationView, Outcome, RunId, RunView, SessionId,
    Status, StuckReason, Timestamp, TurnRecord, Wait, WorkerView,
};
use serde::Serialize;

pub use self::probe::Probe;
use super::Client;
use crate::error::{Error, ErrorKind};
use crate::worker::read_all::read_inbox;

/// How often a run is looked at again that changed while it was explained.
const LOOKS: usize = 3;

/// Why a run is where it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The run.
    pub run: RunId,
    /// Where it is in its life.
    pub status: Status,
    /// Why, for programs.
    pub because: Because,
    /// That it is to stop, when it was asked to and has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
    /// Who keeps its turns from being written in the world, if anybody does: a transaction that has its row locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// What cannot be read of its history or its inbox, if something is damaged. The explanation is then made from its row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// Why, and what to do about it, for people.
    pub sentence: String,
}

/// Why a run is where it is, as data.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Because {
    /// It has ended.
    Ended {
        /// How.
        status: Status,
        /// When.
        at: Timestamp,
        /// Why, when it did not complete.
        #[serde(skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// It was started to begin later.
    Delayed {
        /// When it may begin.
        until: Timestamp,
        /// How many joined workers have its code.
        workers: usize,
    },
    /// A worker holds it.
    Held {
        /// The worker.
        worker: JoinedWorker,
        /// Since when, or since the last message it was sent meanwhile.
        since: Timestamp,
        /// The steps that are being attempted.
        attempts: Vec<Attempting>,
    },
    /// A worker holds it whose session is over: it seems to be gone.
    WorkerGone {
        /// The worker's session.
        worker: SessionId,
        /// Its machine and process, as long as they are known.
        #[serde(skip_serializing_if = "Option::is_none")]
        place: Option<String>,
        /// Since when its session is over, as long as that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        expired_at: Option<Timestamp>,
        /// The other workers that are joined.
        others: Vec<JoinedWorker>,
    },
    /// It waits, and nothing is to be done until one of these ends.
    Waits {
        /// Its workflow.
        workflow: String,
        /// Its workflow's version.
        version: u32,
        /// The queue it stands in.
        queue: String,
        /// What for.
        waits: Vec<Waiting>,
        /// Hooks that were sent payloads which the workflow has not asked for.
        kept: Vec<String>,
        /// How many joined workers have its code and may continue it.
        workers: usize,
        /// The builds that may not continue it, since they failed to and it has not progressed, oldest first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        failed_builds: Vec<String>,
    },
    /// It is ready, and waits for a worker with room.
    Ready {
        /// Since when.
        since: Timestamp,
        /// How many crashes of its worker count against it: after two it is tried apart from others.
        crashes: u32,
        /// The joined workers that have its code.
        workers: Vec<JoinedWorker>,
        /// Those of them that take no other run for now, because they probe one that crashed workers before.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        probes: Vec<Probe>,
    },
    /// It is ready, and no joined worker that serves its queue has its code.
    NoCode {
        /// Its workflow.
        workflow: String,
        /// Its workflow's version.
        version: u32,
        /// The queue it stands in.
        queue: String,
        /// The joined workers that serve it.
        workers: Vec<JoinedWorker>,
    },
    /// It is ready, and no joined worker serves its queue.
    NotServed {
        /// Its workflow.
        workflow: String,
        /// Its workflow's version.
        version: u32,
        /// The queue it stands in.
        queue: String,
        /// The joined workers.
        workers: Vec<JoinedWorker>,
    },
    /// It is ready, and no worker is joined.
    NoWorker {
        /// Its workflow.
        workflow: String,
        /// Its workflow's version.
        version: u32,
        /// The queue it stands in.
        queue: String,
    },
    /// It cannot go on with the code that its worker had.
    Stuck {
        /// The sort of trouble.
        reason: StuckReason,
        /// What happened.
        message: String,
        /// The build that could not go on.
        build: String,
        /// The builds that could not go on since it last progressed, oldest first.
        failed_builds: Vec<String>,
        /// Other builds with its code that are joined, and retry it.
        other_builds: Vec<String>,
        /// When they do, if that is later: so many builds have failed that the run rests.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
        /// The steps that were open, when it is stuck because its worker crashed too often.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        open_steps: Vec<String>,
    },
    /// It could go on, but no joined build may continue it: those that have its code have failed to.
    BuildsFailed {
        /// The builds that failed since it last progressed, oldest first.
        failed_builds: Vec<String>,
        /// The joined workers that have its code.
        workers: Vec<JoinedWorker>,
    },
    /// Its deadline has passed, and it was not told yet.
    PastDeadline {
        /// Its deadline.
        deadline: Timestamp,
        /// When a worker without its code ends it.
        overdue_at: Timestamp,
        /// How many workers are joined.
        workers: usize,
        /// How many of them have its code.
        with_code: usize,
    },
}

/// A run that is to stop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stopping {
    /// Why.
    pub reason: String,
    /// When it was asked to.
    pub at: Timestamp,
    /// Whether its workflow was told, and cleans up. Otherwise the message lies in its inbox.
    pub is_told: bool,
}

/// A joined worker, and what it has of the run's workflow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JoinedWorker {
    /// Its session.
    pub session: SessionId,
    /// The machine it works on.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The build of its code.
    pub build: String,
    /// How many runs it holds.
    pub held: u64,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// The versions of the run's workflow that it has the code of.
    pub versions: Vec<u32>,
}

/// A step that is being attempted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attempting {
    /// The operation's number.
    pub op: u64,
    /// The step's name.
    pub step: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Since when it may be attempted.
    pub since: Timestamp,
}

/// One thing that a run waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiting {
    /// What it is.
    #[serde(flatten)]
    pub wait: Wait,
    /// Since when.
    pub since: Timestamp,
    /// Where the child or the queued step is in its life, when it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<Status>,
    /// How many joined workers serve the queue and have the step's code, when it is a queued step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// How the last attempt failed, when it is a pause before the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How many payloads were rejected since it waits, when it is a hook: no open hook could read them.
    pub rejected: usize,
    /// Why the last of them was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejection: Option<String>,
}

impl Client {
    /// Why a run is where it is, and what to do about it.
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
    /// `NotFound`, `Unavailable`.
    pub async fn explain(&self, run: RunId) -> Result<Explanation, Error> {
        let mut scene = self.scene(run).await?;
        for _ in 1..LOOKS {
            // Whoever holds it joined after the workers were read, or left before.
            if scene.view.owner.is_none() || scene.owner().is_some() {
                break;
            }
            scene = self.scene(run).await?;
        }
        // What is damaged does not keep the row from being explained.
        let mut damage = None;
        let has_ended = scene.view.ended_at.is_some();
        let history = if has_ended { Ok(Vec::new()) } else { self.history(run).await };
        let history = unless_damaged(history, &mut damage)?;
        let stopping = unless_damaged(self.stopping(&scene.view, &history).await, &mut damage)?;
        let because = self.because(&scene, &history, &mut damage).await?;
        let mut sentence = sentence::of(&because, damage.as_deref(), scene.now);
        if !has_ended {
            sentence::add_kept(&mut sentence, scene.view.kept, scene.view.sent - scene.view.consumed);
        }
        if let Some(stopping) = &stopping {
            sentence::add_stopping(&mut sentence, stopping, scene.now);
        }
        let blocked_by = if scene.view.ended_at.is_none() { self.world.blocked_by(run).await? } else { None };
        if let Some(who) = &blocked_by {
            sentence.push_str(&format!(
                " Its turns cannot be written: its row is locked by {who}. End that transaction; the run then goes on by itself."
            ));
        }
        Ok(Explanation { run, status: scene.view.status, because, stopping, blocked_by, damage, sentence })
    }

    /// That a run is to stop, which it was told or will be when it goes on.
    async fn stopping(&self, view: &RunView, history: &[TurnRecord]) -> Result<Option<Stopping>, Error> {
        let told = history.iter().rev().find_map(|turn| {
            turn.events.iter().find_map(|event| match event {
                Event::CancelRequested { reason, .. } => {
                    Some(Stopping { reason: reason.clone(), at: turn.at, is_told: true })
                }
                _ => None,
            })
        });
        if told.is_some() || view.ended_at.is_some() || view.sent <= view.consumed {
            return Ok(told);
        }
        let unread = read_inbox(&*self.world, view.id, view.consumed).await?;
        Ok(unread.into_iter().find_map(|message| match message.body {
            MessageBody::Cancel { reason } | MessageBody::Terminate { reason } => {
                Some(Stopping { reason, at: message.at, is_told: false })
            }
            _ => None,
        }))
    }

    async fn scene(&self, run: RunId) -> Result<Scene, Error> {
        let view = self.world.run(run).await?;
        let workers = self.world.workers().await?;
        let clock = self.world.clock();
        let is_timeless = clock.is_virtual() && self.local.any();
        let is_in_hand = clock.is_virtual() && self.local.hold(run);
        Ok(Scene { view, workers, now: clock.now(), is_timeless, is_in_hand })
    }

    async fn because(
        &self,
        scene: &Scene,
        history: &[TurnRecord],
        damage: &mut Option<String>,
    ) -> Result<Because, Error> {
        let view = &scene.view;
        if let Some(at) = view.ended_at {
            let failure = unless_damaged(self.failure(view.id).await, damage)?;
            return Ok(Because::Ended { status: view.status, at, failure });
        }
        if let Some(because) = scene.trouble(history) {
            return Ok(because);
        }
        if let Some(owner) = scene.owner() {
            return Ok(scene.held(owner, &operations(history)));
        }
        match scene.unheld() {
            Some(Because::Ready { since, crashes, workers, .. }) => {
                let probes = self.probes(&workers, scene.now).await?;
                Ok(Because::Ready { since, crashes, workers, probes })
            }
            Some(because) => Ok(because),
            None => self.waits(scene, history).await,
        }
    }

    async fn failure(&self, run: RunId) -> Result<Option<Failure>, Error> {
        let ended = self.world.ended(run, Timestamp::from_micros(0)).await?;
        Ok(ended.and_then(|ended| match ended.outcome {
            Outcome::Completed(_) => None,
            Outcome::Failed(failure) | Outcome::Cancelled(failure) => Some(failure),
        }))
    }

    async fn waits(&self, scene: &Scene, history: &[TurnRecord]) -> Result<Because, Error> {
        let operations = operations(history);
        let by_number: BTreeMap<OpNumber, &OperationView> =
            operations.iter().map(|operation| (operation.op, operation)).collect();
        let mut waits = Vec::with_capacity(scene.view.waits.len());
        for wait in &scene.view.waits {
            let operation = by_number.get(&wait.op());
            let child = match wait {
                Wait::Child { run, .. } | Wait::Step { run, .. } => {
                    self.world.run(*run).await.ok().map(|child| child.status)
                }
                _ => None,
            };
            let workers = match wait {
                Wait::Step { name, queue, .. } => Some(scene.serving_step(name, queue)),
                _ => None,
            };
            let failure = operation.and_then(|operation| operation.failure.as_ref());
            waits.push(Waiting {
                wait: wait.clone(),
                since: operation.map_or(scene.view.updated_at, |operation| operation.changed_at),
                child,
                workers,
                failure: failure.map(|failure| failure.message.clone()),
                rejected: operation.map_or(0, |operation| operation.rejected.len()),
                rejection: operation.and_then(|hook| hook.rejected.last()).map(|last| last.reason.clone()),
            });
        }
        let kept = kept_hooks(history).iter().map(ToString::to_string).collect();
        let (workflow, version) = (scene.view.workflow.to_string(), scene.view.version);
        let (queue, workers) = (scene.view.queue.to_string(), scene.able().count());
        let failed_builds = scene.failed_builds();
        Ok(Because::Waits { workflow, version, queue, waits, kept, workers, failed_builds })
    }
}

/// What was read, or nothing when it is damaged. The damage that is found first is noted.
fn unless_damaged<T: Default>(read: Result<T, Error>, damage: &mut Option<String>) -> Result<T, Error> {
    match read {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            damage.get_or_insert_with(|| error.message().to_owned());
            Ok(T::default())
        }
        read => read,
    }
}

/// The names of the steps that were open when a worker crashed: attempted in place, and not between two attempts.
fn open_in_place(history: &[TurnRecord], now: Timestamp) -> Vec<String> {
    let operations = operations(history);
    let open = operations.iter().filter(|operation| operation.is_attempted_in_place(now));
    open.map(|step| step.name.to_string()).collect()
}

fn serves(worker: &WorkerView, queue: &str) -> bool {
    worker.queues.iter().any(|served| served == queue)
}

/// What an explanation is made of.
struct Scene {
    view: RunView,
    workers: Vec<WorkerView>,
    now: Timestamp,
    /// Under a virtual clock nobody beats: that a session is over says nothing, if there is a worker.
    is_timeless: bool,
    /// Nor if a worker of this process has the run.
    is_in_hand: bool,
}

impl Scene {
    /// The worker that holds the run.
    fn owner(&self) -> Option<&WorkerView> {
        self.workers.iter().find(|worker| Some(worker.session) == self.view.owner)
    }

    fn live(&self) -> impl Iterator<Item = &WorkerView> {
        self.workers.iter().filter(|worker| self.is_live(worker))
    }

    fn is_live(&self, worker: &WorkerView) -> bool {
        self.is_timeless || worker.expires_at > self.now
    }

    /// The workers that could be given the run: their builds have not failed to continue it.
    fn able(&self) -> impl Iterator<Item = &WorkerView> {
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
        self.live().filter(|worker| serves(worker, &self.view.queue))
    }

    /// How many workers could be given a queued step.
    fn serving_step(&self, step: &str, queue: &str) -> usize {
        let workflow = workflow_of_step(step);
        let has = |worker: &&WorkerView| worker.code.iter().any(|code| code.workflow == workflow);
        self.live().filter(|worker| serves(worker, queue)).filter(has).count()
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
        }
    }

    /// What keeps a run from going on that will not pass by itself.
    fn trouble(&self, history: &[TurnRecord]) -> Option<Because> {
        if let Some(stuck) = self.view.stuck.as_ref().filter(|_| self.view.status == Status::Stuck) {
            let mut other_builds: Vec<String> = self.able().map(|worker| worker.build.clone()).collect();
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
        if owner.is_some_and(|owner| self.is_in_hand || owner.expires_at > self.now) {
            return None;
        }
        Some(Because::WorkerGone {
            worker: session,
            place: owner.map(|owner| format!("process {} on {}", owner.pid, owner.host)),
            expired_at: owner.map(|owner| owner.expires_at),
            others: self
                .live()
                .filter(|worker| worker.session != session)
                .map(|worker| self.joined(worker))
                .collect(),
        })
    }

    fn held(&self, owner: &WorkerView, operations: &[OperationView]) -> Because {
        let steps = operations.iter().filter(|step| step.is_open() && step.kind == OperationKind::Step);
        let attempts = steps.filter_map(|step| {
            // That a pause was over leaves no event: the attempt after it is under way.
            let (attempt, since) = match step.retry_at {
                None => (step.attempts, step.started_at),
                Some(due) if due <= self.now => (step.attempts + 1, due),
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

    /// When a worker without its code ends the run: it has been joined for a while by then.
    fn overdue_at(&self, deadline: Timestamp) -> Timestamp {
        let joined = self.live().map(|worker| worker.joined_at).min().unwrap_or(self.now);
        deadline.max(joined).plus(DEADLINE_GRACE)
    }

    /// Why a run that nobody holds is not claimed; `None` when it waits for something to happen.
    fn unheld(&self) -> Option<Because> {
        let Self { view, now, .. } = self;
        if let Some(deadline) = view.deadline.filter(|deadline| deadline <= now) {
            return Some(Because::PastDeadline {
                deadline,
                overdue_at: self.overdue_at(deadline),
                workers: self.live().count(),
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
        let able: Vec<_> = self.able().map(|worker| self.joined(worker)).collect();
        let workers: Vec<_> = self.with_code().map(|worker| self.joined(worker)).collect();
        Some(if !able.is_empty() {
            Because::Ready { since, crashes: view.crashes, workers: able, probes: Vec::new() }
        } else if !workers.is_empty() {
            Because::BuildsFailed { failed_builds: self.failed_builds(), workers }
        } else if self.serving().next().is_some() {
            let workers = self.serving().map(|worker| self.joined(worker)).collect();
            Because::NoCode { workflow, version, queue, workers }
        } else if self.live().next().is_some() {
            let workers = self.live().map(|worker| self.joined(worker)).collect();
            Because::NotServed { workflow, version, queue, workers }
        } else {
            Because::NoWorker { workflow, version, queue }
        })
    }
}
