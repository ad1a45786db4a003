//! The end of a run: the cancel of rules 1, the result of the workflow, and the children of a run that has ended.

use outlast_core::limits::{HISTORY_EVENTS_MAX, HISTORY_ROOM_EVENTS, HOOK_BUFFER_MAX};
use outlast_core::{Event, Failure, FailureKind, OpNumber, ParentEnd, Payload, Status, Stuck};

use super::machine::Machine;
use super::operation_table::{Op, OpKind, OperationTable, Phase};
use super::polling;
use super::state::wake_all;
use crate::error::Error;

impl Machine {
    /// Rules 1: ends the open waits with a cancelled error, in operation order, one per poll, and cancels the children.
    pub(super) fn cancel(
        &mut self,
        reason: &str,
        pauses: &[OpNumber],
        requested: &mut Vec<Event>,
    ) -> Result<(), Stuck> {
        let mut table = self.state.table.lock();
        if table.cancelled_at.is_some() {
            return Ok(());
        }
        table.cancelled_at = Some(table.next_op);
        let is_wait = |(op, slot): &(OpNumber, &Op)| {
            matches!(slot.phase, Phase::Open)
                && (!matches!(slot.kind, OpKind::Step(_)) || pauses.contains(op))
        };
        let waits: Vec<_> = table.ops.iter().filter(is_wait).map(|(op, _)| op).collect();
        let child_reason = format!("its parent {} was cancelled: {reason}", self.state.run());
        table.cancel_children(&child_reason, &[ParentEnd::Cancel, ParentEnd::Wait]);
        table.cancel_queued(reason);
        drop(table);
        let failure = |table: &OperationTable, op| {
            Some(Err(match table.ops.get(op).map(|slot| &slot.kind) {
                Some(OpKind::Step(step)) => Failure::cancelled(reason).of_step(&*step.new.name, step.failed),
                _ => Failure::cancelled(reason),
            }))
        };
        self.end_each(&waits, failure, requested)
    }

    /// Ends those of the operations that are open, one by one, and polls after each.
    pub(super) fn end_each(
        &mut self,
        ops: &[OpNumber],
        outcome: impl Fn(&OperationTable, OpNumber) -> Option<Result<Payload, Failure>>,
        requested: &mut Vec<Event>,
    ) -> Result<(), Stuck> {
        for &op in ops {
            let mut table = self.state.table.lock();
            let Some(outcome) = outcome(&table, op) else { continue };
            if !table.end(op, outcome) {
                continue;
            }
            self.state.waker.enter();
            wake_all(table);
            self.poll_until_pending(requested)?;
            if self.ended.is_some() || self.state.table.lock().has_diverged() {
                break;
            }
        }
        Ok(())
    }

    /// Handles the result of the workflow. A run with children that it must wait for ends when they have ended.
    pub(super) fn workflow_returned(&mut self, result: Result<Payload, Error>, requested: &mut Vec<Event>) {
        let result = match result {
            Err(error) => match self.retry_after_return(error, requested) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Ok(output) => Ok(output),
        };
        let has_unsettled = self.state.table.lock().has_unsettled_compensations();
        let result = match result {
            Err(error) if has_unsettled => return self.compensate_after_return(error, requested),
            result => result,
        };
        if !self.state.table.lock().has_awaited_children() {
            self.state.table.lock().take_final_decisions(requested);
            return self.finish(result, requested);
        }
        self.drop_returned_future();
        self.state.table.lock().take_decisions(requested);
        self.result = Some(result);
    }

    /// Drops the future of a workflow that has returned: the operations that it still holds are dropped like any
    /// others.
    pub(super) fn drop_returned_future(&mut self) {
        self.state.waker.enter();
        let state = self.state.clone();
        let _ = polling::workflow(&state, || self.drop_future());
        self.state.waker.leave();
        self.state.waker.take_woken();
    }

    /// Ends a run whose workflow has returned, unless it still waits for children. Returns whether the workflow has
    /// returned.
    pub(super) fn finish_if_returned(&mut self, requested: &mut Vec<Event>) -> bool {
        let Some(result) = self.result.take() else { return false };
        if self.state.table.lock().has_awaited_children() {
            self.result = Some(result);
        } else {
            self.finish(result, requested);
        }
        true
    }

    fn finish(&mut self, result: Result<Payload, Error>, requested: &mut Vec<Event>) {
        let event = match result {
            Ok(output) => Event::RunCompleted { output },
            Err(error) => final_event(self.status_of_error(), error.into_failure()),
        };
        self.end("has ended", event, requested);
    }

    /// The status of a run whose workflow returned an error.
    pub(super) fn status_of_error(&self) -> Status {
        if self.state.is_cancelled() { Status::Cancelled } else { Status::Failed }
    }

    pub(super) fn end(&mut self, how: &str, event: Event, requested: &mut Vec<Event>) {
        self.close(how, Status::of_final(&event));
        requested.push(event);
    }

    /// Ends the run without its code.
    pub(super) fn terminate(&mut self, how: &str) {
        self.result = None;
        if self.is_compensating() {
            // The table is closed to the workflow. The runs of queued compensations must be terminated.
            self.state.table.lock().is_closed = false;
        }
        self.close(&format!("was {how}"), Some(Status::Cancelled));
    }

    fn close(&mut self, how: &str, status: Option<Status>) {
        let child_reason = format!("its parent {} {how}", self.state.run());
        let mut table = self.state.table.lock();
        table.cancel_children(&child_reason, &[ParentEnd::Cancel, ParentEnd::Wait]);
        table.terminate_queued_runs(&child_reason);
        drop(table);
        self.ended = status;
        self.state.close();
    }

    /// Rules 1: fails a run that keeps too many payloads.
    pub(super) fn overflow(&mut self, name: &str, requested: &mut Vec<Event>) {
        let message = format!(
            "hook `{name}` was sent one more payload, but the run already keeps {HOOK_BUFFER_MAX} payloads, which is the \
             limit; send fewer, or take them in a loop"
        );
        self.fail(message, requested);
    }

    /// Ends a run whose history exceeds the limit even after it was cancelled for that reason.
    pub(crate) fn fail_at_history_limit(&mut self, requested: &mut Vec<Event>) {
        if self.result.is_some() || self.is_compensating() {
            // The workflow has returned; the run only waits for children or compensates.
            return;
        }
        let events = HISTORY_EVENTS_MAX + HISTORY_ROOM_EVENTS;
        let message = format!(
            "its history has {events} events, although the run was cancelled at {HISTORY_EVENTS_MAX}; \
             split the work into children"
        );
        self.fail(message, requested);
    }

    fn fail(&mut self, message: String, requested: &mut Vec<Event>) {
        self.result = None;
        let failure = Failure::new(FailureKind::Limit, message);
        if self.state.table.lock().has_unsettled_compensations() {
            requested.push(Event::RunCompensating {
                ends_as: Status::Failed,
                failure: failure.clone(),
                actor: None,
            });
            return self.begin_compensating(Status::Failed, failure);
        }
        self.end("has failed", Event::RunFailed { failure }, requested);
    }
}

/// The event with which a run ends that did not complete.
pub(super) fn final_event(status: Status, failure: Failure) -> Event {
    match status {
        Status::Cancelled => Event::RunCancelled { failure },
        _ => Event::RunFailed { failure },
    }
}
