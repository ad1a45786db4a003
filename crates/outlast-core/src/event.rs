//! Events: the facts of a run's life, and how they are written.
//!
//! An event is stored as one JSON object, `kind` first. The form is frozen by `golden/`.

mod json;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::failure::Failure;
use crate::id::{MessageId, RunId};
use crate::message::Headers;
use crate::payload::Payload;
use crate::retry::Policy;
use crate::run::{Parent, ParentEnd, Tags};
use crate::time::Timestamp;

pub use json::{EventError, NEWER_BUILD};

/// The highest version of the durable format that this build can read. A run needs at least the format that
/// its events and messages were introduced with; see [`format`](crate::format).
pub const FORMAT: u32 = 2;

/// The highest version of the engine's semantics that this build knows. A run keeps the rules that it was
/// started with for its whole life.
pub const RULES: u32 = 2;

/// The lowest format that can describe a run with these rules.
pub fn format_of_rules(rules: u32) -> u32 {
    rules.min(2)
}

/// The number of an operation: how many the run had created before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpNumber(pub u64);

impl std::fmt::Display for OpNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One recorded fact in a run's life.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The run began.
    RunStarted(RunStarted),
    /// The workflow returned an output.
    RunCompleted {
        /// What it returned.
        output: Payload,
    },
    /// The workflow returned an error.
    RunFailed {
        /// What it returned.
        failure: Failure,
    },
    /// The workflow returned an error after a cancel.
    RunCancelled {
        /// What it returned.
        failure: Failure,
    },
    /// The run was ended without its code.
    RunTerminated {
        /// Why.
        failure: Failure,
    },
    /// The workflow asked for a step; it may be attempted from now on.
    StepStarted {
        /// The operation.
        op: OpNumber,
        /// The step's name.
        name: Arc<str>,
        /// Its input.
        input: Payload,
        /// Where it travels, when it is not attempted by whoever holds the run.
        queued: Option<Box<Queued>>,
    },
    /// An attempt succeeded.
    StepCompleted {
        /// The operation.
        op: OpNumber,
        /// What the step returned.
        output: Payload,
    },
    /// The step failed for good.
    StepFailed {
        /// The operation.
        op: OpNumber,
        /// How the last attempt ended.
        failure: Failure,
    },
    /// An attempt failed; the next one is due at `retry_at`.
    StepRetried {
        /// The operation.
        op: OpNumber,
        /// The number of the failed attempt, from 1.
        attempt: u32,
        /// How it ended.
        failure: Failure,
        /// When the next attempt is due.
        retry_at: Timestamp,
        /// The details of its last heartbeat, for the next attempt.
        details: Option<Payload>,
    },
    /// The workflow dropped the step's operation: it is not attempted again, its outcome is discarded.
    StepDropped {
        /// The operation.
        op: OpNumber,
    },
    /// The workflow asked for a timer.
    TimerStarted {
        /// The operation.
        op: OpNumber,
        /// When it is due.
        fire_at: Timestamp,
    },
    /// A timer was due, or the timeout of a hook.
    TimerFired {
        /// The operation.
        op: OpNumber,
    },
    /// Someone ended sleeps early.
    TimerWoken {
        /// The message that asked.
        message: MessageId,
        /// The timers that it ended, in order.
        ops: Vec<OpNumber>,
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
        /// When the wait ends without one.
        timeout_at: Option<Timestamp>,
    },
    /// A payload arrived for a hook name, awaited or not.
    HookReceived {
        /// The hook's name.
        name: Arc<str>,
        /// The message that brought it.
        message: MessageId,
        /// What it brought.
        payload: Payload,
        /// What the sender gave it. Empty under rules 1, which do not record it.
        headers: Headers,
        /// When the world accepted the message; `None` under rules 1, which do not record it.
        at: Option<Timestamp>,
        /// What became of the payload when it arrived. Under rules 1 it is always [`Judgement::Kept`], and
        /// the oldest open hook of the name takes the payload.
        judgement: Judgement,
    },
    /// An open hook took a payload that was kept.
    HookTaken {
        /// The operation.
        op: OpNumber,
        /// The message that had brought the payload.
        message: MessageId,
    },
    /// No open hook can read a payload that was kept: it is discarded.
    HookRejected {
        /// The hook's name.
        name: Arc<str>,
        /// The message that had brought the payload.
        message: MessageId,
        /// Why it cannot be read.
        reason: String,
    },
    /// The workflow dropped the hook's operation; what it did not return stays buffered.
    HookClosed {
        /// The operation.
        op: OpNumber,
    },
    /// The workflow asked for a child.
    ChildStarted(Box<ChildStarted>),
    /// The world has started a child that nobody awaits, or found it by its key.
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
        /// What it returned.
        output: Payload,
    },
    /// The child failed, or could not be started.
    ChildFailed {
        /// The operation.
        op: OpNumber,
        /// How it failed.
        failure: Failure,
    },
    /// The child was cancelled.
    ChildCancelled {
        /// The operation.
        op: OpNumber,
        /// How it ended.
        failure: Failure,
    },
    /// The workflow dropped the child's operation: the child goes on, its outcome is discarded.
    ChildDropped {
        /// The operation.
        op: OpNumber,
    },
    /// The workflow computed a value once, for all replays.
    ValueRecorded {
        /// The operation.
        op: OpNumber,
        /// The value's name.
        name: Arc<str>,
        /// The value, or why it cannot be kept.
        value: Result<Payload, Failure>,
    },
    /// The workflow took the new side of a patch.
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
    /// Someone asked the run to stop, or its deadline or the limit of its history did.
    CancelRequested {
        /// The message that asked, if one did.
        message: Option<MessageId>,
        /// Why.
        reason: String,
        /// Rules 1: the steps that were between two attempts, and are not attempted again.
        pauses: Vec<OpNumber>,
        /// From rules 2 on: every operation that it ends, in order. Those that are not in it go on: steps that
        /// are being attempted, queued steps, and what is shielded.
        ends: Vec<OpNumber>,
        /// Of these, the steps that a lost worker may have attempted.
        maybe_attempted: Vec<OpNumber>,
    },
}

/// What became of a payload when it was offered to the open hooks of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Judgement {
    /// No hook of its name was open: it is kept until one opens.
    #[default]
    Kept,
    /// The hook of this operation can read it, and took it.
    TakenBy(OpNumber),
    /// None of the open hooks can read it, for this reason: it is discarded.
    Rejected(String),
}

/// The facts a run begins with.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStarted {
    /// The workflow's name.
    pub workflow: Arc<str>,
    /// The workflow's version, pinned for the run's life.
    pub version: u32,
    /// The version of the engine's semantics, fixed for the run's life. It alone decides how the run replays.
    pub rules: u32,
    /// The queue it stands in.
    pub queue: Arc<str>,
    /// How urgent it is.
    pub priority: u8,
    /// The caller's key, if it gave one.
    pub key: Option<String>,
    /// What the workflow is called with.
    pub input: Payload,
    /// What travels with the run: trace context, the caller's identity.
    pub headers: Headers,
    /// What the run can be found by.
    pub tags: Tags,
    /// The run that started it, if one did.
    pub parent: Option<Parent>,
    /// When it is told to stop, if it has not ended by then.
    pub deadline: Option<Timestamp>,
    /// How the step is attempted, when the run is a queued step and that is not as usual.
    pub policy: Option<Box<Policy>>,
}

/// How a queued step travels: as a run of its own, whose whole life it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Queued {
    /// The run that is the step.
    pub run: RunId,
    /// The queue it stands in.
    pub queue: Arc<str>,
    /// How urgent it is.
    pub priority: u8,
}

/// A child that a workflow asked for.
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
    /// The queue it stands in.
    pub queue: Arc<str>,
    /// How urgent it is.
    pub priority: u8,
    /// Its key, if it has one.
    pub key: Option<String>,
    /// What it is called with.
    pub input: Payload,
    /// When the wait for its end is over, and it is cancelled.
    pub timeout_at: Option<Timestamp>,
    /// What becomes of it when the parent ends first.
    pub on_parent_end: ParentEnd,
    /// Whether nobody awaits its end.
    pub is_detached: bool,
}

impl Event {
    /// The event's kind, as it is written.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunStarted(_) => "run_started",
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
            Self::ChildStarted(_) => "child_started",
            Self::ChildDetached { .. } => "child_detached",
            Self::ChildCompleted { .. } => "child_completed",
            Self::ChildFailed { .. } => "child_failed",
            Self::ChildCancelled { .. } => "child_cancelled",
            Self::ChildDropped { .. } => "child_dropped",
            Self::TagsSet { .. } => "tags_set",
            Self::ValueRecorded { .. } => "value_recorded",
            Self::VersionChosen { .. } => "version_chosen",
            Self::CancelRequested { .. } => "cancel_requested",
        }
    }

    /// The operation the event belongs to, if it belongs to one.
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
            | Self::ChildDetached { op, .. }
            | Self::ChildCompleted { op, .. }
            | Self::ChildFailed { op, .. }
            | Self::ChildCancelled { op, .. }
            | Self::ChildDropped { op }
            | Self::TagsSet { op, .. }
            | Self::ValueRecorded { op, .. } => Some(*op),
            Self::ChildStarted(child) => Some(child.op),
            _ => None,
        }
    }

    /// Whether the event is something the workflow decided, rather than something it was told.
    pub fn is_decision(&self) -> bool {
        matches!(
            self,
            Self::StepStarted { .. }
                | Self::StepDropped { .. }
                | Self::TimerStarted { .. }
                | Self::TimerCancelled { .. }
                | Self::HookOpened { .. }
                | Self::HookClosed { .. }
                | Self::ChildStarted(_)
                | Self::ChildDropped { .. }
                | Self::TagsSet { .. }
                | Self::ValueRecorded { .. }
                | Self::VersionChosen { .. }
                | Self::RunCompleted { .. }
                | Self::RunFailed { .. }
                | Self::RunCancelled { .. }
        )
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
    /// [`EventError::UnknownKind`] when a newer build wrote one of them, otherwise one that names the number and the kind
    /// of the event that is damaged.
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
    /// The build of the worker that computed it; empty for a start that no worker saw.
    pub build: Arc<str>,
    /// What it added.
    pub events: Vec<Event>,
}

/// How a run ended, as its waiters learn it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an operation or run ended: an output, or a failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It returned this.
    Completed(Payload),
    /// It failed like this.
    Failed(Failure),
    /// It failed like this after it was told to stop.
    Cancelled(Failure),
}

impl Outcome {
    /// The status of a run that ended like this.
    pub fn status(&self) -> crate::run::Status {
        match self {
            Self::Completed(_) => crate::run::Status::Completed,
            Self::Failed(_) => crate::run::Status::Failed,
            Self::Cancelled(_) => crate::run::Status::Cancelled,
        }
    }

    /// The outcome that a run's final event records; `None` when `event` is not final.
    pub fn of_final(event: &Event) -> Option<Self> {
        match event {
            Event::RunCompleted { output } => Some(Self::Completed(output.clone())),
            Event::RunFailed { failure } => Some(Self::Failed(failure.clone())),
            Event::RunCancelled { failure } | Event::RunTerminated { failure } => {
                Some(Self::Cancelled(failure.clone()))
            }
            _ => None,
        }
    }
}
