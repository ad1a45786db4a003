//! Deliveries: what a run is told, one thing at a time, live and in replay.

use outlast_core::{
    Event, Failure, FailureKind, MessageId, OpNumber, Outcome, Payload, RunId, Stuck, Timestamp,
};

use super::cell::OpKind;
use super::hooks::{Reception, SentPayload};
use super::machine::Machine;
use super::state::wake_all;

/// Something to tell a run, as the worker knows it.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// A payload for a hook.
    Hook(SentPayload),
    /// Someone asked the run to stop, or its deadline did.
    Cancel { message: Option<MessageId>, reason: String, at: Timestamp },
    /// The run ends now.
    Terminate { reason: String },
    /// Sleeps end early: one, or all that were open at a moment.
    Wake { message: MessageId, op: Option<OpNumber>, at: Timestamp },
    /// A step is over.
    StepEnded { op: OpNumber, outcome: Result<Payload, Failure> },
    /// An attempt failed, and another one is due later.
    StepRetried {
        op: OpNumber,
        attempt: u32,
        failure: Failure,
        retry_at: Timestamp,
        details: Option<Payload>,
    },
    /// A timer, or the timeout of a hook or child, is due.
    Timer { op: OpNumber },
    /// A child has ended.
    ChildEnded { op: OpNumber, outcome: Outcome },
    /// A child that nobody awaits is there.
    ChildDetached { op: OpNumber, run: RunId },
    /// The world refused what an operation asked for.
    Refused { op: OpNumber, failure: Failure },
}

impl Delivery {
    /// The event that tells how an attempt ended; `None` when this is about something else.
    pub(crate) fn outcome(&self) -> Option<Event> {
        Some(match self {
            Self::StepEnded { op, outcome: Ok(output) } => {
                Event::StepCompleted { op: *op, output: output.clone() }
            }
            Self::StepEnded { op, outcome: Err(failure) } => {
                Event::StepFailed { op: *op, failure: failure.clone() }
            }
            Self::StepRetried { op, attempt, failure, retry_at, details } => Event::StepRetried {
                op: *op,
                attempt: *attempt,
                failure: failure.clone(),
                retry_at: *retry_at,
                details: details.clone(),
            },
            _ => return None,
        })
    }
}

impl Machine {
    /// The event that a delivery becomes; `None` when the operation it is for is not open any more.
    pub(super) fn event_of(&self, delivery: Delivery) -> Result<Option<Event>, Stuck> {
        match delivery {
            Delivery::Hook(sent) => self.received(sent).map(Some),
            other => Ok(self.event_of_other(other)),
        }
    }

    /// The event of a delivery that is not a payload.
    fn event_of_other(&self, delivery: Delivery) -> Option<Event> {
        let cell = self.state.cell.lock();
        Some(match delivery {
            // Told once: what follows changes nothing, and leaves no event.
            Delivery::Cancel { .. } if cell.cancelled_at.is_some() => return None,
            Delivery::Cancel { message, reason, .. } if cell.rules >= 2 => {
                let (ends, maybe_attempted) = cell.ended_by_cancel();
                Event::CancelRequested { message, reason, pauses: Vec::new(), ends, maybe_attempted }
            }
            Delivery::Cancel { message, reason, at } => {
                let (ends, maybe_attempted) = (Vec::new(), Vec::new());
                Event::CancelRequested { message, reason, pauses: cell.pauses(at), ends, maybe_attempted }
            }
            Delivery::Terminate { reason } => Event::RunTerminated { failure: terminated(&reason) },
            Delivery::Wake { message, op, at } => {
                let ops = cell.open_timers(op, at);
                if ops.is_empty() {
                    return None;
                }
                Event::TimerWoken { message, ops }
            }
            Delivery::StepEnded { op, outcome } if cell.is_open(op) => match outcome {
                Ok(output) => Event::StepCompleted { op, output },
                Err(failure) => Event::StepFailed { op, failure },
            },
            // It was to be attempted again when it failed, and the run was cancelled since.
            Delivery::StepRetried { op, failure, .. } if cell.is_open(op) && cell.is_last_attempt(op) => {
                Event::StepFailed { op, failure }
            }
            Delivery::StepRetried { op, attempt, failure, retry_at, details } if cell.is_open(op) => {
                Event::StepRetried { op, attempt, failure, retry_at, details }
            }
            Delivery::Timer { op } if cell.is_open(op) => Event::TimerFired { op },
            Delivery::ChildEnded { op, outcome } if cell.is_queued(op) => match outcome {
                Outcome::Completed(output) => Event::StepCompleted { op, output },
                Outcome::Failed(failure) | Outcome::Cancelled(failure) => cell.queued_failed(op, failure),
            },
            Delivery::Refused { op, failure } if cell.is_queued(op) => cell.queued_failed(op, failure),
            Delivery::ChildEnded { op, outcome } if cell.has_child(op) => match outcome {
                Outcome::Completed(output) => Event::ChildCompleted { op, output },
                Outcome::Failed(failure) => Event::ChildFailed { op, failure },
                Outcome::Cancelled(failure) => Event::ChildCancelled { op, failure },
            },
            Delivery::ChildDetached { op, run } if cell.is_open(op) => Event::ChildDetached { op, run },
            Delivery::Refused { op, failure } if cell.has_child(op) || cell.is_open(op) => {
                Event::ChildFailed { op, failure }
            }
            _ => return None,
        })
    }

    /// Applies one delivery and polls. The only place where a run learns anything, live or in replay.
    pub(super) fn apply(&mut self, event: &Event, asked: &mut Vec<Event>) -> Result<(), Stuck> {
        let mut cell = self.state.cell.lock();
        cell.settle_wishes();
        let known = match event {
            Event::StepCompleted { op, output } => cell.is_step(*op) && cell.end(*op, Ok(output.clone())),
            Event::StepFailed { op, failure } => cell.is_step(*op) && cell.end(*op, Err(failure.clone())),
            Event::TimerFired { op } => cell.fire(*op),
            Event::StepRetried { op, attempt, retry_at, details, .. } => {
                let known = cell.pause(*op, *attempt, *retry_at, details.as_ref());
                drop(cell);
                return if known { Ok(()) } else { Err(self.diverged(Some(event), None)) };
            }
            // The workflow has returned: nobody will take it.
            Event::HookReceived { .. } if self.result.is_some() => true,
            Event::HookReceived { name, message, payload, headers, at, judgement } => {
                let arrival = (*message, headers.clone(), *at);
                match cell.receive(name, arrival, payload.clone(), judgement) {
                    Reception::Done => true,
                    Reception::Unknown => false,
                    Reception::Rejected => return Ok(()),
                    Reception::Overflow => {
                        drop(cell);
                        self.overflow(name, asked);
                        return Ok(());
                    }
                }
            }
            Event::HookTaken { op, message } => cell.take_kept(*op, *message),
            Event::HookRejected { name, message, .. } => {
                let known = cell.reject_kept(name, *message);
                drop(cell);
                return if known { Ok(()) } else { Err(self.diverged(Some(event), None)) };
            }
            Event::ChildCompleted { op, output } => cell.end_child(*op, Ok(output.clone())),
            Event::ChildFailed { op, failure } | Event::ChildCancelled { op, failure } => {
                cell.end_child(*op, Err(failure.clone()))
            }
            Event::ChildDetached { op, run } => cell.is_child(*op) && cell.end(*op, Ok(run_payload(*run))),
            _ => {
                drop(cell);
                return self.apply_to_all(event, asked);
            }
        };
        if !known {
            drop(cell);
            return Err(self.diverged(Some(event), None));
        }
        self.state.waker.enter();
        wake_all(cell);
        self.settle(asked)
    }

    /// Applies a delivery that may concern several operations.
    fn apply_to_all(&mut self, event: &Event, asked: &mut Vec<Event>) -> Result<(), Stuck> {
        match event {
            Event::CancelRequested { reason, ends, maybe_attempted, .. } if self.rules() >= 2 => {
                self.cancel_as_recorded(reason, ends, maybe_attempted, asked)
            }
            Event::CancelRequested { reason, pauses, .. } => self.cancel(reason, pauses, asked),
            Event::TimerWoken { ops, .. } => {
                self.end_each(ops, |cell, op| cell.is_timer(op).then(|| Ok(Payload::null())), asked)
            }
            Event::RunTerminated { failure } => {
                self.terminate(&failure.message);
                Ok(())
            }
            _ => Err(self.diverged(Some(event), None)),
        }
    }

    /// Does what follows from what the workflow asked for, in the same turn: what could not become a payload
    /// fails, and hooks that opened take payloads that were kept.
    pub(super) fn follow_up(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        loop {
            self.fail_refused(events)?;
            if !self.offer_kept(events)? {
                return Ok(());
            }
        }
    }

    /// What could not become a payload fails in the same turn.
    fn fail_refused(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        loop {
            let refused = std::mem::take(&mut self.state.cell.lock().refused);
            if refused.is_empty() || self.ended.is_some() {
                return Ok(());
            }
            for (op, failure) in refused {
                let cell = self.state.cell.lock();
                if !cell.is_open(op) {
                    continue;
                }
                let event = match cell.ops.get(op).map(|slot| &slot.kind) {
                    Some(OpKind::Child(_)) => Event::ChildFailed { op, failure },
                    _ => Event::StepFailed { op, failure },
                };
                drop(cell);
                events.push(event.clone());
                self.apply(&event, events)?;
            }
        }
    }
}

/// The failure of a run that was ended without its code.
pub(crate) fn terminated(reason: &str) -> Failure {
    Failure::new(FailureKind::Cancelled, format!("terminated: {reason}"))
}

/// A run's id as the outcome of the operation that started it.
pub(super) fn run_payload(run: RunId) -> Payload {
    Payload::json(&run).unwrap_or_else(|_| Payload::null())
}
