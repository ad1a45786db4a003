//! Compensations while the workflow runs: their registration, sagas, and steps that the workflow drops.
//!
//! A step with a compensation may have its effect after the workflow has stopped waiting for it: `try_join!` drops the
//! other branches when one fails. The compensation must not run before that. So while a run has compensations that are
//! not settled, a step that the workflow drops is cancelled instead: it is asked to stop, it stays in the table without
//! a handle, and its end is recorded ([`OperationTable::keep_dropped_step`]). A saga waits for such steps before it
//! compensates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Waker};

use outlast_core::compensation::{default_policy, undo_json};
use outlast_core::limits::COMPENSATIONS_MAX;
use outlast_core::{
    Compensation, CompensationInput, CompensationRegistered, CompensationState, Compensations, Event,
    FailedCompensation, Failure, FailureKind, OpNumber, Payload, PayloadError, Policy, Retry, RunForked,
    UndoneStep,
};
use serde::Serialize;

use super::cancel::REFUSED;
use super::handle::OpHandle;
use super::misuse::OUTSIDE_TURN;
use super::names::name_problem;
use super::operation_table::{Op, OpKind, OperationTable, Phase, StepOp};
use super::state::{NewStep, OUTSIDE_TURN_PANIC, RunState};
use crate::error::{Error, stuck_on_unreadable};

/// A saga of a run: the scope in which compensations are registered. The default is the run itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saga(usize);

/// The registered compensations of a run.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) compensations: Compensations,
    /// The saga in which each was registered.
    sagas: BTreeMap<OpNumber, Saga>,
    /// The saga around each saga but the run.
    outer_sagas: Vec<Saga>,
    /// Sagas that wait for dropped steps.
    wakers: Vec<Waker>,
}

impl Ledger {
    /// Whether a compensation was registered in a saga, or in one inside of it.
    fn is_within(&self, op: OpNumber, saga: Saga) -> bool {
        let mut at = self.sagas.get(&op).copied().unwrap_or_default();
        while at != saga && at.0 > 0 {
            at = self.outer_sagas[at.0 - 1];
        }
        at == saga
    }

    /// The number of sagas that have begun.
    pub(super) fn sagas_count(&self) -> usize {
        self.outer_sagas.len()
    }

    /// Removes what was registered and settled after an operation, and the sagas after the first `sagas`.
    pub(super) fn forget_settled_since(&mut self, after: OpNumber, sagas: usize) {
        self.compensations.forget_settled_since(after);
        self.sagas.retain(|op, _| self.compensations.get(*op).is_some());
        self.outer_sagas.truncate(sagas);
    }

    fn of_saga(&self, saga: Saga) -> impl DoubleEndedIterator<Item = &Compensation> {
        self.compensations.iter().filter(move |entry| self.is_within(entry.op, saga))
    }
}

impl OperationTable {
    /// Applies an event to the registered compensations.
    pub(super) fn note_event(&mut self, event: &Event) {
        if let Some(ledger) = &mut self.compensations {
            ledger.compensations.read(event);
        }
    }

    /// Forgets the compensations of copied operations.
    pub(super) fn forget_copied_compensations(&mut self, forked: &RunForked) {
        let Some(ledger) = &mut self.compensations else { return };
        ledger.compensations.read(&Event::RunForked(Box::new(forked.clone())));
        ledger.sagas.retain(|op, _| ledger.compensations.get(*op).is_some());
    }

    /// Whether compensations are registered that have neither run nor been kept.
    pub(super) fn has_unsettled_compensations(&self) -> bool {
        self.compensations.as_ref().is_some_and(|ledger| ledger.compensations.has_unsettled())
    }

    /// Keeps an open step that the workflow drops, if compensations are registered: it is cancelled, and its end is
    /// awaited. Returns whether the step is kept.
    pub(super) fn keep_dropped_step(&mut self, op: OpNumber) -> bool {
        let is_open_step =
            matches!(self.ops.get(op), Some(Op { phase: Phase::Open, kind: OpKind::Step(_), .. }));
        if !is_open_step || !self.has_unsettled_compensations() {
            return false;
        }
        self.cancel_operation(op);
        if let Some(slot) = self.ops.get_mut(op) {
            slot.is_dropped = true;
            slot.waker = None;
        }
        true
    }

    /// Removes a dropped operation that has ended: nobody takes its outcome.
    pub(super) fn discard_if_dropped(&mut self, op: OpNumber) {
        if !self.ops.get(op).is_some_and(|slot| slot.is_dropped) {
            return;
        }
        self.discarded.extend(self.ops.remove(op));
        if let Some(ledger) = &mut self.compensations {
            self.wakers.append(&mut ledger.wakers);
        }
    }

    fn ledger(&mut self) -> &mut Ledger {
        self.compensations.get_or_insert_default()
    }

    /// Records a registration under the next number, and returns its input. A replay uses the recorded one.
    fn register(&mut self, new: NewCompensation, input: CompensationInput, saga: Saga) -> CompensationInput {
        let op = OpNumber(self.next_op);
        self.next_op += 1;
        let recorded = self.history.as_ref().and_then(|history| history.registration(op, &new.step));
        let registered = recorded.cloned().unwrap_or_else(|| new.registered(op, input));
        let input = registered.input.clone();
        let event = Event::CompensationRegistered(Box::new(registered));
        let ledger = self.ledger();
        ledger.compensations.read(&event);
        ledger.sagas.insert(op, saga);
        self.recorded(event);
        input
    }

    /// The failure of a registration past the limit.
    fn too_many_compensations(&self) -> Option<Failure> {
        let unsettled = self.compensations.as_ref().map_or(0, |ledger| ledger.compensations.unsettled());
        (unsettled >= COMPENSATIONS_MAX).then(|| {
            let message = format!(
                "the run has {COMPENSATIONS_MAX} compensations registered, which is the limit; call `ctx.keep()` \
                 when they are not needed any more, or let children do parts of the work"
            );
            Failure::new(FailureKind::Limit, message)
        })
    }

    /// Whether a saga has steps that the workflow has dropped and that have not ended.
    fn awaits_dropped_steps(&self, saga: Saga) -> bool {
        let Some(ledger) = &self.compensations else { return false };
        let is_dropped = |op: OpNumber| self.ops.get(op).is_some_and(|slot| slot.is_dropped);
        ledger.of_saga(saga).any(|entry| {
            let running = match entry.state {
                CompensationState::Started(op) => Some(op),
                _ => None,
            };
            let undone = entry.undone.as_ref().map(|step| step.op);
            running.into_iter().chain(undone).any(is_dropped)
        })
    }
}

/// A compensation that is about to be registered: its step.
pub(crate) struct NewCompensation {
    pub(crate) step: Arc<str>,
    pub(crate) policy: Policy,
}

impl NewCompensation {
    fn registered(self, op: OpNumber, input: CompensationInput) -> CompensationRegistered {
        let Self { step, mut policy } = self;
        let (queue, priority) = (policy.queue.take().map(Into::into), policy.priority.take());
        // A worker applies its own limits and threads.
        (policy.limit, policy.is_blocking) = (None, false);
        if policy.retry == Retry::DEFAULT {
            policy.retry = Retry::COMPENSATION;
        }
        let policy = (policy != default_policy()).then(|| Box::new(policy));
        CompensationRegistered { op, step, input, policy, queue, priority }
    }
}

impl RunState {
    /// Registers a compensation for a step that was created and not requested yet.
    pub(crate) fn register_undo(&self, op: OpNumber, new: NewCompensation, saga: Saga) {
        if op == OUTSIDE_TURN || self.is_outside_turn(|| format!("it registered `{}`", new.step)) {
            return;
        }
        if op == REFUSED || self.table.lock().is_closed {
            return;
        }
        let problem = name_problem("step", &new.step);
        if let Some(problem) = problem.or_else(|| self.table.lock().too_many_compensations()) {
            return self.fail_before_request(op, problem);
        }
        self.assert_not_requested(op);
        self.table.lock().register(new, CompensationInput::Undo(op), saga);
    }

    /// Registers a compensation with an input of its own.
    pub(crate) fn register_compensation<I: Serialize>(
        &self,
        new: NewCompensation,
        input: &I,
        saga: Saga,
    ) -> Result<(), Error> {
        if self.is_outside_turn(|| format!("it registered compensation `{}`", new.step)) {
            return Err(Error::invalid(OUTSIDE_TURN_PANIC));
        }
        let table = self.table.lock();
        if table.is_closed {
            return Ok(());
        }
        if let Some(problem) = name_problem("step", &new.step).or_else(|| table.too_many_compensations()) {
            return Err(Error::of_failure(problem));
        }
        let op = OpNumber(table.next_op);
        let is_recorded =
            table.history.as_ref().is_some_and(|history| history.registration(op, &new.step).is_some());
        // Serialize outside the lock: this runs code of the user, which may use the context.
        drop(table);
        let input = if is_recorded { Ok(Payload::null()) } else { self.encode(input) };
        let registered = self.table.lock().register(new, CompensationInput::Value(input), saga);
        match registered {
            CompensationInput::Value(Err(failure)) => Err(Error::of_failure(failure)),
            _ => Ok(()),
        }
    }

    /// Settles the compensations that were registered in a saga so far: they do not run.
    pub(crate) fn keep(&self, saga: Saga) {
        if self.is_outside_turn(|| "it called `keep`".to_owned()) {
            panic!("{OUTSIDE_TURN_PANIC}");
        }
        let mut table = self.table.lock();
        if table.is_closed {
            return;
        }
        let op = OpNumber(table.next_op);
        table.next_op += 1;
        let ledger = table.ledger();
        let registered = ledger.of_saga(saga).filter(|entry| entry.state == CompensationState::Registered);
        let of = registered.map(|entry| entry.op).collect();
        let event = Event::CompensationsKept { op, of };
        ledger.compensations.read(&event);
        table.recorded(event);
    }

    /// Begins a saga inside of another one.
    pub(crate) fn begin_saga(&self, outer: Saga) -> Saga {
        if self.is_outside_turn(|| "it began a saga".to_owned()) {
            return outer;
        }
        let mut table = self.table.lock();
        let ledger = table.ledger();
        ledger.outer_sagas.push(outer);
        Saga(ledger.outer_sagas.len())
    }

    /// Completes when the steps of a saga that the workflow has dropped have ended.
    pub(crate) fn poll_settled(&self, saga: Saga, waker: &Waker) -> Poll<()> {
        if self.is_outside_turn(|| "it awaited a saga".to_owned()) {
            return Poll::Pending;
        }
        let mut table = self.table.lock();
        if table.is_closed {
            return Poll::Pending;
        }
        if !table.awaits_dropped_steps(saga) {
            return Poll::Ready(());
        }
        table.ledger().wakers.push(waker.clone());
        Poll::Pending
    }

    /// Requests the next compensation of a saga that has failed: of those that are needed, the one that was registered
    /// last. Returns its registration and its operation.
    #[track_caller]
    pub(crate) fn compensate_next(self: &Arc<Self>, saga: Saga) -> Option<(Compensation, OpHandle)> {
        if self.is_outside_turn(|| "it compensated a saga".to_owned()) {
            return None;
        }
        let table = self.table.lock();
        let ledger = table.compensations.as_ref().filter(|_| !table.is_closed)?;
        // What a fork has copied is undone by the other run.
        let is_copied =
            |entry: &Compensation| table.at_fork.as_ref().is_some_and(|fork| entry.op < fork.next_op);
        let next = ledger.of_saga(saga).rev().find(|entry| entry.is_due() && !is_copied(entry))?.clone();
        drop(table);
        let input = self.compensation_input(&next).map_err(|stuck| self.set_unreadable(*stuck)).ok();
        let step = compensating_step(&next, input);
        let op = self.table.lock().create(OpKind::Step(Box::new(step)), None, true);
        Some((next, OpHandle::new(self.clone(), op)))
    }

    /// The input of a compensation.
    pub(super) fn compensation_input(
        &self,
        compensation: &Compensation,
    ) -> Result<Payload, Box<outlast_core::Stuck>> {
        let Some(undone) = &compensation.undone else { return Ok(compensation.plain_input()) };
        self.undo_input(undone).map_err(|error| {
            let problem = error.cannot_be_read();
            let message = format!(
                "the recorded input or output of operation {}, which is undone, {problem}",
                undone.op
            );
            Box::new(stuck_on_unreadable(error.is_coded(), message))
        })
    }

    /// The input and output of a step as the input of the step that undoes it: the stored form of `Undo`.
    fn undo_input(&self, undone: &UndoneStep) -> Result<Payload, PayloadError> {
        let codec = self.codec();
        let decode = |stored: &Option<Payload>| stored.clone().map(|stored| codec.decode(stored)).transpose();
        let (input, output) = (decode(&undone.input)?, decode(&undone.output)?);
        codec.encode(undo_json(input.as_ref(), output.as_ref()))
    }
}

/// The step that carries out a compensation.
pub(super) fn compensating_step(compensation: &Compensation, input: Option<Payload>) -> StepOp {
    let Compensation { op, step, policy, queue, priority, .. } = compensation;
    let mut policy = *policy;
    policy.priority = *priority;
    let new = NewStep { name: step.clone(), was: &[], policy, call: None, queue: queue.clone() };
    StepOp { compensates: Some(*op), ..StepOp::new(new, input.map(Ok)) }
}

/// The failed compensation of a saga.
pub(crate) fn failed_compensation(compensation: &Compensation, failure: &Failure) -> FailedCompensation {
    FailedCompensation::new(compensation.op.0, &*compensation.step, failure)
}
