//! Events: the recorded facts of a run, and their JSON form.
//!
//! An event is stored as one JSON object, `kind` first. The form is frozen by `golden/`.

mod concerns;
pub mod hidden_tokens;
pub(crate) mod json;
mod outcome;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::cut::{EventPlace, RunContinued};
use crate::failure::Failure;
use crate::forked::{ForkOrigin, RunForked};
use crate::id::{MessageId, RunId};
use crate::iteration::IterationEnded;
use crate::message::{Headers, HookAddress};
use crate::payload::Payload;
use crate::retried::RunRetried;
use crate::retry::Policy;
use crate::run::{Parent, ParentEnd, Requester, Status, Tags};
use crate::strategy::EndPlan;
use crate::time::Timestamp;
use crate::token::WebhookTerms;

pub use json::{EventError, NEWER_BUILD};
pub use outcome::{Ended, Outcome};

/// The highest version of the durable format that this build can read. A run needs at least the format in which its
/// events and messages were introduced; see [`format`](crate::format).
pub const FORMAT: u32 = 3;

/// The highest version of the engine's semantics that this build knows. A run keeps the rules that it was started
/// with.
pub const RULES: u32 = 2;

/// The lowest format that can describe a run with these rules.
pub fn format_of_rules(rules: u32) -> u32 {
    rules.min(2)
}

/// The number of an operation: the number of operations that the run created before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpNumber(pub u64);

impl std::fmt::Display for OpNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One recorded fact of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The run began.
    RunStarted(Box<RunStarted>),
    /// The workflow continued as the next generation: a cut. Replay begins here.
    RunContinued(Box<RunContinued>),
    /// The run had ended, and is open again from an operation on: a cut. Replay skips what had happened since.
    RunRetried(Box<RunRetried>),
    /// The events before this one are copies of another run's. From here on the run is on its own.
    RunForked(Box<RunForked>),
    /// The workflow returned an output.
    RunCompleted {
        /// The output or error.
        output: Payload,
    },
    /// The workflow returned an error.
    RunFailed {
        /// The output or error.
        failure: Failure,
    },
    /// The workflow returned an error after a cancel.
    RunCancelled {
        /// The output or error.
        failure: Failure,
    },
    /// The run was ended without its code.
    RunTerminated {
        /// Why.
        failure: Failure,
        /// Who asked for it, if that is known.
        actor: Option<Arc<str>>,
    },
    /// The workflow requested a step; it can be attempted from now on.
    StepStarted {
        /// The operation.
        op: OpNumber,
        /// The step's name.
        name: Arc<str>,
        /// Its input.
        input: Payload,
        /// The queue and the run of a queued step; `None` when the holder of the run attempts it.
        queued: Option<Box<Queued>>,
        /// Whether the step is attempted at most once.
        is_once: bool,
        /// Whether the effect of the step and its outcome are one transaction: a step that has not completed had no
        /// effect.
        is_transactional: bool,
    },
    /// An attempt succeeded.
    StepCompleted {
        /// The operation.
        op: OpNumber,
        /// The output of the step.
        output: Payload,
    },
    /// The step failed and is not attempted again.
    StepFailed {
        /// The operation.
        op: OpNumber,
        /// The failure of the last attempt.
        failure: Failure,
    },
    /// An attempt failed; the next one is due at `retry_at`.
    StepRetried {
        /// The operation.
        op: OpNumber,
        /// The number of the failed attempt, from 1.
        attempt: u32,
        /// Its failure or outcome.
        failure: Failure,
        /// When the next attempt is due.
        retry_at: Timestamp,
        /// The details of its last heartbeat, for the next attempt. Boxed, as most events have none.
        details: Option<Box<Payload>>,
    },
    /// The workflow dropped the step's operation: it is not attempted again, its outcome is discarded.
    StepDropped {
        /// The operation.
        op: OpNumber,
    },
    /// The workflow requested a timer.
    TimerStarted {
        /// The operation.
        op: OpNumber,
        /// When it is due.
        fire_at: Timestamp,
    },
    /// A timer was due, or the timeout of a hook or child.
    TimerFired {
        /// The operation.
        op: OpNumber,
    },
    /// A wake ended timers early.
    TimerWoken {
        /// The message of the wake.
        message: MessageId,
        /// The timers that it ended, in order.
        ops: Vec<OpNumber>,
        /// Who asked for it, if that is known.
        actor: Option<Arc<str>>,
    },
    /// The workflow dropped the timer.
    TimerCancelled {
        /// The operation.
        op: OpNumber,
    },
    /// The workflow waits for a payload.
    HookOpened {
        /// The operation.
        op: OpNumber,
        /// The hook's name.
        name: Arc<str>,
        /// When the wait times out.
        timeout_at: Option<Timestamp>,
        /// The operation that took the token to which the payload is sent; `None` for a wait by name.
        of: Option<OpNumber>,
    },
    /// A payload arrived for a hook name, awaited or not.
    HookReceived {
        /// The hook's name.
        name: Arc<str>,
        /// Its message.
        message: MessageId,
        /// The payload.
        payload: Payload,
        /// The headers of the message. Empty under rules 1, which do not record them.
        headers: Headers,
        /// When the world accepted the message; `None` under rules 1, which do not record it.
        at: Option<Timestamp>,
        /// Which hook took the payload when it arrived. Under rules 1 it is always [`Judgement::Kept`], and the oldest
        /// open hook of the name takes the payload.
        judgement: Judgement,
        /// The token to which it was sent, and whether its sender waits for a reply.
        to: HookAddress,
    },
    /// An open hook took a payload that was kept.
    HookTaken {
        /// The operation.
        op: OpNumber,
        /// The message of the payload.
        message: MessageId,
    },
    /// No open hook can decode a kept payload: it is discarded.
    HookRejected {
        /// The hook's name.
        name: Arc<str>,
        /// The message of the payload.
        message: MessageId,
        /// Why it cannot be decoded.
        reason: String,
    },
    /// The workflow dropped the hook's operation; a payload that it did not receive is kept.
    HookClosed {
        /// The operation.
        op: OpNumber,
    },
    /// The workflow requested a token for a hook.
    TokenRequested(Box<TokenRequested>),
    /// The run holds the token that the operation requested.
    TokenTaken {
        /// The operation.
        op: OpNumber,
    },
    /// Another run holds the token that the operation requested.
    TokenRefused {
        /// The operation.
        op: OpNumber,
        /// Why, with the run that holds it.
        failure: Failure,
    },
    /// The workflow closed the hook with a token: the token is free.
    TokenClosed {
        /// The operation that requested it.
        op: OpNumber,
    },
    /// The workflow replied to a message.
    ReplySent {
        /// The operation.
        op: OpNumber,
        /// The message.
        message: MessageId,
        /// The reply.
        payload: Payload,
    },
    /// The workflow dropped a message whose sender waits for a reply, and did not reply.
    ReplyDropped {
        /// The message.
        message: MessageId,
    },
    /// The workflow requested a child.
    ChildStarted(Box<ChildStarted>),
    /// The world has started a detached child, or has found the run that its key names.
    ChildDetached {
        /// The operation.
        op: OpNumber,
        /// The run that its key names.
        run: RunId,
    },
    /// The child returned an output.
    ChildCompleted {
        /// The operation.
        op: OpNumber,
        /// The output or error.
        output: Payload,
    },
    /// The child failed, or could not be started.
    ChildFailed {
        /// The operation.
        op: OpNumber,
        /// Its failure.
        failure: Failure,
    },
    /// The child was cancelled.
    ChildCancelled {
        /// The operation.
        op: OpNumber,
        /// Its failure or outcome.
        failure: Failure,
    },
    /// The workflow dropped the child's operation: the child continues, its outcome is discarded.
    ChildDropped {
        /// The operation.
        op: OpNumber,
    },
    /// The workflow cancelled an operation. A timer or hook ends with it. A step or child is asked to stop, and another
    /// event records how it ends.
    OperationCancelled {
        /// The operation.
        op: OpNumber,
    },
    /// The workflow registered a compensation.
    CompensationRegistered(Box<CompensationRegistered>),
    /// The workflow decided that these registered compensations are no longer needed.
    CompensationsKept {
        /// The operation.
        op: OpNumber,
        /// The registrations.
        of: Vec<OpNumber>,
    },
    /// A compensation began: from now on it is a step like any other, and its end is recorded as that of a step.
    CompensationStarted {
        /// The operation.
        op: OpNumber,
        /// The registration, which names the step and its input.
        of: OpNumber,
        /// The queue and the run of a queued step; `None` when the holder of the run attempts it.
        queued: Option<Box<Queued>>,
    },
    /// The run is about to end other than completed, and its registered compensations run first. Workflow code does
    /// not run any more.
    RunCompensating {
        /// How the run ends afterwards: failed or cancelled.
        ends_as: Status,
        /// Why.
        failure: Failure,
        /// Who asked for it, if it was asked for and that is known.
        actor: Option<Arc<str>>,
    },
    /// The workflow failed, and begins again as the next generation. Workflow code does not run until then: first
    /// everything that the run began must be over, and its compensations run.
    RunRetrying(Box<RunRetrying>),
    /// The workflow recorded a value.
    ValueRecorded {
        /// The operation.
        op: OpNumber,
        /// The value's name.
        name: Arc<str>,
        /// The value, or why it cannot be stored.
        value: Result<Payload, Failure>,
    },
    /// The workflow took the new branch of a patch.
    VersionChosen {
        /// The patch's name.
        name: Arc<str>,
    },
    /// The workflow set tags.
    TagsSet {
        /// The operation.
        op: OpNumber,
        /// The tags.
        tags: Tags,
    },
    /// The workflow began a loop whose iterations a replay can skip.
    LoopStarted {
        /// The operation.
        op: OpNumber,
        /// The loop's name.
        name: Arc<str>,
    },
    /// An iteration of a loop ended, and the next one begins with the recorded state. Mostly a cut.
    IterationEnded(Box<IterationEnded>),
    /// The run was cancelled: by a message, its deadline, or the limit of its history.
    CancelRequested {
        /// The message of the cancel, if there was one.
        message: Option<MessageId>,
        /// Why.
        reason: String,
        /// Who asked for it, if that is known.
        actor: Option<Arc<str>>,
        /// Rules 1: the steps that were paused between two attempts; they are not attempted again.
        pauses: Vec<OpNumber>,
        /// From rules 2 on: the operations that it ends, in order. Others continue: steps that are being attempted,
        /// queued steps, and shielded operations.
        ends: Vec<OpNumber>,
        /// Of these, the steps that a lost worker may have attempted.
        maybe_attempted: Vec<OpNumber>,
    },
}

impl From<RunStarted> for Event {
    fn from(started: RunStarted) -> Self {
        Self::RunStarted(Box::new(started))
    }
}

/// The decision about a payload that was offered to the open hooks of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Judgement {
    /// No hook of its name was open: it is kept until one opens.
    #[default]
    Kept,
    /// The hook of this operation can decode it, and took it.
    TakenBy(OpNumber),
    /// None of the open hooks can decode it, for this reason: it is discarded.
    Rejected(String),
}

/// The parameters of a start.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStarted {
    /// The workflow's name.
    pub workflow: Arc<str>,
    /// The workflow's version; it never changes.
    pub version: u32,
    /// The version of the engine's semantics; it never changes. The semantics of a replay depend on it alone.
    pub rules: u32,
    /// Its queue.
    pub queue: Arc<str>,
    /// Its priority.
    pub priority: u8,
    /// The caller's key, if there is one.
    pub key: Option<String>,
    /// The input of the workflow.
    pub input: Payload,
    /// The headers of the run, such as trace context.
    pub headers: Headers,
    /// Its tags.
    pub tags: Tags,
    /// The run that started it, if one did.
    pub parent: Option<Parent>,
    /// When it is cancelled, if it has not ended by then.
    pub deadline: Option<Timestamp>,
    /// The policy of the step, when the run is a queued step and the policy is not the default.
    pub policy: Option<Box<Policy>>,
    /// The run that requested the step, when the run is a queued step.
    pub requester: Option<Box<Requester>>,
    /// What is decided about its end. Most starts decide nothing.
    pub ending: Option<Box<EndPlan>>,
    /// Where its first events come from, if it is a fork.
    pub forked: Option<Box<ForkOrigin>>,
}

impl RunStarted {
    /// The lowest format that can represent the start.
    pub fn format(&self) -> u32 {
        if self.ending.is_some() || self.forked.is_some() { 3 } else { format_of_rules(self.rules) }
    }
}

/// The run that executes a queued step.
#[derive(Clone, Debug, PartialEq)]
pub struct Queued {
    /// The run that executes the step.
    pub run: RunId,
    /// Its queue.
    pub queue: Arc<str>,
    /// Its priority.
    pub priority: u8,
}

/// A failed try of a workflow after which another one follows.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRetrying {
    /// Why it failed.
    pub failure: Failure,
    /// The number of the failed try, from 1.
    pub attempt: u32,
    /// The next try does not begin before this time.
    pub retry_at: Timestamp,
    /// Where the payloads are that no hook has taken, in the order of their arrival.
    pub kept: Vec<EventPlace>,
}

/// A compensation that a workflow registered.
#[derive(Clone, Debug, PartialEq)]
pub struct CompensationRegistered {
    /// The operation.
    pub op: OpNumber,
    /// The step that compensates.
    pub step: Arc<str>,
    /// What it gets.
    pub input: CompensationInput,
    /// The policy of the step, unless it is the default of compensations.
    pub policy: Option<Box<Policy>>,
    /// The queue of the step, if it is queued.
    pub queue: Option<Arc<str>>,
    /// The priority of a queued step; by default that of the run.
    pub priority: Option<u8>,
}

/// The input of a compensation.
#[derive(Clone, Debug, PartialEq)]
pub enum CompensationInput {
    /// The input and output of the step that it undoes, which the events of this operation contain.
    Undo(OpNumber),
    /// A value, or why it cannot be stored: then there is nothing to compensate.
    Value(Result<Payload, Failure>),
}

/// A token that a workflow requested for a hook.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRequested {
    /// The operation.
    pub op: OpNumber,
    /// The hook's name.
    pub name: Arc<str>,
    /// The token.
    pub token: Arc<str>,
    /// Whether the engine generated it, so that no other run can hold it.
    pub is_generated: bool,
    /// What anybody who knows the token can read.
    pub metadata: Option<Payload>,
    /// How HTTP requests to it are handled, if the hook is a webhook.
    pub webhook: Option<Arc<WebhookTerms>>,
    /// How long no other run can take it after it was closed, or the run has ended.
    pub keep_for: Option<Duration>,
}

/// A child that a workflow requested.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildStarted {
    /// The operation.
    pub op: OpNumber,
    /// The child.
    pub run: RunId,
    /// Its workflow's name.
    pub workflow: Arc<str>,
    /// Its workflow's version.
    pub version: u32,
    /// Its queue.
    pub queue: Arc<str>,
    /// Its priority.
    pub priority: u8,
    /// Its key, if it has one.
    pub key: Option<String>,
    /// Its input.
    pub input: Payload,
    /// When the wait for its end times out, and it is cancelled.
    pub timeout_at: Option<Timestamp>,
    /// What happens to it when the parent ends first.
    pub on_parent_end: ParentEnd,
    /// Whether the parent does not await its end.
    pub is_detached: bool,
}

impl Event {
    /// The kind of the event as text.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunStarted(_) => "run_started",
            Self::RunContinued(_) => "run_continued",
            Self::RunRetried(_) => "run_retried",
            Self::RunForked(_) => "run_forked",
            Self::RunCompleted { .. } => "run_completed",
            Self::RunFailed { .. } => "run_failed",
            Self::RunCancelled { .. } => "run_cancelled",
            Self::RunTerminated { .. } => "run_terminated",
            Self::StepStarted { .. } => "step_started",
            Self::StepCompleted { .. } => "step_completed",
            Self::StepFailed { .. } => "step_failed",
            Self::StepRetried { .. } => "step_retried",
            Self::StepDropped { .. } => "step_dropped",
            Self::TimerStarted { .. } => "timer_started",
            Self::TimerFired { .. } => "timer_fired",
            Self::TimerWoken { .. } => "timer_woken",
            Self::TimerCancelled { .. } => "timer_cancelled",
            Self::HookOpened { .. } => "hook_opened",
            Self::HookReceived { .. } => "hook_received",
            Self::HookTaken { .. } => "hook_taken",
            Self::HookRejected { .. } => "hook_rejected",
            Self::HookClosed { .. } => "hook_closed",
            Self::TokenRequested(_) => "token_requested",
            Self::TokenTaken { .. } => "token_taken",
            Self::TokenRefused { .. } => "token_refused",
            Self::TokenClosed { .. } => "token_closed",
            Self::ReplySent { .. } => "reply_sent",
            Self::ReplyDropped { .. } => "reply_dropped",
            Self::ChildStarted(_) => "child_started",
            Self::ChildDetached { .. } => "child_detached",
            Self::ChildCompleted { .. } => "child_completed",
            Self::ChildFailed { .. } => "child_failed",
            Self::ChildCancelled { .. } => "child_cancelled",
            Self::ChildDropped { .. } => "child_dropped",
            Self::OperationCancelled { .. } => "operation_cancelled",
            Self::CompensationRegistered(_) => "compensation_registered",
            Self::CompensationsKept { .. } => "compensations_kept",
            Self::CompensationStarted { .. } => "compensation_started",
            Self::RunCompensating { .. } => "run_compensating",
            Self::RunRetrying(_) => "run_retrying",
            Self::TagsSet { .. } => "tags_set",
            Self::ValueRecorded { .. } => "value_recorded",
            Self::VersionChosen { .. } => "version_chosen",
            Self::LoopStarted { .. } => "loop_started",
            Self::IterationEnded(_) => "iteration_ended",
            Self::CancelRequested { .. } => "cancel_requested",
        }
    }

    /// The operation of the event, if it has one.
    pub fn op(&self) -> Option<OpNumber> {
        match self {
            Self::StepStarted { op, .. }
            | Self::StepCompleted { op, .. }
            | Self::StepFailed { op, .. }
            | Self::StepRetried { op, .. }
            | Self::StepDropped { op }
            | Self::TimerStarted { op, .. }
            | Self::TimerFired { op }
            | Self::TimerCancelled { op }
            | Self::HookOpened { op, .. }
            | Self::HookTaken { op, .. }
            | Self::HookClosed { op }
            | Self::TokenTaken { op }
            | Self::TokenRefused { op, .. }
            | Self::TokenClosed { op }
            | Self::ReplySent { op, .. }
            | Self::ChildDetached { op, .. }
            | Self::ChildCompleted { op, .. }
            | Self::ChildFailed { op, .. }
            | Self::ChildCancelled { op, .. }
            | Self::ChildDropped { op }
            | Self::OperationCancelled { op }
            | Self::CompensationsKept { op, .. }
            | Self::CompensationStarted { op, .. }
            | Self::TagsSet { op, .. }
            | Self::LoopStarted { op, .. }
            | Self::ValueRecorded { op, .. } => Some(*op),
            Self::IterationEnded(ended) => Some(ended.op),
            Self::CompensationRegistered(registered) => Some(registered.op),
            Self::ChildStarted(child) => Some(child.op),
            Self::TokenRequested(requested) => Some(requested.op),
            _ => None,
        }
    }

    /// Whether the event is a decision of the workflow, not a delivery.
    pub fn is_decision(&self) -> bool {
        matches!(
            self,
            Self::StepStarted { .. }
                | Self::StepDropped { .. }
                | Self::TimerStarted { .. }
                | Self::TimerCancelled { .. }
                | Self::HookOpened { .. }
                | Self::HookClosed { .. }
                | Self::TokenRequested(_)
                | Self::TokenClosed { .. }
                | Self::ReplySent { .. }
                | Self::ReplyDropped { .. }
                | Self::ChildStarted(_)
                | Self::ChildDropped { .. }
                | Self::OperationCancelled { .. }
                | Self::CompensationRegistered(_)
                | Self::CompensationsKept { .. }
                | Self::CompensationStarted { .. }
                | Self::TagsSet { .. }
                | Self::ValueRecorded { .. }
                | Self::LoopStarted { .. }
                | Self::IterationEnded(_)
                | Self::VersionChosen { .. }
                | Self::RunCompleted { .. }
                | Self::RunFailed { .. }
                | Self::RunCancelled { .. }
        )
    }

    /// Whether a replay can begin or continue with this event, and skips events before it. A retry of the run is a cut as
    /// well, but its replay begins where that of the run began before.
    pub fn is_cut(&self) -> bool {
        match self {
            Self::RunContinued(_) => true,
            Self::IterationEnded(ended) => ended.cut.is_some(),
            _ => false,
        }
    }

    /// Whether the event belongs to the first part of a turn that is committed in parts: deliveries, and events whose
    /// turn others refer to.
    pub fn stays_in_first_part(&self) -> bool {
        !self.is_decision() || matches!(self, Self::LoopStarted { .. } | Self::IterationEnded(_))
    }

    /// Appends the events to `out` as a JSON array.
    pub fn write_all(events: &[Self], out: &mut String) {
        json::write_all(events, out);
    }

    /// Reads a JSON array of events.
    ///
    /// # Errors
    ///
    /// [`EventError`] when the text is not an array of events, or holds a kind that this build does
    /// not know. An unknown field is ignored.
    pub fn read_all(text: &str) -> Result<Vec<Self>, EventError> {
        json::read_all(text)
    }

    /// Reads the events of a turn whose first event has the number `first` in its history.
    ///
    /// # Errors
    ///
    /// [`EventError::UnknownKind`] when a newer build wrote one of them, otherwise one that names the number and the
    /// kind of the event that is damaged.
    pub fn read_turn(text: &str, first: u64) -> Result<Vec<Self>, EventError> {
        json::read_turn(text, first)
    }
}

/// One turn as recorded: its id, time and build, and the events it added.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRecord {
    /// The turn.
    pub id: crate::id::TurnId,
    /// The number of its first event in the history, from 0.
    pub seq: u64,
    /// The turn's time.
    pub at: Timestamp,
    /// The build of the worker that computed it; empty for a start by a client.
    pub build: Arc<str>,
    /// Its events.
    pub events: Vec<Event>,
}
