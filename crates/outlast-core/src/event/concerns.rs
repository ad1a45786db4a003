//! What an event concerns, and events without their payloads: for views.

use super::{CompensationInput, Event, Judgement, OpNumber};
use crate::id::MessageId;
use crate::payload::Payload;

impl Event {
    /// The message that the event records, if it records one.
    pub fn message(&self) -> Option<MessageId> {
        match self {
            Self::TimerWoken { message, .. }
            | Self::HookReceived { message, .. }
            | Self::HookTaken { message, .. }
            | Self::ReplySent { message, .. }
            | Self::ReplyDropped { message }
            | Self::HookRejected { message, .. } => Some(*message),
            Self::CancelRequested { message, .. } => *message,
            Self::RunRetried(retried) => Some(retried.message),
            _ => None,
        }
    }

    /// Whether the event is about an operation: its request, its outcome, or something that happened to several
    /// operations including this one.
    pub fn concerns(&self, op: OpNumber) -> bool {
        match self {
            Self::TimerWoken { ops, .. } => ops.contains(&op),
            Self::HookReceived { judgement, .. } => *judgement == Judgement::TakenBy(op),
            Self::CancelRequested { pauses, ends, .. } => pauses.contains(&op) || ends.contains(&op),
            Self::CompensationStarted { op: own, of, .. } => [*own, *of].contains(&op),
            Self::CompensationsKept { op: own, of } => *own == op || of.contains(&op),
            Self::IterationEnded(ended) => [ended.op, ended.of].contains(&op),
            Self::RunRetried(retried) => {
                retried.reopens == op || retried.restarts.iter().any(|restarted| restarted.op == op)
            }
            Self::RunForked(forked) => forked.restarts.iter().any(|restarted| restarted.op == op),
            Self::CompensationRegistered(registered) => {
                registered.op == op || registered.input == CompensationInput::Undo(op)
            }
            other => other.op() == Some(op),
        }
    }

    /// The event with `null` instead of each payload. Failures are kept.
    #[must_use]
    pub fn without_payloads(mut self) -> Self {
        match &mut self {
            Self::RunStarted(started) => started.input = Payload::null(),
            Self::RunCompleted { output: payload }
            | Self::StepStarted { input: payload, .. }
            | Self::StepCompleted { output: payload, .. }
            | Self::HookReceived { payload, .. }
            | Self::ReplySent { payload, .. }
            | Self::ChildCompleted { output: payload, .. }
            | Self::ValueRecorded { value: Ok(payload), .. } => *payload = Payload::null(),
            Self::RunContinued(continued) => continued.started.input = Payload::null(),
            Self::ChildStarted(child) => child.input = Payload::null(),
            Self::CompensationRegistered(registered) => {
                if let CompensationInput::Value(Ok(input)) = &mut registered.input {
                    *input = Payload::null();
                }
            }
            Self::IterationEnded(ended) => {
                if let Ok(state) = &mut ended.state {
                    *state = Payload::null();
                }
            }
            Self::TokenRequested(requested) => requested.metadata = None,
            Self::StepRetried { details, .. } => *details = None,
            _ => {}
        }
        self
    }
}
