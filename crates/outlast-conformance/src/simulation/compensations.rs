//! The checks of compensations and retries: every compensation runs once, in the reverse order of registrations, and
//! after everything else of its run; a run begins again only when that is over.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::{CompensationInput, Event, OpNumber, ParentEnd, RunForked, Status, TurnRecord};

use super::check::FinalRun;
use super::coverage::{Coverage, Situation};
use super::effective::Counting;

/// Checks the compensations and tries of a run.
pub(super) fn check_compensations(
    final_run: &FinalRun,
    violations: &mut Vec<String>,
    coverage: &mut Coverage,
) {
    let run = final_run.view.id;
    let mut model = CompensationModel::default();
    for Counting { turn, event, .. } in final_run.effective() {
        if let Err(violation) = model.apply(event, turn, coverage) {
            return violations.push(format!("run {run}: {event:?}: {violation}"));
        }
    }
    if let Err(violation) = model.check_marks(final_run) {
        violations.push(format!("run {run}: {violation}"));
    }
}

/// What is known of the current generation of a run, computed from its events.
#[derive(Default)]
struct CompensationModel {
    /// The registrations that are not kept, and the step that each undoes.
    registered: BTreeMap<OpNumber, Option<OpNumber>>,
    kept: BTreeSet<OpNumber>,
    /// The registrations that have begun, and the steps that compensate.
    begun: BTreeMap<OpNumber, OpNumber>,
    /// The compensation that is running after the decision.
    running: Option<OpNumber>,
    last_begun: Option<OpNumber>,
    open_steps: BTreeSet<OpNumber>,
    /// The steps that have begun. Others were dropped before.
    started_steps: BTreeSet<OpNumber>,
    /// The compensations of sagas.
    saga_steps: BTreeSet<OpNumber>,
    completed_steps: BTreeSet<OpNumber>,
    open_children: BTreeSet<OpNumber>,
    is_cancelled: bool,
    decision: Option<Decision>,
    /// Whether compensations were registered when the run decided.
    compensates: bool,
    has_failed: bool,
    failed_tries: u32,
}

/// What a run has decided about its end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decision {
    Compensate,
    Retry { attempt: u32, retry_at: outlast_core::Timestamp },
}

impl CompensationModel {
    fn apply(&mut self, event: &Event, turn: &TurnRecord, coverage: &mut Coverage) -> Result<(), String> {
        match event {
            Event::CompensationRegistered(registered) => {
                let undone = match &registered.input {
                    CompensationInput::Undo(step) => Some(*step),
                    CompensationInput::Value(Ok(_)) => None,
                    CompensationInput::Value(Err(_)) => return Ok(()),
                };
                self.registered.insert(registered.op, undone);
            }
            Event::CompensationsKept { of, .. } => self.kept.extend(of),
            Event::StepStarted { op, .. } => {
                self.started_steps.insert(*op);
                self.open_steps.insert(*op);
            }
            Event::StepCompleted { op, .. } => {
                self.completed_steps.insert(*op);
                self.end_step(*op);
            }
            Event::StepFailed { op, failure } => {
                let is_compensation = self.running == Some(*op) || self.saga_steps.contains(op);
                if is_compensation && failure.is_cancelled() {
                    // It was cancelled with its saga, and runs again when the run ends.
                    self.begun.retain(|_, step| step != op);
                } else {
                    self.has_failed |= is_compensation;
                }
                self.end_step(*op);
            }
            Event::StepDropped { op } => self.end_step(*op),
            Event::ChildStarted(child) if !child.is_detached && child.on_parent_end != ParentEnd::Abandon => {
                self.open_children.insert(child.op);
            }
            Event::ChildCompleted { op, .. }
            | Event::ChildFailed { op, .. }
            | Event::ChildCancelled { op, .. } => drop(self.open_children.remove(op)),
            Event::CancelRequested { pauses, ends, .. } => self.cancel(pauses.iter().chain(ends)),
            Event::CompensationStarted { op, of, .. } => return self.begin(*op, *of, coverage),
            Event::RunCompensating { .. } => {
                coverage.record(Situation::Compensated);
                return self.decide(Decision::Compensate);
            }
            Event::RunRetrying(retrying) => {
                coverage.record(Situation::Retried);
                return self.retry(retrying.attempt, retrying.retry_at);
            }
            Event::RunForked(forked) => self.fork(forked),
            Event::RunContinued(continued) => return self.continued(continued.failed_tries, turn, coverage),
            Event::RunFailed { .. } | Event::RunCancelled { .. } => return self.end(),
            _ => {}
        }
        Ok(())
    }

    fn end_step(&mut self, op: OpNumber) {
        self.open_steps.remove(&op);
        self.running.take_if(|running| *running == op);
    }

    /// The compensations of copied operations are those of the other run, except those of steps that have not ended.
    fn fork(&mut self, forked: &RunForked) {
        let next_op = forked.next_op;
        let is_started = |op: &OpNumber| forked.restarts.iter().any(|restarted| restarted.op == *op);
        self.open_children.retain(is_started);
        let has_ended =
            |step: OpNumber| self.started_steps.contains(&step) && !self.open_steps.contains(&step);
        let is_own = |op: &OpNumber, undone: &Option<OpNumber>| {
            *op >= next_op || undone.is_some_and(|step| !has_ended(step))
        };
        self.registered.retain(|op, undone| is_own(op, undone));
        let registered = &self.registered;
        self.begun.retain(|op, _| registered.contains_key(op));
        self.saga_steps.clear();
        self.has_failed = false;
    }

    fn cancel<'a>(&mut self, ends: impl Iterator<Item = &'a OpNumber>) {
        ends.for_each(|op| self.end_step(*op));
        self.is_cancelled = true;
        if matches!(self.decision, Some(Decision::Retry { .. })) {
            self.decision = Some(Decision::Compensate);
        }
    }

    fn decide(&mut self, decision: Decision) -> Result<(), String> {
        // A compensation of a saga that is running is one of the run from now on.
        let is_over = |of: &OpNumber| self.begun.get(of).is_some_and(|op| !self.open_steps.contains(op));
        let is_settled = |op: &OpNumber| self.kept.contains(op) || is_over(op);
        self.compensates = self.registered.keys().any(|op| !is_settled(op));
        match self.decision.replace(decision) {
            Some(earlier) => Err(format!("the run had decided before: {earlier:?}")),
            None => Ok(()),
        }
    }

    fn retry(&mut self, attempt: u32, retry_at: outlast_core::Timestamp) -> Result<(), String> {
        if self.is_cancelled {
            return Err("the run was cancelled".into());
        }
        if attempt != self.failed_tries + 1 || attempt > 2 {
            return Err(format!("{} tries had failed before", self.failed_tries));
        }
        self.decide(Decision::Retry { attempt, retry_at })
    }

    /// A compensation begins.
    fn begin(&mut self, op: OpNumber, of: OpNumber, coverage: &mut Coverage) -> Result<(), String> {
        if !self.registered.contains_key(&of) {
            return Err("it is not registered".into());
        }
        if self.kept.contains(&of) {
            return Err("it was settled".into());
        }
        if self.begun.insert(of, op).is_some() {
            return Err("it has run before".into());
        }
        if self.decision.is_none() {
            coverage.record(Situation::SagaCompensated);
            self.open_steps.insert(op);
            self.saga_steps.insert(op);
            return Ok(());
        }
        if !self.open_steps.is_empty() || !self.open_children.is_empty() || self.running.is_some() {
            let Self { open_steps, open_children, running, .. } = self;
            return Err(format!("not over: steps {open_steps:?}, children {open_children:?}, {running:?}"));
        }
        if self.last_begun.is_some_and(|last| last < of) {
            return Err(format!("{:?} began before it", self.last_begun));
        }
        (self.running, self.last_begun) = (Some(op), Some(of));
        Ok(())
    }

    /// A generation begins.
    fn continued(
        &mut self,
        failed_tries: u32,
        turn: &TurnRecord,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        match self.decision {
            None if failed_tries == 0 => {}
            Some(Decision::Retry { attempt, retry_at }) if failed_tries == attempt => {
                if turn.at < retry_at {
                    return Err(format!("it is not due before {retry_at}"));
                }
                if !self.open_steps.is_empty() || !self.open_children.is_empty() || self.running.is_some() {
                    let Self { open_steps, open_children, .. } = self;
                    return Err(format!("not over: steps {open_steps:?}, children {open_children:?}"));
                }
                if !self.begun.is_empty() {
                    coverage.record(Situation::CompensatedBeforeRetry);
                }
            }
            other => return Err(format!("{failed_tries} tries have failed, and the run decided {other:?}")),
        }
        self.check_complete()?;
        let children = std::mem::take(&mut self.open_children);
        *self = Self { failed_tries, open_children: children, ..Self::default() };
        Ok(())
    }

    /// The run ends other than completed, and not terminated.
    fn end(&self) -> Result<(), String> {
        if matches!(self.decision, Some(Decision::Retry { .. })) {
            return Err("it was about to begin again".into());
        }
        if self.running.is_some() {
            return Err("a compensation is running".into());
        }
        self.check_complete()
    }

    /// Every compensation that is needed has run: explicit ones, and those of steps that completed.
    fn check_complete(&self) -> Result<(), String> {
        let is_needed =
            |undone: &Option<OpNumber>| undone.is_none_or(|step| self.completed_steps.contains(&step));
        let is_settled = |op: &OpNumber| self.kept.contains(op) || self.begun.contains_key(op);
        let missing = self.registered.iter().find(|(op, undone)| is_needed(undone) && !is_settled(op));
        match missing {
            Some((op, undone)) => Err(format!("compensation {op} of {undone:?} has not run")),
            None => Ok(()),
        }
    }

    fn check_marks(&self, final_run: &FinalRun) -> Result<(), String> {
        let is_terminated = matches!(final_run.events().last(), Some(Event::RunTerminated { .. }));
        let is_compensated = final_run.view.marks.is_compensated();
        let has_decided = self.decision == Some(Decision::Compensate) && self.compensates && !is_terminated;
        if is_compensated && (final_run.view.status == Status::Completed || !has_decided) {
            return Err("it has the mark of compensations, but none ran".into());
        }
        if has_decided && !self.has_failed && !is_compensated && final_run.view.status.is_final() {
            return Err("its compensations have run, but it has no mark".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::{Failure, FailureKind, Payload, RunRetrying, Timestamp, TurnId};

    use super::*;

    fn check(events: &[Event]) -> Result<(), String> {
        let (mut model, mut coverage) = (CompensationModel::default(), Coverage::default());
        let at = Timestamp::from_micros(100);
        let turn = TurnRecord { id: TurnId::from_bits(1), seq: 0, at, build: "".into(), events: Vec::new() };
        events.iter().try_for_each(|event| model.apply(event, &turn, &mut coverage))
    }

    fn registered(op: u64) -> Event {
        Event::CompensationRegistered(Box::new(outlast_core::CompensationRegistered {
            op: OpNumber(op),
            step: "undo".into(),
            input: CompensationInput::Value(Ok(Payload::null())),
            policy: None,
            queue: None,
            priority: None,
        }))
    }

    fn begun(op: u64, of: u64) -> [Event; 2] {
        let (op, of) = (OpNumber(op), OpNumber(of));
        let output = Payload::null();
        [Event::CompensationStarted { op, of, queued: None }, Event::StepCompleted { op, output }]
    }

    fn failure() -> Failure {
        Failure::new(FailureKind::Error, "no")
    }

    fn deciding() -> Event {
        Event::RunCompensating { ends_as: Status::Failed, failure: failure(), actor: None }
    }

    fn failed() -> Event {
        Event::RunFailed { failure: failure() }
    }

    #[test]
    fn compensations_run_once_and_in_reverse_order() {
        let first = [registered(0), registered(1), deciding()];
        let with = |rest: &[&[Event]]| [&first[..], &rest.concat()[..]].concat();
        let (zero, one) = (begun(3, 0), begun(2, 1));
        assert_eq!(check(&with(&[&one, &zero, &[failed()]])), Ok(()));
        check(&with(&[&zero, &one, &[failed()]])).unwrap_err();
        check(&with(&[&one, &[failed()]])).unwrap_err();
        check(&with(&[&one, &begun(4, 1)])).unwrap_err();
        check(&with(&[&one[..1], &zero])).unwrap_err();
        check(&[registered(0), failed()]).unwrap_err();
    }

    #[test]
    fn compensations_begin_when_everything_else_is_over() {
        let step = |op| Event::StepStarted {
            op: OpNumber(op),
            name: "work".into(),
            input: Payload::null(),
            queued: None,
            is_once: false,
            is_transactional: false,
        };
        let dropped = Event::StepDropped { op: OpNumber(5) };
        let before = |event: Option<Event>| {
            let events = [registered(0), step(5)].into_iter().chain(event).chain([deciding()]);
            events.chain(begun(6, 0)).chain([failed()]).collect::<Vec<_>>()
        };
        assert_eq!(check(&before(Some(dropped))), Ok(()));
        check(&before(None)).unwrap_err();
    }

    #[test]
    fn a_run_that_is_cancelled_does_not_begin_again() {
        let retrying = |attempt| {
            let (failure, kept) = (failure(), Vec::new());
            let retry_at = Timestamp::from_micros(50);
            Event::RunRetrying(Box::new(RunRetrying { failure, attempt, retry_at, kept }))
        };
        let cancel = Event::CancelRequested {
            message: None,
            reason: "no".into(),
            actor: None,
            pauses: Vec::new(),
            ends: Vec::new(),
            maybe_attempted: Vec::new(),
        };
        let cancelled = Event::RunCancelled { failure: failure() };
        assert_eq!(check(&[retrying(1), cancel.clone(), cancelled]), Ok(()));
        check(&[cancel, retrying(1)]).unwrap_err();
        check(&[retrying(2)]).unwrap_err();
        check(&[retrying(1), failed()]).unwrap_err();
    }
}
