//! The kinds and statuses of operations.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationKind {
    /// A step.
    Step,
    /// A timer.
    Timer,
    /// A wait for a payload.
    Hook,
    /// A child.
    Child,
    /// A recorded value.
    Value,
    /// A change of the run's tags.
    Tags,
    /// The registration of a compensation. It is open until the compensation has run, or is not needed any more.
    Compensation,
    /// The decision that registered compensations are not needed any more.
    Keep,
    /// A hook with a token. It is open until the workflow closes it.
    OpenHook,
    /// A reply to a message.
    Reply,
}

impl OperationKind {
    /// The kind as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Timer => "timer",
            Self::Hook => "hook",
            Self::Child => "child",
            Self::Value => "value",
            Self::Tags => "tags",
            Self::Compensation => "compensation",
            Self::Keep => "keep",
            Self::OpenHook => "open_hook",
            Self::Reply => "reply",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The status of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationStatus {
    /// It has not ended.
    Open,
    /// It has an output, or the timer has fired.
    Completed,
    /// It failed, or timed out.
    Failed,
    /// The run was cancelled while it was open, the workflow cancelled it, or its child was cancelled.
    Cancelled,
    /// The workflow dropped it, or the run ended before it. Its outcome is discarded.
    Dropped,
    /// A child that continues independently; its end is not recorded here.
    Abandoned,
}

impl OperationStatus {
    /// The status as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Dropped => "dropped",
            Self::Abandoned => "abandoned",
        }
    }
}

impl fmt::Display for OperationStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
