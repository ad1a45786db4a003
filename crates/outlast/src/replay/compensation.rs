//! The end of a run with compensations.
//!
//! A run that is about to end other than completed, and that has registered compensations, records `run_compensating`.
//! That is the decision about its end: its future is dropped, cancels and the deadline have no effect any more, and
//! everything that follows depends on the history alone ([`Machine::restore`]).
//!
//! 1. Its attempts, queued steps and children are asked to stop. How each ends is recorded as usual. A step that nobody
//!    attempts fails in the same turn ([`Machine::settle`]).
//! 2. When all of them are over, the compensations run one after the other, the last registered first. Each is a step
//!    (`compensation_started`), and its attempts, retries and outcome are those of a step ([`Machine::advance`]).
//! 3. The run ends as `run_compensating` says.

use std::sync::Arc;

use outlast_core::{Event, Failure, Marks, OpNumber, ParentEnd, Status, Stuck, Timestamp, Wait};

use super::machine::Machine;
use super::operation_table::{Op, OpKind, OperationTable, Phase, StepOp};
use super::run_end::final_event;
use super::saga::compensating_step;
use super::strategy::NextTryAt;
use crate::error::Error;

/// How a run ends after its compensations.
#[derive(Debug)]
pub(super) struct PendingEnd {
    pub(super) ends_as: Status,
    pub(super) failure: Failure,
    /// Whether all compensations are over.
    pub(super) is_done: bool,
    /// Whether compensations were registered when the run decided.
    pub(super) compensates: bool,
    /// The next try of the workflow, if the run does not end but begins again.
    pub(super) retry: Option<NextTryAt>,
}

/// The reason of steps that end because their run compensates.
const RUN_ENDS: &str = "its run ends and compensates";

impl Machine {
    /// Whether the run has stopped running workflow code, and compensates.
    pub(crate) fn is_compensating(&self) -> bool {
        self.compensating.is_some()
    }

    /// Whether an open step is a compensation.
    pub(crate) fn is_compensation(&self, op: OpNumber) -> bool {
        let table = self.state.table.lock();
        table.compensations.is_some()
            && matches!(table.ops.get(op).map(|slot| &slot.kind), Some(OpKind::Step(step)) if step.compensates.is_some())
    }

    /// The workflow of the run and its version.
    pub(crate) fn workflow(&self) -> (std::sync::Arc<str>, u32) {
        (self.state.workflow().into(), self.state.version())
    }

    /// Ends a run without its code whose compensations must run first.
    pub(crate) fn end_compensating(
        &mut self,
        failure: Failure,
        actor: Option<Arc<str>>,
        events: &mut Vec<Event>,
    ) {
        if self.is_compensating() || self.ended.is_some() {
            return;
        }
        let ends_as = Status::Cancelled;
        events.push(Event::RunCompensating { ends_as, failure: failure.clone(), actor });
        self.begin_compensating(ends_as, failure);
    }

    /// Begins to compensate, because the workflow returned an error.
    pub(super) fn compensate_after_return(&mut self, error: Error, requested: &mut Vec<Event>) {
        self.drop_returned_future();
        self.state.table.lock().take_decisions_before_compensating(requested);
        let (ends_as, failure) = (self.status_of_error(), error.into_failure());
        requested.push(Event::RunCompensating { ends_as, failure: failure.clone(), actor: None });
        self.begin_compensating(ends_as, failure);
    }

    /// Begins to compensate: from now on no workflow code runs.
    pub(super) fn begin_compensating(&mut self, ends_as: Status, failure: Failure) {
        self.begin_ending(PendingEnd { ends_as, failure, is_done: false, compensates: true, retry: None });
    }

    /// Drops the future, and asks everything that the run has begun to stop.
    pub(super) fn begin_ending(&mut self, end: PendingEnd) {
        // Nothing that the future does while it is dropped counts: the history has its open operations.
        self.state.close();
        self.drop_future();
        self.result = None;
        let how = if end.retry.is_some() { "begins again" } else { "ends and compensates" };
        let reason = format!("its parent {} {how}", self.state.run());
        let mut table = self.state.table.lock();
        table.is_closed = false;
        // The history alone decides about the numbers of compensations.
        table.next_op = table.numbered;
        table.end_before_compensating(&reason);
        table.is_closed = true;
        let discarded = std::mem::take(&mut table.discarded);
        drop(table);
        drop(discarded);
        self.compensating = Some(Box::new(end));
    }

    /// Whether steps that nobody attempts must be recorded as ended.
    pub(crate) fn must_settle(&self) -> bool {
        let is_running = self.is_compensating() && self.ended.is_none();
        is_running && self.state.table.lock().unattempted_steps().next().is_some()
    }

    /// Records the end of the run's own steps that nobody attempts.
    pub(crate) fn settle(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        if !self.is_compensating() || self.ended.is_some() {
            return Ok(());
        }
        let table = self.state.table.lock();
        let failure = |(op, step): (OpNumber, &StepOp)| {
            let failure = if table.maybe_attempted.contains(&op) {
                Failure::maybe_attempted(RUN_ENDS)
            } else {
                Failure::cancelled(RUN_ENDS)
            };
            (op, failure.of_step(&*step.new.name, step.failed))
        };
        let unattempted: Vec<_> = table.unattempted_steps().map(failure).collect();
        drop(table);
        for (op, failure) in unattempted {
            let event = Event::StepFailed { op, failure };
            events.push(event.clone());
            self.apply(&event, events)?;
        }
        Ok(())
    }

    /// Whether the next compensation can begin, or the run can end or begin again: everything that the run has begun is
    /// over. The machine does not know the attempts at steps that the workflow has dropped.
    pub(crate) fn can_advance(&self, are_attempts_over: bool, now: Timestamp) -> bool {
        let is_running = self.is_compensating() && self.ended.is_none();
        let is_over = self.state.table.lock().is_over();
        is_running && are_attempts_over && is_over && self.retry_due().is_none_or(|retry_at| retry_at <= now)
    }

    /// Begins the next compensation. If there is none, ends the run, or begins it again.
    pub(crate) fn advance(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        let table = self.state.table.lock();
        let next = table.compensations.as_ref().and_then(|ledger| ledger.compensations.next().cloned());
        drop(table);
        let Some(next) = next else {
            if let Some(retry) = self.pending_retry() {
                return self.begin_next_try(retry, events);
            }
            self.finish_compensating(events);
            return Ok(());
        };
        let input = self.state.compensation_input(&next).map_err(|stuck| *stuck)?;
        let mut table = self.state.table.lock();
        let op = OpNumber(table.next_op);
        table.next_op += 1;
        table.insert_without_handle(op, compensating_step(&next, Some(input)));
        events.extend(table.request(op));
        Ok(())
    }

    /// The step of the next compensation.
    pub(crate) fn next_compensation(&self) -> Option<std::sync::Arc<str>> {
        let table = self.state.table.lock();
        table.compensations.as_ref()?.compensations.next().map(|next| next.step.clone())
    }

    fn finish_compensating(&mut self, events: &mut Vec<Event>) {
        let Some(compensating) = &mut self.compensating else { return };
        compensating.is_done = true;
        let (ends_as, failure) = (compensating.ends_as, compensating.failure.clone());
        let failed = self.state.table.lock().failed_compensations();
        self.end("has ended", final_event(ends_as, failure.with_failed_compensations(failed)), events);
    }

    /// The marks of the run as far as compensations decide them. A run that begins again has none: it does not end, and can
    /// be paused.
    pub(super) fn marks(&self) -> Marks {
        let is_marked = |pending: &&PendingEnd| pending.compensates && pending.retry.is_none();
        let Some(compensating) = self.compensating.as_deref().filter(is_marked) else {
            return Marks::NONE;
        };
        if self.ended.is_none() {
            return Marks::COMPENSATING;
        }
        let has_failed = !self.state.table.lock().failed_compensations().is_empty();
        if compensating.is_done && !has_failed { Marks::COMPENSATED } else { Marks::NONE }
    }
}

impl OperationTable {
    /// Ends everything but the steps of a run that begins to compensate, and asks its steps and children to stop.
    fn end_before_compensating(&mut self, reason: &str) {
        let is_step = |slot: &Op| matches!((&slot.phase, &slot.kind), (Phase::Open, OpKind::Step(_)));
        let others: Vec<_> = self.ops.iter().filter(|(_, slot)| !is_step(slot)).map(|(op, _)| op).collect();
        for op in others {
            if self.is_open(op) {
                self.remove_from_indexes(op);
            }
            self.discarded.extend(self.ops.remove(op));
        }
        for slot in self.ops.iter_mut() {
            let OpKind::Step(step) = &slot.kind else { continue };
            let is_compensation = step.compensates.is_some();
            slot.is_dropped = true;
            slot.waker = None;
            (slot.is_shielded, slot.is_cancelled) = (is_compensation, !is_compensation);
        }
        let compensations: Vec<_> =
            self.startable.iter().copied().filter(|op| self.is_compensation(*op)).collect();
        self.startable = compensations;
        self.invalid_requests.clear();
        self.cancelled_steps.clear();
        self.children.retain(|_, child| child.on_parent_end != ParentEnd::Abandon);
        let stopped = self.children.iter().filter(|(op, _)| !self.is_compensation(**op));
        let stopped: Vec<_> = stopped.map(|(_, child)| child.run).collect();
        stopped.into_iter().for_each(|run| self.cancel_child(run, reason.into()));
    }

    fn is_compensation(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { kind: OpKind::Step(step), .. }) if step.compensates.is_some())
    }

    /// The open steps of a run that compensates which nobody attempts, except compensations.
    fn unattempted_steps(&self) -> impl Iterator<Item = (OpNumber, &StepOp)> {
        self.ops.iter().filter_map(|(op, slot)| match &slot.kind {
            OpKind::Step(step) if step.compensates.is_none() && !step.attempting && step.queued.is_none() => {
                Some((op, &**step))
            }
            _ => None,
        })
    }

    /// Whether no steps and children are left.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0 && self.children.is_empty()
    }

    /// Inserts a step that no handle awaits.
    pub(super) fn insert_without_handle(&mut self, op: OpNumber, step: StepOp) {
        let slot = Op {
            phase: Phase::Created,
            kind: OpKind::Step(Box::new(step)),
            is_requested: false,
            is_shielded: true,
            is_cancelled: false,
            is_dropped: true,
            location: std::panic::Location::caller(),
            waker: None,
        };
        self.ops.insert(op, slot);
    }

    fn failed_compensations(&self) -> Vec<outlast_core::FailedCompensation> {
        self.compensations.as_ref().map_or_else(Vec::new, |ledger| ledger.compensations.failed())
    }

    /// The waits of a run that compensates: its steps, and the children that must end first.
    pub(super) fn waits_of_compensations(&self) -> Vec<Wait> {
        let children = self.children.iter().filter(|(_, child)| !child.is_step);
        let children = children.map(|(op, child)| Wait::Child {
            op: op.0,
            workflow: child.workflow.to_string(),
            run: child.run,
            until: None,
        });
        self.waits().into_iter().chain(children).take(outlast_core::limits::WAITS_SHOWN_MAX).collect()
    }
}
