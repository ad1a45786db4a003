//! The attempt log: records every attempt at a step, and checks whether it was allowed to begin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use outlast::StepContext;
use outlast_core::{Clock, Event, OpNumber, RunId};

use super::coverage::Situation;
use super::environment::{Environment, short_run};
use super::node::Node;

/// The state of the steps of one process.
#[derive(Debug)]
pub(super) struct StepState {
    pub(super) env: Arc<Environment>,
    pub(super) node: Arc<Node>,
}

/// The attempts that have begun and ended.
#[derive(Debug, Default)]
pub(super) struct AttemptLog {
    /// For each attempt: the claims and the nodes by which it was begun.
    pub(super) begun: BTreeMap<(RunId, OpNumber, u32), Vec<(u64, String)>>,
    /// The outputs of attempts.
    pub(super) returned: BTreeMap<(RunId, OpNumber), BTreeSet<u64>>,
    /// The attempt that sent each heartbeat, by its details.
    details: BTreeMap<u64, (RunId, OpNumber, u32)>,
    last: u64,
}

impl AttemptLog {
    /// How many attempts were begun, and how many of them were repeated.
    pub(super) fn count(&self) -> (u64, u64) {
        let all: usize = self.begun.values().map(Vec::len).sum();
        (all as u64, (all - self.begun.len()) as u64)
    }
}

impl Environment {
    /// The run and operation under which a step is executed: a queued step is a run of its own.
    async fn executing_run(&self, run: RunId, op: OpNumber) -> (RunId, OpNumber) {
        let history = self.history(run).await;
        let mut events = history.iter().flat_map(|turn| &turn.events);
        let queued = events.find_map(|event| match event {
            Event::StepStarted { op: requested_at, queued: Some(queued), .. } if *requested_at == op => {
                Some(queued.run)
            }
            _ => None,
        });
        queued.map_or((run, op), |step| (step, OpNumber(0)))
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
        let mut attempt_log = env.attempt_log.lock();
        let begun = attempt_log.begun.entry((run, op, attempt)).or_default();
        // An attempt that was cancelled before it began may belong to an earlier claim.
        let is_repeated = begun.contains(&hold) && !cx.is_cancelled() && !env.is_real_time;
        begun.push(hold);
        let is_second = begun.len() > 1 || attempt > 1;
        drop(attempt_log);
        if is_repeated {
            env.report_violation(format!(
                "attempt {attempt} at step {op} of run {run} was made twice in one claim"
            ));
        }
        if is_at_most_once && is_second {
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
        let events = || history.iter().flat_map(|turn| &turn.events).filter(|event| event.op() == Some(op));
        if !events().any(|event| matches!(event, Event::StepStarted { .. })) {
            return Some("it was not announced".into());
        }
        if attempt > 1 {
            let retried = events().find_map(|event| match event {
                Event::StepRetried { attempt: failed, retry_at, .. } if failed + 1 == attempt => {
                    Some(*retry_at)
                }
                _ => None,
            });
            let Some(retry_at) = retried else { return Some("the failure before it is not recorded".into()) };
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
        let stops = |event: &Event| *event == dropped || *event == cancelled;
        let dropped = history.iter().find(|turn| turn.events.iter().any(stops));
        let observer = self.env.observer.lock();
        let known = dropped
            .and_then(|turn| observer.commit_answered_at.get(&(turn.id, self.node.name.clone())).copied());
        let is_late = known.is_some_and(|known| requested_at > known + Duration::from_millis(1));
        (is_late && !cx.is_cancelled()).then(|| "its step was dropped or cancelled before".into())
    }

    /// Checks the heartbeat details that an attempt got from an earlier one.
    async fn check_details(&self, cx: &StepContext<Self>, (run, op): (RunId, OpNumber)) -> Option<String> {
        let (env, attempt) = (&self.env, cx.attempt());
        let history = env.history(run).await;
        // An attempt that failed before its first heartbeat leaves the details of the one before it.
        let recorded = history.iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
            Event::StepRetried { op: retried, attempt: failed, details, .. }
                if *retried == op && *failed < attempt =>
            {
                details.as_ref()?.decode::<u64>().ok()
            }
            _ => None,
        });
        let recorded = recorded.last();
        let Some(got) = cx.last_details::<u64>() else {
            return recorded.map(|recorded| format!("it did not get the details {recorded}"));
        };
        let given = env.attempt_log.lock().details.get(&got).copied();
        match given {
            // The worker of the earlier attempt was lost, or released the run.
            Some(given) if given == (cx.run(), cx.op(), attempt) => {
                env.record(Situation::DetailsOfLoss);
                None
            }
            Some((by, of, failed)) if (by, of) == (cx.run(), cx.op()) && failed < attempt => {
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
        let mut attempt_log = self.env.attempt_log.lock();
        attempt_log.last += 1;
        let details = attempt_log.last;
        attempt_log.details.insert(details, (cx.run(), cx.op(), cx.attempt()));
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
        let Some(cancelled) = history.iter().find(|turn| turn.events.iter().any(is_cancel)) else {
            return false;
        };
        let observer = self.env.observer.lock();
        let known = observer.commit_answered_at.get(&(cancelled.id, self.node.name.clone())).copied();
        known.is_some_and(|known| requested_at > known + Duration::from_millis(1))
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
