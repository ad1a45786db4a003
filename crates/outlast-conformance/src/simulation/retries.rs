//! The checks of retries: a retry runs again exactly the steps that its dry run listed, and no completed one.

use std::collections::BTreeSet;

use outlast_core::{Event, MessageId, OpNumber, Reopen, RetryPlan, RetryRequest, TurnRecord};

use super::attempt_log::AttemptLog;
use super::check::FinalRun;
use super::coverage::{Coverage, Situation};
use super::effective::{OpenSteps, effective};
use super::environment::Environment;

/// A retry that the world has accepted.
#[derive(Clone, Debug)]
pub(super) struct Reopened {
    pub(super) message: MessageId,
    pub(super) request: RetryRequest,
    /// How often a session had got the run.
    pub(super) holds: u64,
    /// The first number that no operation had.
    pub(super) next_op: OpNumber,
    /// The steps that run again.
    pub(super) again: OpenSteps,
    /// Whether outcomes and payloads are recorded again.
    records_again: bool,
}

impl Reopened {
    /// Computes from the history which steps run again: those that were requested before the cut point and have not
    /// ended, or ended behind it with the reopened operation.
    pub(super) fn of(reopen: &Reopen, request: &RetryRequest, turns: &[TurnRecord], holds: u64) -> Self {
        let (mut again, mut records_again) = (OpenSteps::default(), false);
        let mut known = BTreeSet::new();
        for counting in effective(turns) {
            if counting.number < request.from {
                if matches!(counting.event, Event::RunContinued(_)) {
                    again = OpenSteps::default();
                }
                known.extend(counting.event.op());
                again.apply(counting.event);
                continue;
            }
            let ended = match counting.event {
                Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } if *op != request.reopens => {
                    *op
                }
                Event::HookReceived { .. } => {
                    records_again = true;
                    continue;
                }
                _ => continue,
            };
            if known.contains(&ended) {
                records_again = true;
                again.end(ended);
            }
        }
        let all = turns.iter().flat_map(|turn| &turn.events).filter_map(Event::op);
        let next_op = OpNumber(all.map(|op| op.0 + 1).max().unwrap_or_default());
        Self { message: reopen.message.id, request: request.clone(), holds, next_op, again, records_again }
    }

    /// Why the world should have refused the retry, or the dry run is wrong.
    pub(super) fn problem(&self, turns: &[TurnRecord], dry_run: Option<&RetryPlan>) -> Option<String> {
        let compensates = |event: &Event| matches!(event, Event::RunCompensating { .. });
        if effective(turns).iter().any(|counting| compensates(counting.event)) {
            return Some("its compensations have run".into());
        }
        if !self.request.is_forced && !self.again.once.is_empty() {
            return Some(format!("steps {:?} are attempted at most once", self.again.once));
        }
        let plan =
            dry_run.filter(|plan| plan.from == self.request.from && plan.reopens == self.request.reopens)?;
        let listed: BTreeSet<_> = plan.steps().map(|step| step.op).collect();
        (listed != self.again.open)
            .then(|| format!("its dry run listed steps {listed:?}, and {:?} run again", self.again.open))
    }
}

/// Whether an attempt at a step is allowed by the last retry of its run; `holds` is how often a session has got the run.
pub(super) fn is_allowed(last: &Reopened, op: OpNumber, holds: u64) -> bool {
    holds <= last.holds || op >= last.next_op || last.again.open.contains(&op)
}

/// Checks the retries of a run against its history.
pub(super) fn check_retries(
    env: &Environment,
    final_run: &FinalRun,
    violations: &mut Vec<String>,
    coverage: &mut Coverage,
) {
    let run = final_run.view.id;
    let retries = env.controlled.lock().retries.get(&run).cloned().unwrap_or_default();
    let recorded: Vec<_> = final_run
        .turns
        .iter()
        .flat_map(|turn| (turn.seq..).zip(&turn.events))
        .filter_map(|(number, event)| match event {
            Event::RunRetried(retried) if number >= final_run.copied() => Some((number, retried)),
            _ => None,
        })
        .collect();
    for (_, retried) in &recorded {
        let known = retries.iter().filter(|retry| retry.message == retried.message);
        if known.count() != 1 {
            violations.push(format!("run {run} records a retry {} that nobody made", retried.message));
        }
    }
    for retry in &retries {
        let mut records = recorded.iter().filter(|(_, retried)| retried.message == retry.message);
        let Some((number, retried)) = records.next() else {
            // It was terminated before, or retried again.
            continue;
        };
        coverage.record(Situation::RetriedByClient);
        if retry.records_again {
            coverage.record(Situation::RecordedAgain);
        }
        if records.next().is_some() {
            violations.push(format!("run {run} records the retry {} twice", retry.message));
        }
        let restarted = retried.restarts.iter().map(|restarted| restarted.op);
        let is_step = |op: &OpNumber| is_queued_step(final_run, *op);
        if let Some(op) = restarted.filter(is_step).find(|op| !retry.again.open.contains(op)) {
            violations.push(format!("run {run} starts its queued step {op} again, which has ended"));
        }
        if let Some(violation) = outcome_of_nothing(final_run, *number, retry, &env.attempt_log.lock()) {
            violations.push(format!("run {run}: {violation}"));
        }
    }
}

fn is_queued_step(final_run: &FinalRun, wanted: OpNumber) -> bool {
    let is_queued = |event: &Event| match event {
        Event::StepStarted { op, queued: Some(_), .. } => *op == wanted,
        _ => false,
    };
    final_run.turns.iter().flat_map(|turn| &turn.events).any(is_queued)
}

/// A step that runs again, and has completed with a recorded output without having been attempted again. An outcome that
/// the run had not read when it was retried counts: it is in its inbox.
fn outcome_of_nothing(
    final_run: &FinalRun,
    since: u64,
    retry: &Reopened,
    attempt_log: &AttemptLog,
) -> Option<String> {
    let is_built_in = |wanted: OpNumber| {
        final_run.turns.iter().flat_map(|turn| &turn.events).any(|event| match event {
            Event::StepStarted { op, name, queued, .. } => {
                let is_unobserved = name.starts_with("outlast:") || name.starts_with("call-");
                *op == wanted && (is_unobserved || queued.is_some())
            }
            _ => false,
        })
    };
    let numbered = || final_run.turns.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
    let was_recorded = |wanted: &Event| numbered().any(|(number, event)| number < since && event == wanted);
    numbered().find_map(|(number, event)| {
        let Event::StepCompleted { op, .. } = event else { return None };
        if number < since || !retry.again.open.contains(op) || is_built_in(*op) || !was_recorded(event) {
            return None;
        }
        let mut attempts =
            attempt_log.begun.iter().filter(|(key, _)| (key.0, key.1) == (final_run.view.id, *op));
        let is_attempted = attempts.any(|(_, begun)| begun.iter().any(|(holds, _)| *holds > retry.holds));
        (!is_attempted).then(|| format!("step {op} has completed after a retry, and was not attempted again"))
    })
}
