//! Errors of worlds, by what the caller should do next.

use crate::event::EventError;

/// The error of a call to a world. The message names the object and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// The object does not exist. Repeating the call does not help.
    #[error("{0}")]
    NotFound(String),
    /// The call conflicts with existing data, or the status does not allow it. Read the current state, then decide.
    #[error("{0}")]
    Conflict(String),
    /// The session has ended or does not hold the run, or the turn was computed from an outdated one. Discard the run:
    /// another session may hold it.
    #[error("{0}")]
    Fenced(String),
    /// A limit was exceeded. Wait for the receiver, or send less.
    #[error("{0}")]
    Limit(String),
    /// The storage does not respond. It is unknown whether the call took effect: repeat it with the same ids.
    #[error("{0}")]
    Unavailable(String),
    /// Another transaction has locked a row that the call changes. Nothing was written: repeat it separately, so that
    /// other calls need not wait for it.
    #[error("{0}")]
    Blocked(String),
    /// Stored data is damaged. Stop, and restore a backup.
    #[error("{0}")]
    Corrupt(String),
    /// The call is invalid. Fix the caller.
    #[error("{0}")]
    Invalid(String),
}

impl WorldError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Blocked(_))
    }
}

impl From<EventError> for WorldError {
    fn from(error: EventError) -> Self {
        Self::Corrupt(error.to_string())
    }
}
