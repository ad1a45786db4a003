//! Errors of worlds, by what the caller should do next.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;

use crate::event::EventError;
use crate::limits::FAILURE_CAUSES_MAX;

/// The error of a call to a world. The message names the object and the remedy.
///
/// If another error caused it, for example one of a database, `source` returns the chain of causes, as [`Cause`]s.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldError {
    /// The object does not exist. Repeating the call does not help.
    NotFound(ErrorText),
    /// The call conflicts with existing data, or the status does not allow it. Read the current state, then decide.
    Conflict(ErrorText),
    /// The session has ended or does not hold the run, or the turn was computed from an outdated one. Discard the run:
    /// another session may hold it.
    Fenced(ErrorText),
    /// A limit was exceeded. Wait for the receiver, or send less.
    Limit(ErrorText),
    /// The storage does not respond. It is unknown whether the call took effect: repeat it with the same ids.
    Unavailable(ErrorText),
    /// Another transaction has locked a row that the call changes. Nothing was written: repeat it separately, so that
    /// other calls need not wait for it.
    Blocked(ErrorText),
    /// Stored data is damaged. Stop, and restore a backup.
    Corrupt(ErrorText),
    /// The storage was moved, replaced or removed while the world was open. Every further call fails as well: stop,
    /// restore the storage, and open the world again.
    Gone(ErrorText),
    /// The call is invalid. Fix the caller.
    Invalid(ErrorText),
}

impl WorldError {
    /// [`NotFound`](Self::NotFound), with this message.
    pub fn not_found(message: impl Into<ErrorText>) -> Self {
        Self::NotFound(message.into())
    }

    /// [`Conflict`](Self::Conflict), with this message.
    pub fn conflict(message: impl Into<ErrorText>) -> Self {
        Self::Conflict(message.into())
    }

    /// [`Fenced`](Self::Fenced), with this message.
    pub fn fenced(message: impl Into<ErrorText>) -> Self {
        Self::Fenced(message.into())
    }

    /// [`Limit`](Self::Limit), with this message.
    pub fn limit(message: impl Into<ErrorText>) -> Self {
        Self::Limit(message.into())
    }

    /// [`Unavailable`](Self::Unavailable), with this message.
    pub fn unavailable(message: impl Into<ErrorText>) -> Self {
        Self::Unavailable(message.into())
    }

    /// [`Blocked`](Self::Blocked), with this message.
    pub fn blocked(message: impl Into<ErrorText>) -> Self {
        Self::Blocked(message.into())
    }

    /// [`Corrupt`](Self::Corrupt), with this message.
    pub fn corrupt(message: impl Into<ErrorText>) -> Self {
        Self::Corrupt(message.into())
    }

    /// [`Gone`](Self::Gone), with this message.
    pub fn gone(message: impl Into<ErrorText>) -> Self {
        Self::Gone(message.into())
    }

    /// [`Invalid`](Self::Invalid), with this message.
    pub fn invalid(message: impl Into<ErrorText>) -> Self {
        Self::Invalid(message.into())
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Blocked(_))
    }

    /// The same error, caused by `source`.
    #[must_use]
    pub fn caused_by(mut self, source: &(dyn StdError + 'static)) -> Self {
        self.text_mut().cause = Some(Box::new(Cause::of(source)));
        self
    }

    /// Its text.
    fn text(&self) -> &ErrorText {
        match self {
            Self::NotFound(text)
            | Self::Conflict(text)
            | Self::Fenced(text)
            | Self::Limit(text)
            | Self::Unavailable(text)
            | Self::Blocked(text)
            | Self::Corrupt(text)
            | Self::Gone(text)
            | Self::Invalid(text) => text,
        }
    }

    fn text_mut(&mut self) -> &mut ErrorText {
        match self {
            Self::NotFound(text)
            | Self::Conflict(text)
            | Self::Fenced(text)
            | Self::Limit(text)
            | Self::Unavailable(text)
            | Self::Blocked(text)
            | Self::Corrupt(text)
            | Self::Gone(text)
            | Self::Invalid(text) => text,
        }
    }
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl StdError for WorldError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.text().cause.as_deref()?)
    }
}

impl From<EventError> for WorldError {
    fn from(error: EventError) -> Self {
        Self::corrupt(error.to_string()).caused_by(&error)
    }
}

/// The message of a [`WorldError`], and its cause. It is made from a text, and can be used like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorText {
    message: String,
    cause: Option<Box<Cause>>,
}

impl From<String> for ErrorText {
    fn from(message: String) -> Self {
        Self { message, cause: None }
    }
}

impl From<&str> for ErrorText {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

impl Deref for ErrorText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error that caused another, reduced to its message and its own cause.
///
/// The types of the errors are those of database drivers, which are not part of the API of this library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    message: String,
    cause: Option<Box<Cause>>,
}

impl Cause {
    /// The cause that corresponds to an error and the chain of its sources.
    pub fn of(error: &(dyn StdError + 'static)) -> Self {
        let mut messages = vec![error.to_string()];
        let mut source = error.source();
        while let Some(error) = source.filter(|_| messages.len() < FAILURE_CAUSES_MAX) {
            messages.push(error.to_string());
            source = error.source();
        }
        let last = Self { message: messages.pop().unwrap_or_default(), cause: None };
        messages.into_iter().rev().fold(last, |cause, message| Self { message, cause: Some(Box::new(cause)) })
    }

    /// The cause that corresponds to these messages, outermost first; `None` without messages.
    pub fn of_messages(messages: &[String]) -> Option<Self> {
        messages
            .iter()
            .rev()
            .fold(None, |cause, message| Some(Self { message: message.clone(), cause: cause.map(Box::new) }))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.cause.as_deref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of an error and of all its sources.
    fn chain(error: &(dyn StdError + 'static)) -> Vec<String> {
        let mut messages = vec![error.to_string()];
        let mut source = error.source();
        while let Some(error) = source {
            messages.push(error.to_string());
            source = error.source();
        }
        messages
    }

    #[test]
    fn an_error_of_a_world_has_the_causes_of_the_error_that_led_to_it() {
        let driver = WorldError::Invalid("timed out".into());
        let inner = WorldError::Unavailable("no connection".into()).caused_by(&driver);
        let error = WorldError::Unavailable("the world does not respond".into()).caused_by(&inner);
        assert_eq!(chain(&error), ["the world does not respond", "no connection", "timed out"]);
        assert_eq!(chain(&WorldError::Limit("full".into())), ["full"]);
    }

    #[test]
    fn causes_are_restored_from_their_messages() {
        let messages = ["outer".to_owned(), "inner".to_owned()];
        assert_eq!(chain(&Cause::of_messages(&messages).unwrap()), messages);
        assert_eq!(Cause::of_messages(&[]), None);
    }
}
