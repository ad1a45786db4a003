//! How a run ends, and what it owes others then: its children, and those it does not outlive.

use outlast_core::limits::{HISTORY_EVENTS_MAX, HISTORY_ROOM_EVENTS, HOOK_BUFFER_MAX};
use outlast_core::{Event, Failure, FailureKind, OpNumber, ParentEnd, Payload, Status, Stuck};

use super::cell::{Cell, Op, OpKind, Phase};
use super::machine::Machine;
use super::polling;
use super::state::wake_all;
use crate::error::Error;

impl Machine {
    /// Rules 1: ends the waits that are open now with a cancelled error, in operation order, one per poll, and
    /// passes the word on to the children.
    pub(super) fn cancel(
        &mut self,
        reason: &str,
        pauses: &[OpNumber],
        asked: &mut Vec<Event>,
    ) -> Result<(), Stuck> {
        let mut cell = self.state.cell.lock();
        if cell.cancelled_at.is_some() {
            return Ok(());
        }
        cell.cancelled_at = Some(cell.next_op);
        let is_wait = |(op, slot): &(OpNumber, &Op)| {
            matches!(slot.phase, Phase::Open)
                && (!matches!(slot.kind, OpKind::Step(_)) || pauses.contains(op))
        };
        let waits: Vec<_> = cell.ops.iter().filter(is_wait).map(|(op, _)| op).collect();
        let word = format!("its parent {} was cancelled: {reason}", self.state.run());
        cell.cancel_children(&word, &[ParentEnd::Cancel, ParentEnd::Wait]);
        cell.cancel_queued(reason);
        drop(cell);
        let failure = |cell: &Cell, op| {
            Some(Err(match cell.ops.get(op).map(|slot| &slot.kind) {
                Some(OpKind::Step(step)) => Failure::cancelled(reason).of_step(&*step.new.name, step.failed),
                _ => Failure::cancelled(reason),
            }))
        };
        self.end_each(&waits, failure, asked)
    }

    /// Ends operations one by one, as long as they are open, and polls after each.
    pub(super) fn end_each(
        &mut self,
        ops: &[OpNumber],
        outcome: impl Fn(&Cell, OpNumber) -> Option<Result<Payload, Failure>>,
        asked: &mut Vec<Event>,
    ) -> Result<(), Stuck> {
        for &op in ops {
            let mut cell = self.state.cell.lock();
            let Some(outcome) = outcome(&cell, op) else { continue };
            if !cell.end(op, outcome) {
                continue;
            }
            self.state.waker.enter();
            wake_all(cell);
            self.settle(asked)?;
            if self.ended.is_some() || self.state.cell.lock().is_astray() {
                break;
            }
        }
        Ok(())
    }

    /// The workflow has returned. A run with children that it waits for lingers until they have ended.
    pub(super) fn returned(&mut self, result: Result<Payload, Error>, asked: &mut Vec<Event>) {
        if !self.state.cell.lock().has_awaited_children() {
            self.state.cell.lock().take_last_decisions(asked);
            return self.finish(result, asked);
        }
        // What it still held is dropped now, which is a drop like any other.
        self.state.waker.enter();
        let state = self.state.clone();
        let _ = polling::workflow(&state, || self.let_go_of_future());
        self.state.waker.leave();
        self.state.waker.take_woken();
        self.state.cell.lock().take_decisions(asked);
        self.result = Some(result);
    }

    /// Whether the workflow has returned; ends the run if nothing keeps it.
    pub(super) fn is_lingering(&mut self, asked: &mut Vec<Event>) -> bool {
        let Some(result) = self.result.take() else { return false };
        if self.state.cell.lock().has_awaited_children() {
            self.result = Some(result);
        } else {
            self.finish(result, asked);
        }
        true
    }

    fn finish(&mut self, result: Result<Payload, Error>, asked: &mut Vec<Event>) {
        let is_cancelled = self.state.is_cancelled();
        let event = match result {
            Ok(output) => Event::RunCompleted { output },
            Err(error) if is_cancelled => Event::RunCancelled { failure: error.into_failure() },
            Err(error) => Event::RunFailed { failure: error.into_failure() },
        };
        self.end("has ended", event, asked);
    }

    fn end(&mut self, how: &str, event: Event, asked: &mut Vec<Event>) {
        self.close(how, Status::of_final(&event));
        asked.push(event);
    }

    /// The run was ended without its code.
    pub(super) fn terminate(&mut self, how: &str) {
        self.result = None;
        self.close(&format!("was {how}"), Some(Status::Cancelled));
    }

    fn close(&mut self, how: &str, status: Option<Status>) {
        let word = format!("its parent {} {how}", self.state.run());
        let mut cell = self.state.cell.lock();
        cell.cancel_children(&word, &[ParentEnd::Cancel, ParentEnd::Wait]);
        cell.withdraw_queued(&word);
        drop(cell);
        self.ended = status;
        self.state.make_inert();
    }

    pub(super) fn overflow(&mut self, name: &str, asked: &mut Vec<Event>) {
        let message = format!(
            "hook `{name}` was sent one more payload, and the run keeps {HOOK_BUFFER_MAX} that it did not ask \
             for, which is the limit; send fewer, or take them in a loop"
        );
        self.fail(message, asked);
    }

    /// Ends a run whose history is too long, though it was told to stop before.
    pub(crate) fn outgrow(&mut self, asked: &mut Vec<Event>) {
        if self.result.is_some() {
            // It has returned, and only waits for children.
            return;
        }
        let events = HISTORY_EVENTS_MAX + HISTORY_ROOM_EVENTS;
        let message = format!(
            "its history has {events} events, and it was told to stop at {HISTORY_EVENTS_MAX}; \
             let children do parts of the work"
        );
        self.fail(message, asked);
    }

    fn fail(&mut self, message: String, asked: &mut Vec<Event>) {
        self.result = None;
        let failure = Failure::new(FailureKind::Limit, message);
        self.end("has failed", Event::RunFailed { failure }, asked);
    }
}
