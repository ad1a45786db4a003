//! How runs and operations end.

use super::Event;
use crate::failure::Failure;
use crate::id::RunId;
use crate::payload::Payload;
use crate::run::Status;

/// The end of a run, for callers that wait for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The run.
    pub run: RunId,
    /// Its failure or outcome.
    pub outcome: Outcome,
}

/// How an operation or run ended: an output, or a failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It returned this output.
    Completed(Payload),
    /// It failed.
    Failed(Failure),
    /// It failed after it was cancelled.
    Cancelled(Failure),
}

impl Outcome {
    /// The status of a run with this outcome.
    pub fn status(&self) -> Status {
        match self {
            Self::Completed(_) => Status::Completed,
            Self::Failed(_) => Status::Failed,
            Self::Cancelled(_) => Status::Cancelled,
        }
    }

    /// The outcome that a run's final event records; `None` when `event` is not final.
    pub fn of_final(event: &Event) -> Option<Self> {
        match event {
            Event::RunCompleted { output } => Some(Self::Completed(output.clone())),
            Event::RunFailed { failure } => Some(Self::Failed(failure.clone())),
            Event::RunCancelled { failure } | Event::RunTerminated { failure, .. } => {
                Some(Self::Cancelled(failure.clone()))
            }
            _ => None,
        }
    }
}
