//! What a world refuses, sorted by what the caller does next.

use crate::event::EventError;

/// Why a world did not do what it was asked. The message names the thing and gives the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// There is no such thing. Asking again does not help.
    #[error("{0}")]
    NotFound(String),
    /// Something else is there already, or the thing is in the wrong status. Look, then decide.
    #[error("{0}")]
    Conflict(String),
    /// The session is gone or does not hold the run, or the turn was computed from an old one. Forget
    /// the run, it is someone else's.
    #[error("{0}")]
    Fenced(String),
    /// A limit was reached. Wait for the receiver, or send less.
    #[error("{0}")]
    Limit(String),
    /// The store does not answer. It is unknown whether the call happened: repeat it with the same ids.
    #[error("{0}")]
    Unavailable(String),
    /// Somebody else has locked what the call changes. Nothing was written: repeat it, apart from others, which
    /// need not wait for it.
    #[error("{0}")]
    Blocked(String),
    /// The store holds what no world wrote. Stop, and restore a backup.
    #[error("{0}")]
    Corrupt(String),
    /// The call makes no sense. Mend the caller.
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
