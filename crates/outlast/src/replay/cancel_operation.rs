//! Operations that the workflow itself cancels.
//!
//! `operation_cancelled` records the decision. A timer or hook ends with it: a replay decides the same at the same
//! place. A step or child is only asked to stop, and how it ends is recorded when it does:
//!
//! * A step that is being attempted is told, and its real outcome is awaited. It is not attempted again.
//! * A step that nobody attempts fails in the same turn. Whether it is being attempted is not in the history, so this is
//!   an event of its own.
//! * A queued step or child receives a cancel, and reports its outcome.
//!
//! An operation that was not requested yet ends without an event.

use outlast_core::{CANCELLED_BY_WORKFLOW, Event, Failure, OpNumber, RunId, Stuck};

use super::machine::Machine;
use super::operation_table::{Op, OpKind, OperationTable, Phase};

impl OperationTable {
    /// Cancels an operation, unless it has ended or was cancelled before.
    pub(super) fn cancel_operation(&mut self, op: OpNumber) {
        self.request_if_copied(op);
        let Some(slot) = self.ops.get_mut(op).filter(|slot| !slot.is_cancelled) else { return };
        match slot.phase {
            Phase::Created => {
                slot.phase = Phase::Ended(Err(Failure::cancelled(CANCELLED_BY_WORKFLOW)));
                self.wakers.extend(slot.waker.take());
                return;
            }
            Phase::Open => slot.is_cancelled = true,
            Phase::Ended(_) => return,
        }
        let run = match &slot.kind {
            OpKind::Timer { .. } | OpKind::Hook { .. } => {
                self.cancelled(op);
                self.end(op, Err(Failure::cancelled(CANCELLED_BY_WORKFLOW)));
                return;
            }
            OpKind::Token(_) => return,
            OpKind::Child(child) => Some(child.run),
            OpKind::Step(step) => step.queued.as_ref().map(|queued| queued.run),
        };
        match run {
            Some(run) => self.cancel_by_workflow(op, run),
            None => {
                self.cancelled(op);
                self.cancelled_steps.push(op);
            }
        }
    }

    /// Cancels the run of a child or queued step.
    pub(super) fn cancel_by_workflow(&mut self, op: OpNumber, run: RunId) {
        self.cancelled(op);
        self.cancel_child(run, format!("its parent {} does not need it any more", self.run));
    }

    /// Whether the workflow has cancelled an operation.
    pub(super) fn is_cancelled(&self, op: OpNumber) -> bool {
        self.ops.get(op).is_some_and(|slot| slot.is_cancelled)
    }

    /// The failure of a cancelled step that nobody attempts. `None` if it has ended or is being attempted.
    fn cancelled_failure(&self, op: OpNumber) -> Option<Failure> {
        let Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. }) = self.ops.get(op) else {
            return None;
        };
        if step.attempting || step.queued.is_some() {
            return None;
        }
        let failure = if self.maybe_attempted.contains(&op) {
            Failure::maybe_attempted(CANCELLED_BY_WORKFLOW)
        } else {
            Failure::cancelled(CANCELLED_BY_WORKFLOW)
        };
        Some(failure.of_step(&*step.new.name, step.failed))
    }
}

impl Machine {
    /// Ends the cancelled steps that nobody attempts. Returns whether the run was polled.
    pub(super) fn fail_cancelled_steps(&mut self, events: &mut Vec<Event>) -> Result<bool, Stuck> {
        let cancelled = std::mem::take(&mut self.state.table.lock().cancelled_steps);
        let mut is_polled = false;
        for op in cancelled {
            if self.ended.is_some() {
                break;
            }
            let Some(failure) = self.state.table.lock().cancelled_failure(op) else { continue };
            let event = Event::StepFailed { op, failure };
            events.push(event.clone());
            self.apply(&event, events)?;
            is_polled = true;
        }
        Ok(is_polled)
    }

    /// Forgets the cancelled steps of recorded turns after a replay. Those whose cancel is not recorded yet fail when
    /// it is.
    pub(super) fn forget_recorded_cancels(&mut self) {
        let unrecorded: Vec<_> = self.unrecorded.iter().flat_map(|unrecorded| &unrecorded.events).collect();
        let is_unrecorded = |op: &OpNumber| {
            unrecorded
                .iter()
                .any(|event| matches!(event, Event::OperationCancelled { op: cancelled } if cancelled == op))
        };
        self.state.table.lock().cancelled_steps.retain(is_unrecorded);
    }
}
