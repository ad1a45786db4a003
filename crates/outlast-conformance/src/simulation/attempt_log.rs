//! The attempt log: records every attempt at a step, and checks whether it was allowed to begin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use outlast::{RunEnd, StepContext};
use outlast_core::{Clock, Event, OpNumber, RestartedRun, RunId, Status, TurnRecord};

use super::control::Controlled;
use super::coverage::Situation;
use super::effective::{effective, times_reopened};
use super::environment::{Environment, short_run};
use super::node::Node;
use super::retries::is_allowed;

/// The state of the steps of one process.
#[derive(Debug)]
pub(super) struct StepState {
    pub(super) env: Arc<Environment>,
    pub(super) node: Arc<Node>,
}

/// A run, an operation, the number of times that the operation was reopened before, and the number of the attempt.
type AttemptKey = (RunId, OpNumber, u32, u32);

/// The attempts that have begun and ended.
#[derive(Debug, Default)]
pub(super) struct AttemptLog {
    /// For each attempt, the claims and the nodes by which it was begun.
    pub(super) begun: BTreeMap<AttemptKey, Vec<(u64, String)>>,
    /// The runs and operations that execute attempts, each with the claim and the node.
    executed: BTreeSet<(RunId, OpNumber, u32, u32, u64, String)>,
    /// The outputs of attempts.
    pub(super) returned: BTreeMap<(RunId, OpNumber), BTreeSet<u64>>,
    /// The attempt that sent each heartbeat, by its details.
    details: BTreeMap<u64, AttemptKey>,
    /// The execution that wrote the chunks of an output, and their number.
    pub(super) wrote: BTreeMap<u64, (u64, u8)>,
    /// The ends of runs that the step after them was told.
    pub(super) finished: BTreeSet<(RunId, &'static str)>,
    /// The attempts that are running, by run and claim.
    running: BTreeMap<(RunId, u64, String), BTreeSet<OpNumber>>,
    last: u64,
}

impl AttemptLog {
    /// How many attempts were begun, and how many of them were repeated.
    pub(super) fn count(&self) -> (u64, u64) {
        let all: usize = self.begun.values().map(Vec::len).sum();
        (all as u64, (all - self.begun.len()) as u64)
    }
}

/// An attempt that is running, until this is dropped.
pub(super) struct RunningAttempt {
    env: Arc<Environment>,
    key: (RunId, u64, String),
    op: OpNumber,
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        if let Some(running) = self.env.attempt_log.lock().running.get_mut(&self.key) {
            running.remove(&self.op);
        }
    }
}

impl Environment {
    /// The run and operation under which a step is executed: a queued step is a run of its own.
    async fn executing_run(&self, run: RunId, op: OpNumber) -> (RunId, OpNumber) {
        let history = self.history(run).await;
        let events = history.iter().flat_map(|turn| &turn.events);
        let restarted = |restarts: &[RestartedRun]| {
            restarts.iter().find(|restarted| restarted.op == op).map(|restarted| restarted.run)
        };
        let queued = events.filter_map(|event| match event {
            Event::StepStarted { op: requested_at, queued: Some(queued), .. }
            | Event::CompensationStarted { op: requested_at, queued: Some(queued), .. }
                if *requested_at == op =>
            {
                Some(queued.run)
            }
            Event::RunRetried(retried) => restarted(&retried.restarts),
            Event::RunForked(forked) => restarted(&forked.restarts),
            _ => None,
        });
        queued.last().map_or((run, op), |step| (step, OpNumber(0)))
    }
}

/// The details that failed attempts before this one have left in a history. A step that is open again has none, and
/// neither has a copied step that a fork attempts.
fn recorded_details(history: &[TurnRecord], wanted: OpNumber, attempt: u32) -> Option<u64> {
    let mut recorded = None;
    for counting in effective(history) {
        match counting.event {
            Event::RunRetried(retried) if retried.reopens == wanted => recorded = None,
            Event::RunForked(forked) if wanted < forked.next_op => recorded = None,
            Event::StepRetried { op, attempt: failed, details: Some(details), .. }
                if *op == wanted && *failed < attempt =>
            {
                recorded = details.decode::<u64>().ok().or(recorded);
            }
            _ => {}
        }
    }
    recorded
}

impl Environment {
    /// Whether a retry of a run was forced: steps that are attempted at most once may be attempted again.
    fn is_forced(&self, run: RunId) -> bool {
        self.is_forced_in(&self.controlled.lock(), run)
    }

    fn is_forced_in(&self, controlled: &Controlled, run: RunId) -> bool {
        let retries = controlled.retries.get(&run).into_iter().flatten();
        retries.into_iter().any(|retry| retry.request.is_forced)
    }
}

impl StepState {
    /// Records the begin of an attempt, and checks it.
    pub(super) async fn begin(&self, cx: &StepContext<Self>, is_at_most_once: bool, is_shielded: bool) {
        let requested_at = self.env.clock.elapsed();
        self.node.wait_until_running().await;
        let (run, op, attempt) = (cx.run(), cx.op(), cx.attempt());
        let env = &self.env;
        let executing_run = env.executing_run(run, op).await;
        let hold = (env.observer.lock().holds(executing_run.0), self.node.name.clone());
        env.log(&self.node.name, format_args!("attempt {attempt} at {}/{op} begins", short_run(run)));
        if let Some(violation) = self.check_begin(cx, executing_run, requested_at).await {
            env.report_violation(format!("attempt {attempt} at step {op} of run {run}: {violation}"));
        }
        // The run of a queued step is not shielded: its cancel is meant for the step.
        let is_shielded = is_shielded && executing_run.0 == run;
        let knows_of_cancel = self.knows_of_cancel(executing_run, requested_at).await;
        if !is_shielded && knows_of_cancel {
            env.report_violation(format!(
                "attempt {attempt} at step {op} of run {run} begins after the cancel"
            ));
        }
        if is_shielded && knows_of_cancel {
            env.record(Situation::ShieldedAfterCancel);
        }
        if let Some(violation) = self.check_details(cx, executing_run).await {
            env.report_violation(format!("attempt {attempt} at step {op} of run {run}: {violation}"));
        }
        let reopened = times_reopened(&env.history(run).await, op);
        if let Some(violation) = self.check_retried(cx, executing_run.0 == run, reopened, is_at_most_once) {
            env.report_violation(format!("attempt {attempt} at step {op} of run {run}: {violation}"));
        }
        let mut attempt_log = env.attempt_log.lock();
        let begun = attempt_log.begun.entry((run, op, reopened, attempt)).or_default();
        // An attempt that was cancelled before it began may belong to an earlier claim.
        begun.push(hold.clone());
        let is_second = begun.len() > 1 || attempt > 1;
        // A retry starts a queued step again as another run.
        let (executing, executed_op) = executing_run;
        let execution = (executing, executed_op, reopened, attempt, hold.0, hold.1);
        let is_repeated = !attempt_log.executed.insert(execution) && !cx.is_cancelled() && !env.is_real_time;
        drop(attempt_log);
        if is_repeated {
            env.report_violation(format!(
                "attempt {attempt} at step {op} of run {run} was made twice in one claim"
            ));
        }
        if is_at_most_once && is_second && !env.is_forced(run) {
            env.report_violation(format!("step {op} of run {run} was attempted more than once"));
        }
    }

    /// The rule that an attempt violates if it begins now.
    async fn check_begin(
        &self,
        cx: &StepContext<Self>,
        (run, op): (RunId, OpNumber),
        requested_at: Duration,
    ) -> Option<String> {
        let attempt = cx.attempt();
        let history = self.env.history(run).await;
        let counting: Vec<_> = effective(&history).iter().map(|counting| counting.event).collect();
        if counting.last().is_some_and(|last| Status::of_final(last).is_some()) && self.holds(run) {
            return Some("its run has ended".into());
        }
        let events = || counting.iter().copied().filter(|event| event.op() == Some(op));
        let is_announced =
            |event: &Event| matches!(event, Event::StepStarted { .. } | Event::CompensationStarted { .. });
        if !events().any(is_announced) {
            return Some("it was not announced".into());
        }
        if attempt > 1 {
            let mut retried = events().filter_map(|event| match event {
                Event::StepRetried { attempt: failed, retry_at, .. } if failed + 1 == attempt => {
                    Some(*retry_at)
                }
                _ => None,
            });
            let Some(retry_at) = retried.next_back() else {
                return Some("the failure before it is not recorded".into());
            };
            if self.env.clock.now() < retry_at && !self.env.profile.has_clock_jumps {
                return Some(format!("it is not due before {retry_at}"));
            }
        }
        let is_over =
            events().any(|event| matches!(event, Event::StepCompleted { .. } | Event::StepFailed { .. }));
        if is_over && self.holds(run) {
            return Some("its outcome is recorded already".into());
        }
        // An attempt that was about to begin when the worker learned of the drop or cancel may still begin.
        let (dropped, cancelled) = (Event::StepDropped { op }, Event::OperationCancelled { op });
        // A compensation that was cancelled with its saga is one of the run once that compensates itself.
        let is_compensation = events().any(|event| matches!(event, Event::CompensationStarted { .. }));
        let decides = |event: &&Event| matches!(event, Event::RunCompensating { .. } | Event::RunRetrying(_));
        let is_of_run = is_compensation && counting.iter().any(decides);
        let stops = |event: &Event| *event == dropped || *event == cancelled && !is_of_run;
        let dropped = effective(&history).into_iter().find(|counting| stops(counting.event));
        let dropped = dropped.map(|counting| counting.turn);
        let observer = self.env.observer.lock();
        let known = dropped
            .and_then(|turn| observer.commit_answered_at.get(&(turn.id, self.node.name.clone())).copied());
        let is_late = known.is_some_and(|known| requested_at > known + Duration::from_millis(1));
        (is_late && !cx.is_cancelled()).then(|| "its step was dropped or cancelled before".into())
    }

    /// Registers an attempt as running, until the returned value is dropped. A compensation with which a run ends begins
    /// only when no other attempt of the run is running.
    pub(super) async fn run_attempt(&self, cx: &StepContext<Self>) -> RunningAttempt {
        let (run, op) = (cx.run(), cx.op());
        let (executing, _) = self.env.executing_run(run, op).await;
        let holds = self.env.observer.lock().holds(executing);
        let key = (executing, holds, self.node.name.clone());
        let is_last = self.compensates_at_end(run, op).await;
        let mut attempt_log = self.env.attempt_log.lock();
        let running = attempt_log.running.entry(key.clone()).or_default();
        let others: Vec<_> = running.iter().copied().filter(|other| *other != op).collect();
        running.insert(op);
        drop(attempt_log);
        if is_last && !others.is_empty() && !cx.is_cancelled() {
            self.env.report_violation(format!(
                "compensation {op} of run {run} begins while attempts at {others:?} are running"
            ));
        }
        RunningAttempt { env: self.env.clone(), key, op }
    }

    /// Whether a step is a compensation with which its run ends.
    async fn compensates_at_end(&self, run: RunId, wanted: OpNumber) -> bool {
        let history = self.env.history(run).await;
        let mut has_decided = false;
        for event in history.iter().flat_map(|turn| &turn.events) {
            match event {
                Event::RunCompensating { .. } | Event::RunRetrying(_) => has_decided = true,
                Event::RunContinued(_) => has_decided = false,
                Event::CompensationStarted { op, .. } if *op == wanted => return has_decided,
                _ => {}
            }
        }
        false
    }

    /// A number that no other attempt gets.
    pub(super) fn next_token(&self) -> u64 {
        let mut attempt_log = self.env.attempt_log.lock();
        attempt_log.last += 1;
        attempt_log.last
    }

    /// Records which chunks belong to an output.
    pub(super) fn wrote(&self, output: u64, execution: u64, chunks: u8) {
        self.env.attempt_log.lock().wrote.insert(output, (execution, chunks));
    }

    /// Records the end of a run, in the step after it.
    pub(super) async fn run_finished(&self, end: &RunEnd) {
        self.node.wait_until_running().await;
        self.env.log(&self.node.name, format_args!("{} has ended: {}", short_run(end.run), end.status));
        self.env.attempt_log.lock().finished.insert((end.run, end.status.as_str()));
        let view = self.env.inner.run(end.run).await;
        // A retry may have opened it again.
        let is_retried = self.env.controlled.lock().retries.contains_key(&end.run);
        if !is_retried && !view.is_ok_and(|view| view.status == end.status) {
            self.env.report_violation(format!("the step after run {} was told {}", end.run, end.status));
        }
    }

    /// Checks the heartbeat details that an attempt got from an earlier one.
    async fn check_details(&self, cx: &StepContext<Self>, (run, op): (RunId, OpNumber)) -> Option<String> {
        let (env, attempt) = (&self.env, cx.attempt());
        let history = env.history(run).await;
        // An attempt that failed before its first heartbeat leaves the details of the one before it.
        let recorded = recorded_details(&history, op, attempt);
        let requested_by = env.history(cx.run()).await;
        let reopened = times_reopened(&requested_by, cx.op());
        let Some(got) = cx.last_details::<u64>() else {
            return recorded.map(|recorded| format!("it did not get the details {recorded}"));
        };
        let given = env.attempt_log.lock().details.get(&got).copied();
        match given {
            // The worker of the earlier attempt was lost, or released the run.
            Some(given) if given == (cx.run(), cx.op(), reopened, attempt) => {
                env.record(Situation::DetailsOfLoss);
                None
            }
            Some((by, of, before, failed))
                if (by, of, before) == (cx.run(), cx.op(), reopened) && failed < attempt =>
            {
                env.record(Situation::DetailsOfFailure);
                (recorded != Some(got))
                    .then(|| format!("it got the details {got}, and {recorded:?} are recorded"))
            }
            other => Some(format!("it got the details {got}, which {other:?} sent")),
        }
    }

    /// Sends a heartbeat with unique details.
    pub(super) async fn beat(&self, cx: &StepContext<Self>) {
        self.node.wait_until_running().await;
        let reopened = times_reopened(&self.env.history(cx.run()).await, cx.op());
        let mut attempt_log = self.env.attempt_log.lock();
        attempt_log.last += 1;
        let details = attempt_log.last;
        attempt_log.details.insert(details, (cx.run(), cx.op(), reopened, cx.attempt()));
        drop(attempt_log);
        cx.heartbeat(details);
    }

    /// Whether this process knew, when an attempt was requested, that the run was cancelled. From rules 2 on, no
    /// attempt begins then unless it is shielded.
    async fn knows_of_cancel(&self, (run, _): (RunId, OpNumber), requested_at: Duration) -> bool {
        let history = self.env.history(run).await;
        let started = history.first().and_then(|turn| turn.events.first());
        if !matches!(started, Some(Event::RunStarted(started)) if started.rules >= 2) {
            return false;
        }
        let is_cancel = |event: &Event| matches!(event, Event::CancelRequested { .. });
        let Some(cancelled) = effective(&history).into_iter().find(|counting| is_cancel(counting.event))
        else {
            return false;
        };
        let cancelled = cancelled.turn;
        let observer = self.env.observer.lock();
        let known = observer.commit_answered_at.get(&(cancelled.id, self.node.name.clone())).copied();
        known.is_some_and(|known| requested_at > known + Duration::from_millis(1))
    }

    /// The rule about retries that an attempt violates.
    fn check_retried(
        &self,
        cx: &StepContext<Self>,
        is_of_run: bool,
        reopened: u32,
        is_at_most_once: bool,
    ) -> Option<String> {
        let (run, op) = (cx.run(), cx.op());
        let holds = self.env.observer.lock().holds(run);
        let controlled = self.env.controlled.lock();
        let last = controlled.retries.get(&run)?.last()?;
        if is_of_run && self.holds(run) && !is_allowed(last, op, holds) {
            return Some(format!("the retry of its run lists steps {:?}", last.again.open));
        }
        (is_at_most_once && reopened > 0 && !self.env.is_forced_in(&controlled, run))
            .then(|| "it was attempted before a retry that was not forced".into())
    }

    /// Whether this process holds the run.
    fn holds(&self, run: RunId) -> bool {
        let observer = self.env.observer.lock();
        let holder = observer.runs.get(&run).and_then(|observed| observed.holder);
        holder
            .is_some_and(|holder| self.node.had_session(holder) && !observer.ended_sessions.contains(&holder))
    }

    /// Records the success of an attempt; returns its output, which is unique.
    pub(super) async fn end(&self, cx: &StepContext<Self>) -> u64 {
        self.node.wait_until_running().await;
        let mut attempt_log = self.env.attempt_log.lock();
        attempt_log.last += 1;
        let token = attempt_log.last;
        attempt_log.returned.entry((cx.run(), cx.op())).or_default().insert(token);
        drop(attempt_log);
        self.env.log(&self.node.name, format_args!("attempt at {}/{} ends", short_run(cx.run()), cx.op()));
        token
    }
}
