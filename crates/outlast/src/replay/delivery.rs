//! Deliveries: everything that a run learns, one at a time, in a live run and in a replay.

use std::sync::Arc;

use outlast_core::{Event, Failure, MessageId, OpNumber, Outcome, Payload, RunId, Status, Stuck, Timestamp};

use super::hooks::{HookKey, ReceiveResult, SentPayload};
use super::machine::Machine;
use super::operation_table::OpKind;
use super::state::wake_all;
use super::strategy::cancel_of_retry;

/// Something that a worker delivers to a run.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// A payload for a hook.
    Hook(SentPayload),
    /// A cancel, by a message or by the deadline.
    Cancel { message: Option<MessageId>, reason: String, actor: Option<Arc<str>>, at: Timestamp },
    /// The run ends without its code.
    Terminate { reason: String, actor: Option<Arc<str>> },
    /// The run ends without its code, after its compensations.
    Compensate { reason: String, actor: Option<Arc<str>> },
    /// Timers end early: one, or all that were open at this time.
    Wake { message: MessageId, op: Option<OpNumber>, actor: Option<Arc<str>>, at: Timestamp },
    /// A step has an outcome.
    StepEnded { op: OpNumber, outcome: Result<Payload, Failure> },
    /// An attempt failed, and the next one is due later.
    StepRetried {
        op: OpNumber,
        attempt: u32,
        failure: Failure,
        retry_at: Timestamp,
        details: Option<Box<Payload>>,
    },
    /// A timer, or the timeout of a hook or child, is due.
    Timer { op: OpNumber },
    /// A child has ended.
    ChildEnded { op: OpNumber, outcome: Outcome },
    /// A detached child with a key exists.
    ChildDetached { op: OpNumber, run: RunId },
    /// The run holds the token that an operation requested.
    TokenTaken { op: OpNumber },
    /// The world refused to start a child or queued step, or another run holds a token.
    Refused { op: OpNumber, failure: Failure },
}

impl Delivery {
    /// The event with the outcome of an attempt; `None` for other deliveries.
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
    /// The event that records a delivery; `None` when its operation is no longer open.
    pub(super) fn event_of(&self, delivery: Delivery) -> Result<Option<Event>, Stuck> {
        match delivery {
            // No hook will take it any more.
            Delivery::Hook(_) if self.is_ending() => Ok(None),
            Delivery::Hook(sent) => self.received(sent).map(Some),
            Delivery::Wake { op: Some(op), .. } if self.is_step(op) => {
                // As when the time has come: the end of a pause is not recorded.
                self.state.table.lock().end_pause(op);
                Ok(None)
            }
            Delivery::ChildEnded { op, outcome } => {
                let op = self.state.table.lock().awaiting_operation(op);
                Ok(self.event_of_other(Delivery::ChildEnded { op, outcome }))
            }
            Delivery::TokenTaken { op } => Ok(self.is_open_token(op).then_some(Event::TokenTaken { op })),
            Delivery::Refused { op, failure } if self.is_open_token(op) => {
                Ok(Some(Event::TokenRefused { op, failure }))
            }
            other => Ok(self.event_of_other(other)),
        }
    }

    fn is_step(&self, op: OpNumber) -> bool {
        self.state.table.lock().is_step(op)
    }

    /// Whether an operation is a request of a token that the world has not answered.
    fn is_open_token(&self, op: OpNumber) -> bool {
        let table = self.state.table.lock();
        table.is_open(op) && table.is_token(op)
    }

    /// The event of a delivery other than a hook payload or the answer to a request of a token.
    fn event_of_other(&self, delivery: Delivery) -> Option<Event> {
        let table = self.state.table.lock();
        Some(match delivery {
            // A second cancel changes nothing and is not recorded, nor does one of a run that compensates.
            Delivery::Cancel { .. } if table.cancelled_at.is_some() || self.is_ending() => return None,
            Delivery::Cancel { message, reason, actor, .. } if self.is_retrying() => {
                cancel_of_retry(message, reason, actor)
            }
            Delivery::Cancel { message, reason, actor, at } => {
                let records_ends = table.rules >= 2;
                let pauses = if records_ends { Vec::new() } else { table.pauses(at) };
                let (ends, maybe_attempted) =
                    if records_ends { table.ended_by_cancel() } else { Default::default() };
                Event::CancelRequested { message, reason, actor, pauses, ends, maybe_attempted }
            }
            Delivery::Compensate { .. } if self.is_ending() => return None,
            Delivery::Compensate { reason, actor } if self.is_retrying() => {
                cancel_of_retry(None, reason, actor)
            }
            Delivery::Compensate { reason, actor } if table.has_unsettled_compensations() => {
                let failure = Failure::terminated(&reason);
                Event::RunCompensating { ends_as: Status::Cancelled, failure, actor }
            }
            Delivery::Terminate { reason, actor } | Delivery::Compensate { reason, actor } => {
                Event::RunTerminated { failure: Failure::terminated(&reason), actor }
            }
            Delivery::Wake { message, op, actor, at } => {
                let ops = Some(table.open_timers(op, at)).filter(|ops| !ops.is_empty())?;
                Event::TimerWoken { message, ops, actor }
            }
            Delivery::StepEnded { op, outcome } if table.is_open(op) => match outcome {
                Ok(output) => Event::StepCompleted { op, output },
                Err(failure) => Event::StepFailed { op, failure },
            },
            // The run was cancelled after the attempt failed: there is no further attempt.
            Delivery::StepRetried { op, failure, .. } if table.is_open(op) && table.is_last_attempt(op) => {
                Event::StepFailed { op, failure }
            }
            Delivery::StepRetried { op, attempt, failure, retry_at, details } if table.is_open(op) => {
                Event::StepRetried { op, attempt, failure, retry_at, details }
            }
            Delivery::Timer { op } if table.is_open(op) => Event::TimerFired { op },
            Delivery::ChildEnded { op, outcome } if table.is_queued(op) => match outcome {
                Outcome::Completed(output) => Event::StepCompleted { op, output },
                Outcome::Failed(failure) | Outcome::Cancelled(failure) => table.queued_failed(op, failure),
            },
            Delivery::Refused { op, failure } if table.is_queued(op) => table.queued_failed(op, failure),
            Delivery::ChildEnded { op, outcome } if table.has_child(op) => match outcome {
                Outcome::Completed(output) => Event::ChildCompleted { op, output },
                Outcome::Failed(failure) => Event::ChildFailed { op, failure },
                Outcome::Cancelled(failure) => Event::ChildCancelled { op, failure },
            },
            Delivery::ChildDetached { op, run } if table.is_open(op) => Event::ChildDetached { op, run },
            Delivery::Refused { op, failure } if table.has_child(op) || table.is_open(op) => {
                Event::ChildFailed { op, failure }
            }
            _ => return None,
        })
    }

    /// Applies one delivery and polls. A run learns of everything through this method, live and in a replay.
    pub(super) fn apply(&mut self, event: &Event, requested: &mut Vec<Event>) -> Result<(), Stuck> {
        let mut table = self.state.table.lock();
        table.settle_messages();
        table.note_event(event);
        let is_applied = match event {
            Event::StepCompleted { op, output } => table.is_step(*op) && table.end(*op, Ok(output.clone())),
            Event::StepFailed { op, failure } => table.is_step(*op) && table.end(*op, Err(failure.clone())),
            Event::TimerFired { op } => table.fire(*op),
            Event::StepRetried { op, attempt, retry_at, details, .. } => {
                let is_applied = table.pause(*op, *attempt, *retry_at, details.as_deref());
                drop(table);
                return if is_applied { Ok(()) } else { Err(self.diverged(Some(event), None)) };
            }
            // The workflow has returned, so no hook takes the payload.
            Event::HookReceived { .. } if self.result.is_some() => true,
            Event::HookReceived { name, message, payload, headers, at, judgement, to } => {
                let arrival = (*message, headers.clone(), *at, to.clone());
                match table.receive(&HookKey::of(name, to), arrival, payload.clone(), judgement) {
                    ReceiveResult::Done => true,
                    ReceiveResult::Unknown => false,
                    ReceiveResult::Rejected => return Ok(()),
                    ReceiveResult::Overflow => {
                        drop(table);
                        self.overflow(name, requested);
                        return Ok(());
                    }
                }
            }
            Event::HookTaken { op, message } => table.take_kept(*op, *message),
            Event::HookRejected { name, message, reason } => {
                let is_applied = table.reject_kept(name, *message, reason);
                drop(table);
                return if is_applied { Ok(()) } else { Err(self.diverged(Some(event), None)) };
            }
            Event::TokenTaken { op } => table.take_token(*op),
            Event::TokenRefused { op, failure } => {
                table.is_token(*op) && table.end(*op, Err(failure.clone()))
            }
            Event::ChildCompleted { op, output } => table.end_child(*op, Ok(output.clone())),
            Event::ChildFailed { op, failure } | Event::ChildCancelled { op, failure } => {
                table.end_child(*op, Err(failure.clone()))
            }
            Event::ChildDetached { op, run } => table.is_child(*op) && table.end(*op, Ok(run_payload(*run))),
            _ => {
                drop(table);
                return self.apply_to_all(event, requested);
            }
        };
        if !is_applied {
            drop(table);
            return Err(self.diverged(Some(event), None));
        }
        self.state.waker.enter();
        wake_all(table);
        self.poll_until_pending(requested)
    }

    /// Applies a delivery that may concern several operations.
    fn apply_to_all(&mut self, event: &Event, requested: &mut Vec<Event>) -> Result<(), Stuck> {
        match event {
            Event::CancelRequested { reason, .. } if self.is_retrying() => {
                self.cancel_retry(reason);
                Ok(())
            }
            Event::CancelRequested { reason, ends, maybe_attempted, .. } if self.rules() >= 2 => {
                self.cancel_as_recorded(reason, ends, maybe_attempted, requested)
            }
            Event::CancelRequested { reason, pauses, .. } => self.cancel(reason, pauses, requested),
            Event::TimerWoken { ops, .. } => {
                self.end_each(ops, |table, op| table.is_timer(op).then(|| Ok(Payload::null())), requested)
            }
            Event::RunRetried(retried) => {
                self.state.table.lock().reopen(retried);
                Ok(())
            }
            Event::RunForked(forked) => self.apply_forked(forked, requested),
            Event::RunCompensating { ends_as, failure, .. } => {
                self.begin_compensating(*ends_as, failure.clone());
                Ok(())
            }
            Event::RunTerminated { failure, .. } => {
                self.terminate(&failure.message);
                Ok(())
            }
            _ => Err(self.diverged(Some(event), None)),
        }
    }

    /// Applies the direct consequences of requests in the same turn: requests with invalid inputs fail, and so do
    /// cancelled steps that nobody attempts; hooks that opened take kept payloads.
    pub(super) fn apply_follow_ups(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        loop {
            if self.is_compensating() {
                return Ok(());
            }
            self.fail_invalid_requests(events)?;
            if !self.fail_cancelled_steps(events)? && !self.offer_kept(events)? {
                return Ok(());
            }
        }
    }

    /// Ends the requests whose inputs could not be encoded.
    fn fail_invalid_requests(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        loop {
            let invalid_requests = std::mem::take(&mut self.state.table.lock().invalid_requests);
            if invalid_requests.is_empty() || self.ended.is_some() {
                return Ok(());
            }
            for (op, failure) in invalid_requests {
                let table = self.state.table.lock();
                if !table.is_open(op) {
                    continue;
                }
                let event = match table.ops.get(op).map(|slot| &slot.kind) {
                    Some(OpKind::Child(_)) => Event::ChildFailed { op, failure },
                    Some(OpKind::Token(_)) => Event::TokenRefused { op, failure },
                    _ => Event::StepFailed { op, failure },
                };
                drop(table);
                events.push(event.clone());
                self.apply(&event, events)?;
            }
        }
    }
}

/// A run's id as the outcome of the operation that started it.
pub(super) fn run_payload(run: RunId) -> Payload {
    Payload::json(&run).unwrap_or_else(|_| Payload::null())
}
