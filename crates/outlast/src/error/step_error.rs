//! [`StepError`]: the error of an attempt, and what follows from it.

use std::fmt;
use std::time::Duration;

use outlast_core::{
    ErrorClass, Failure, FailureKind, FailureOrigin, IntoDuration, PayloadError, Stuck, StuckReason,
    Timestamp,
};
use serde::Serialize;

use super::{Boxed, Error, stuck_on_unreadable};

/// The error of an attempt at a step.
///
/// Any `std::error::Error` converts to it with `?`. Unless the error is fatal, the step is attempted again according to
/// its policy.
///
/// ```
/// use outlast::StepError;
///
/// fn check(cents: u64) -> Result<u64, StepError> {
///     if cents == 0 {
///         return Err(StepError::fatal("empty order")); // no retry
///     }
///     Ok("7".parse::<u64>()? + cents) // any std error: retry
/// }
/// assert!(check(0).unwrap_err().is_fatal());
/// ```
pub struct StepError {
    // Boxed, so that a step's `Result` stays small.
    failure: Box<Failure>,
    next: Option<NextAttempt>,
    /// Set when the run gets stuck instead of the attempt failing.
    stuck_cause: Option<StuckCause>,
}

/// Why a run gets stuck because of an attempt.
#[derive(Clone, Copy, Debug)]
enum StuckCause {
    /// The step's code did not run, because its input cannot be decoded, possibly for lack of a codec.
    Unreadable { is_coded: bool },
    /// The step's code used the context of a run.
    ContextUsed,
}

/// When the next attempt is due, as chosen by an error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NextAttempt {
    After(Duration),
    At(Timestamp),
}

impl NextAttempt {
    /// The time of the next attempt, after an attempt that ended at `ended`.
    pub(crate) fn moment(self, ended: Timestamp) -> Timestamp {
        match self {
            Self::After(pause) => ended.plus(pause),
            Self::At(moment) => moment.max(ended),
        }
    }
}

impl StepError {
    /// Creates an error with a message. The step is attempted again according to its policy.
    pub fn msg(message: impl Into<String>) -> Self {
        Self::made_here(Failure::new(FailureKind::Error, message), None)
    }

    /// Creates an error after which no other attempt is made.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::made_here(Failure::new(FailureKind::Fatal, message), None)
    }

    /// Creates an error after which the next attempt is due when `pause` has passed, instead of the pause of the
    /// policy. The policy still decides how many attempts there are.
    ///
    /// # Panics
    ///
    /// If `pause` is a text that is not a duration.
    pub fn retry_after(message: impl Into<String>, pause: impl IntoDuration) -> Self {
        let pause = pause.into_duration().unwrap_or_else(|error| panic!("{error}"));
        Self { next: Some(NextAttempt::After(pause)), ..Self::msg(message) }
    }

    /// Like [`retry_after`](Self::retry_after), but the next attempt is due at a given time of the world's clock. If
    /// that time has passed, it is due at once.
    ///
    /// ```
    /// # use outlast::{StepError, Timestamp};
    /// let midnight = Timestamp::from_micros(1_893_456_000_000_000);
    /// let error = StepError::retry_at("the quota is used up", midnight);
    /// # assert!(!error.is_fatal());
    /// ```
    pub fn retry_at(message: impl Into<String>, moment: Timestamp) -> Self {
        Self { next: Some(NextAttempt::At(moment)), ..Self::msg(message) }
    }

    /// Converts a boxed error: a `Box<dyn Error + Send + Sync>`, an `anyhow::Error` or a text. The chain of its sources
    /// is kept. The step is attempted again according to its policy.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # type Boxed = Box<dyn std::error::Error + Send + Sync>;
    /// # async fn old_code() -> Result<u32, Boxed> { Err("no answer".into()) }
    /// #[step]
    /// async fn ask() -> Result<u32, StepError> {
    ///     old_code().await.map_err(StepError::from_boxed)
    /// }
    /// ```
    pub fn from_boxed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::made_here(Failure::of_error(FailureKind::Error, &*error.into()), None)
    }

    /// Adds a machine-readable code, such as `"card_declined"`, which the workflow reads with [`Error::code`].
    ///
    /// A code of more than 128 bytes is truncated.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        *self.failure = self.failure.with_code(code);
        self
    }

    /// Sets the class of the error. A [`Retry`](crate::Retry) can select which classes are retried.
    ///
    /// An error that was converted by `?` has the class of the first `std::io::Error` among its sources.
    ///
    /// ```
    /// use outlast::{ErrorClass, Retry, StepError};
    ///
    /// let error = StepError::msg("429 too many requests").class(ErrorClass::RateLimit);
    /// let picky = Retry::api().only(&[ErrorClass::Network, ErrorClass::RateLimit]);
    /// ```
    #[must_use]
    pub fn class(mut self, class: ErrorClass) -> Self {
        self.failure.class = Some(class);
        self
    }

    /// Adds machine-readable details, which the workflow reads with [`Error::details`].
    ///
    /// Details that exceed 64 KiB or have no JSON form are left out, and the message says so.
    #[must_use]
    pub fn with_details(mut self, details: impl Serialize) -> Self {
        *self.failure = self.failure.with_details(details);
        self
    }

    /// Returns whether no other attempt is made after this error.
    pub fn is_fatal(&self) -> bool {
        !self.failure.kind.is_retryable()
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.failure.message
    }

    pub(crate) fn failure_kind(&self) -> FailureKind {
        self.failure.kind
    }

    pub(crate) fn of_failure(failure: Failure) -> Self {
        Self { failure: Box::new(failure), next: None, stuck_cause: None }
    }

    /// An error that the step's code makes now, perhaps from one of this type.
    fn made_here(mut failure: Failure, type_name: Option<&str>) -> Self {
        failure.origin = FailureOrigin::here(type_name);
        Self::of_failure(failure)
    }

    /// The error of an attempt whose input cannot be decoded; the step's code did not run. In a run with rules 1 the
    /// step fails with this message; from rules 2 on the run gets stuck.
    pub(crate) fn unreadable(message: String, error: &PayloadError) -> Self {
        Self {
            stuck_cause: Some(StuckCause::Unreadable { is_coded: error.is_coded() }),
            ..Self::fatal(message)
        }
    }

    /// A copy of the error. `Clone` is not implemented, so that it is not part of the public API.
    pub(crate) fn copy(&self) -> Self {
        Self { failure: self.failure.clone(), next: self.next, stuck_cause: self.stuck_cause }
    }

    /// Whether a run with these rules gets stuck instead of the attempt failing.
    pub(crate) fn is_stuck(&self, rules: u32) -> bool {
        self.stuck(rules).is_some()
    }

    /// The error of an attempt whose code used the context of a run. The attempt does not count, and the run gets
    /// stuck.
    pub(crate) fn context_used(message: String) -> Self {
        Self { stuck_cause: Some(StuckCause::ContextUsed), ..Self::fatal(message) }
    }

    /// Why a run with these rules gets stuck instead of the attempt failing.
    pub(crate) fn stuck(&self, rules: u32) -> Option<Stuck> {
        match self.stuck_cause? {
            StuckCause::Unreadable { .. } if rules < 2 => None,
            StuckCause::Unreadable { is_coded } => Some(stuck_on_unreadable(is_coded, self)),
            StuckCause::ContextUsed => {
                let (reason, message) = (StuckReason::ContextOutside, self.failure.message.clone());
                Some(Stuck::new(reason, message))
            }
        }
    }

    pub(crate) fn into_parts(self) -> (Failure, Option<NextAttempt>) {
        (*self.failure, self.next)
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure.message)
    }
}

impl fmt::Debug for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.failure.message)?;
        for cause in &self.failure.causes {
            write!(f, "\n  caused by: {cause}")?;
        }
        Ok(())
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for StepError {
    fn from(error: E) -> Self {
        let failure = Failure::of_error(FailureKind::Error, &error);
        Self::made_here(failure, Some(std::any::type_name::<E>()))
    }
}

/// Converts an error that a step received from a client. Errors of the kinds `Fatal`, `Invalid` and `Limit` keep their
/// kind and are not retried. All others are ordinary errors of the step.
impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        let mut failure = error.into_failure();
        if !matches!(failure.kind, FailureKind::Fatal | FailureKind::Invalid | FailureKind::Limit) {
            failure.kind = FailureKind::Error;
        }
        failure.is_exhausted = false;
        Self::of_failure(failure)
    }
}

impl From<StepError> for Error {
    fn from(error: StepError) -> Self {
        Self::of_failure(*error.failure)
    }
}

impl From<StepError> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: StepError) -> Self {
        Box::new(Boxed::new(error.into()))
    }
}
