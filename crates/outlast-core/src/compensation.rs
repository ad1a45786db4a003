//! Compensations: the steps that undo the effects of a run that does not complete. Their list follows from the history
//! alone, so that it does not depend on the code of the workflow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cut::last_generation;
use crate::event::{CompensationInput, CompensationRegistered, Event, OpNumber, TurnRecord};
use crate::failure::{FailedCompensation, Failure, FailureKind};
use crate::forked::pending_fork;
use crate::payload::Payload;
use crate::retry::{Policy, Retry};

/// The registered compensations of a run, by the operations that registered them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compensations {
    entries: BTreeMap<OpNumber, Compensation>,
    /// The registrations that undo a step, by that step.
    by_step: BTreeMap<OpNumber, Vec<OpNumber>>,
    /// The registrations that have begun, by the operations that compensate.
    started: BTreeMap<OpNumber, OpNumber>,
    /// The inputs of steps that have not ended: a step is requested before its compensation is registered.
    inputs: BTreeMap<OpNumber, Payload>,
    /// Those of these steps that are transactional.
    transactional: BTreeSet<OpNumber>,
}

/// One registered compensation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Compensation {
    /// The operation that registered it.
    pub op: OpNumber,
    /// The step that compensates.
    pub step: Arc<str>,
    /// The policy of its attempts.
    pub policy: Policy,
    /// Its queue, if it is queued.
    pub queue: Option<Arc<str>>,
    /// Its priority in the queue; by default that of the run.
    pub priority: Option<u8>,
    /// The step that it undoes, if it undoes one.
    pub undone: Option<UndoneStep>,
    /// Its input, if it does not undo a step.
    pub value: Option<Payload>,
    /// How far it is.
    pub state: CompensationState,
}

/// A step that a compensation undoes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct UndoneStep {
    /// The operation.
    pub op: OpNumber,
    /// Its input, once it was requested.
    pub input: Option<Payload>,
    /// Its output, if it completed.
    pub output: Option<Payload>,
    /// Whether it has ended.
    pub is_ended: bool,
    /// Whether it was attempted, as far as that is known: a step that a lost worker may have attempted counts.
    pub is_attempted: bool,
    /// Whether the step is transactional: if it has not completed, it had no effect.
    pub is_transactional: bool,
}

impl UndoneStep {
    /// Whether the step may have had its effect.
    fn may_have_effect(&self) -> bool {
        if self.is_transactional { self.output.is_some() } else { self.is_attempted }
    }
}

/// The state of a compensation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CompensationState {
    /// It is registered, and runs if the run does not complete.
    Registered,
    /// It is not needed any more: the workflow said so.
    Kept,
    /// It is running, as this operation.
    Started(OpNumber),
    /// It has completed.
    Completed,
    /// It has failed for good.
    Failed(Failure),
}

impl Compensations {
    /// The compensations that a history registers: the part of it that a replay needs.
    pub fn of(history: &[TurnRecord]) -> Self {
        let mut compensations = Self::default();
        if pending_fork(history).is_some() {
            // What is copied is undone by the other run, and the fork has attempted nothing.
            return compensations;
        }
        for event in last_generation(history).into_iter().flat_map(|(_, _, events)| events) {
            compensations.read(event);
        }
        compensations
    }

    /// Applies one event.
    pub fn read(&mut self, event: &Event) {
        match event {
            Event::CompensationRegistered(registered) => self.register(registered),
            Event::CompensationsKept { of, .. } => {
                of.iter().for_each(|of| self.set(*of, CompensationState::Kept));
            }
            Event::CompensationStarted { op, of, .. } => {
                self.started.insert(*op, *of);
                self.set(*of, CompensationState::Started(*op));
            }
            Event::RunForked(forked) => self.keep_own(forked.next_op),
            Event::StepStarted { op, input, is_transactional, .. } => {
                self.step_started(*op, input, *is_transactional);
            }
            Event::StepRetried { op, .. } => self.change_step(*op, |step| step.is_attempted = true),
            Event::StepCompleted { op, output } => self.step_completed(*op, output),
            Event::StepFailed { op, failure } => self.step_failed(*op, failure),
            Event::CancelRequested { pauses, ends, maybe_attempted, .. } => {
                for op in pauses.iter().chain(ends) {
                    let is_unsure = maybe_attempted.contains(op);
                    self.end_step(*op, |step| step.is_attempted |= is_unsure);
                }
            }
            _ => {}
        }
    }

    /// All compensations, in the order of their registration.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Compensation> {
        self.entries.values()
    }

    /// The compensation that an operation registered.
    pub fn get(&self, op: OpNumber) -> Option<&Compensation> {
        self.entries.get(&op)
    }

    /// The registration of the compensation that is running as this operation.
    pub fn registration_of(&self, op: OpNumber) -> Option<OpNumber> {
        self.started.get(&op).copied()
    }

    /// Whether there are compensations that are neither settled nor kept.
    pub fn has_unsettled(&self) -> bool {
        self.entries.values().any(Compensation::is_unsettled)
    }

    /// The number of compensations that are neither settled nor kept.
    pub fn unsettled(&self) -> usize {
        self.entries.values().filter(|entry| entry.is_unsettled()).count()
    }

    /// The compensation that runs next: of those that are needed, the one that was registered last.
    pub fn next(&self) -> Option<&Compensation> {
        self.entries.values().rev().find(|entry| entry.is_due())
    }

    /// The compensations that failed for good, in the order in which they ran.
    pub fn failed(&self) -> Vec<FailedCompensation> {
        let failed = self.entries.values().rev().filter_map(|entry| match &entry.state {
            CompensationState::Failed(failure) => {
                Some(FailedCompensation::new(entry.op.0, &*entry.step, failure))
            }
            _ => None,
        });
        failed.collect()
    }

    /// Removes the compensations that were registered after an operation and are settled.
    pub fn forget_settled_since(&mut self, after: OpNumber) {
        self.entries.retain(|op, entry| *op <= after || entry.is_unsettled());
        self.inputs.retain(|op, _| *op <= after);
        self.transactional.retain(|op| *op <= after);
        self.forget_removed();
    }

    /// Forgets what a fork has copied: operations below `next_op`. The other run undoes its steps itself. A step that is
    /// open is attempted by the fork, so its compensation stays, also if it was kept: the workflow may have kept it before
    /// or behind this event.
    fn keep_own(&mut self, next_op: OpNumber) {
        self.entries.retain(|op, entry| {
            let undoes_open = entry.undone.as_ref().is_some_and(|undone| !undone.is_ended);
            *op >= next_op || undoes_open && (entry.is_unsettled() || entry.state == CompensationState::Kept)
        });
        for undone in self.entries.values_mut().filter_map(|entry| entry.undone.as_mut()) {
            // Nobody has attempted it for the fork.
            undone.is_attempted &= undone.op >= next_op;
        }
        self.forget_removed();
    }

    fn forget_removed(&mut self) {
        let entries = &self.entries;
        self.by_step.retain(|_, registrations| {
            registrations.retain(|op| entries.contains_key(op));
            !registrations.is_empty()
        });
        self.started.retain(|_, of| entries.contains_key(of));
    }

    fn register(&mut self, registered: &CompensationRegistered) {
        let CompensationRegistered { op, step, input, policy, queue, priority } = registered;
        let (undone, value) = match input {
            CompensationInput::Undo(of) => (Some(*of), None),
            CompensationInput::Value(Ok(value)) => (None, Some(value.clone())),
            // Nothing was registered: the workflow got an error.
            CompensationInput::Value(Err(_)) => return,
        };
        let undone = undone.map(|of| {
            self.by_step.entry(of).or_default().push(*op);
            let input = self.inputs.get(&of).cloned();
            let is_transactional = self.transactional.contains(&of);
            UndoneStep { op: of, input, output: None, is_ended: false, is_attempted: false, is_transactional }
        });
        let compensation = Compensation {
            op: *op,
            step: step.clone(),
            policy: policy.as_deref().copied().unwrap_or(default_policy()),
            queue: queue.clone(),
            priority: *priority,
            undone,
            value,
            state: CompensationState::Registered,
        };
        self.entries.insert(*op, compensation);
    }

    fn set(&mut self, op: OpNumber, state: CompensationState) {
        if let Some(entry) = self.entries.get_mut(&op) {
            entry.state = state;
        }
    }

    fn step_started(&mut self, op: OpNumber, input: &Payload, is_transactional: bool) {
        self.inputs.insert(op, input.clone());
        if is_transactional {
            self.transactional.insert(op);
        }
        self.change_step(op, |step| {
            step.input = Some(input.clone());
            step.is_transactional = is_transactional;
        });
    }

    fn step_completed(&mut self, op: OpNumber, output: &Payload) {
        if let Some(of) = self.started.remove(&op) {
            self.set(of, CompensationState::Completed);
        }
        self.end_step(op, |step| {
            step.output = Some(output.clone());
            step.is_attempted = true;
        });
    }

    fn step_failed(&mut self, op: OpNumber, failure: &Failure) {
        if let Some(of) = self.started.remove(&op) {
            // A compensation that was cancelled with its saga has not failed: it runs again when the run ends.
            let state = match failure.is_cancelled() {
                true => CompensationState::Registered,
                false => CompensationState::Failed(failure.clone()),
            };
            self.set(of, state);
        }
        self.end_step(op, |step| step.is_attempted |= was_attempted(failure));
    }

    fn end_step(&mut self, op: OpNumber, change: impl Fn(&mut UndoneStep)) {
        self.inputs.remove(&op);
        self.transactional.remove(&op);
        self.change_step(op, |step| {
            step.is_ended = true;
            change(step);
        });
    }

    fn change_step(&mut self, op: OpNumber, change: impl Fn(&mut UndoneStep)) {
        for registration in self.by_step.get(&op).into_iter().flatten() {
            let undone = self.entries.get_mut(registration).and_then(|entry| entry.undone.as_mut());
            if let Some(undone) = undone.filter(|step| !step.is_ended) {
                change(undone);
            }
        }
    }
}

impl Compensation {
    /// Whether it is registered or running.
    pub fn is_unsettled(&self) -> bool {
        matches!(self.state, CompensationState::Registered | CompensationState::Started(_))
    }

    /// The input of its step, if no codec has encoded what it consists of.
    pub fn plain_input(&self) -> Payload {
        match &self.undone {
            Some(undone) => undo_json(undone.input.as_ref(), undone.output.as_ref()),
            None => self.value.clone().unwrap_or_else(Payload::null),
        }
    }

    /// Whether it can begin: it is registered, and the step that it undoes, if any, has ended and may have had its
    /// effect.
    pub fn is_due(&self) -> bool {
        self.state == CompensationState::Registered
            && self.undone.as_ref().is_none_or(|step| step.is_ended && step.may_have_effect())
    }
}

/// The input and output of a step as the input of the step that undoes it. Both are plain JSON. A missing output is
/// left out: that is not the same as the output `null`.
pub fn undo_json(input: Option<&Payload>, output: Option<&Payload>) -> Payload {
    let mut text = b"{\"input\":".to_vec();
    text.extend_from_slice(input.map_or(b"null".as_slice(), |input| input.bytes()));
    if let Some(output) = output {
        text.extend_from_slice(b",\"output\":");
        text.extend_from_slice(output.bytes());
    }
    text.push(b'}');
    Payload::from_json_text(text)
}

/// The policy of a compensation whose step has the default policy.
pub fn default_policy() -> Policy {
    Policy { retry: Retry::COMPENSATION, ..Policy::DEFAULT }
}

/// Whether a step that failed in this way was attempted. A queued step that was terminated may have been.
fn was_attempted(failure: &Failure) -> bool {
    failure.attempts > 0
        || matches!(failure.kind, FailureKind::MaybeAttempted | FailureKind::Unknown)
        || failure.is_termination()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(op: u64, input: CompensationInput) -> Event {
        Event::CompensationRegistered(Box::new(CompensationRegistered {
            op: OpNumber(op),
            step: format!("undo-{op}").into(),
            input,
            policy: None,
            queue: None,
            priority: None,
        }))
    }

    fn started(op: u64) -> Event {
        let input = Payload::from_json_text(op.to_string());
        Event::StepStarted {
            op: OpNumber(op),
            name: "step".into(),
            input,
            queued: None,
            is_once: false,
            is_transactional: false,
        }
    }

    fn failed(op: u64, failure: Failure) -> Event {
        Event::StepFailed { op: OpNumber(op), failure }
    }

    fn completed(op: u64) -> Event {
        Event::StepCompleted { op: OpNumber(op), output: Payload::null() }
    }

    fn undo(of: u64) -> CompensationInput {
        CompensationInput::Undo(OpNumber(of))
    }

    fn read(events: &[Event]) -> Compensations {
        let mut compensations = Compensations::default();
        events.iter().for_each(|event| compensations.read(event));
        compensations
    }

    /// The registrations in the order in which they would run, each of them completing.
    fn order(mut compensations: Compensations) -> Vec<u64> {
        let mut order = Vec::new();
        let mut op = 100;
        while let Some(next) = compensations.next().map(|next| next.op) {
            order.push(next.0);
            compensations.read(&Event::CompensationStarted { op: OpNumber(op), of: next, queued: None });
            assert!(compensations.has_unsettled());
            compensations.read(&completed(op));
            op += 1;
        }
        order
    }

    #[test]
    fn the_last_registered_runs_first() {
        let value = || CompensationInput::Value(Ok(Payload::null()));
        let events = [started(0), registered(1, undo(0)), registered(2, value()), completed(0)];
        assert_eq!(order(read(&events)), [2, 1]);
    }

    #[test]
    fn a_step_that_was_not_attempted_is_not_undone() {
        let step = |op: u64, end: Event| [started(op), registered(op + 1, undo(op)), end];
        let cancelled = Failure::cancelled("stop");
        let ends = [
            (completed(0), true),
            (failed(0, cancelled.clone()), false),
            (failed(0, cancelled.of_step("step", 2)), true),
            (failed(0, Failure::maybe_attempted("stop")), true),
            (failed(0, Failure::terminated("stop")), true),
            (failed(0, Failure::new(FailureKind::Limit, "too large")), false),
            (failed(0, Failure::new(FailureKind::Error, "no").of_step("step", 5)), true),
        ];
        for (end, is_undone) in ends {
            let due = order(read(&step(0, end.clone())));
            assert_eq!(due.len(), usize::from(is_undone), "{end:?}");
        }
        assert_eq!(order(read(&[registered(1, undo(0))])), [0; 0], "it was never requested");
        assert_eq!(order(read(&[started(0), registered(1, undo(0))])), [0; 0], "it has not ended");
    }

    #[test]
    fn a_transactional_step_is_undone_only_if_it_completed() {
        let input = Payload::null();
        let is_transactional = true;
        let started = Event::StepStarted {
            op: OpNumber(0),
            name: "debit".into(),
            input,
            queued: None,
            is_once: false,
            is_transactional,
        };
        let ends = [
            (completed(0), true),
            (failed(0, Failure::maybe_attempted("stop")), false),
            (failed(0, Failure::terminated("stop")), false),
            (failed(0, Failure::new(FailureKind::Error, "no").of_step("debit", 5)), false),
        ];
        for (end, is_undone) in ends {
            let due = order(read(&[started.clone(), registered(1, undo(0)), end.clone()]));
            assert_eq!(due.len(), usize::from(is_undone), "{end:?}");
        }
    }

    #[test]
    fn a_cancel_records_which_steps_may_have_been_attempted() {
        let cancel = |maybe_attempted| Event::CancelRequested {
            message: None,
            reason: "stop".into(),
            actor: None,
            pauses: Vec::new(),
            ends: vec![OpNumber(0)],
            maybe_attempted,
        };
        let events = |cancel| [started(0), registered(1, undo(0)), cancel];
        assert_eq!(order(read(&events(cancel(Vec::new())))), [0; 0]);
        assert_eq!(order(read(&events(cancel(vec![OpNumber(0)])))), [1]);
    }

    #[test]
    fn kept_and_settled_compensations_do_not_run() {
        let kept = Event::CompensationsKept { op: OpNumber(2), of: vec![OpNumber(1)] };
        assert_eq!(order(read(&[started(0), registered(1, undo(0)), completed(0), kept])), [0; 0]);
        let began = Event::CompensationStarted { op: OpNumber(2), of: OpNumber(1), queued: None };
        let events = [started(0), registered(1, undo(0)), completed(0), began];
        let mut compensations = read(&events);
        assert_eq!(compensations.next(), None);
        compensations.read(&failed(2, Failure::cancelled("dropped")));
        assert_eq!(order(compensations), [1], "a cancelled compensation runs again");
        let mut compensations = read(&events);
        compensations.read(&failed(2, Failure::new(FailureKind::Fatal, "closed")));
        assert_eq!(compensations.failed()[0].message, "closed");
        assert!(!compensations.has_unsettled());
        assert_eq!(order(compensations), [0; 0]);
    }
}
