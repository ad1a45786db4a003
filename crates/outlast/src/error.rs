//! Errors: [`Error`] for workflows and clients, and [`StepError`] for steps.
//!
//! Both accept any `std::error::Error` through `?`, as `anyhow::Error` does. Therefore they do not implement
//! `std::error::Error` themselves, but convert into `Box<dyn std::error::Error + Send + Sync>`, with the chain of sources.

mod step_error;

use std::fmt;

use outlast_core::duration::InvalidDuration;
use outlast_core::refusal::TOKEN_TAKEN;
use outlast_core::{
    Cause, ErrorClass, FailedCompensation, Failure, FailureKind, Payload, PayloadError, RunId, Stuck,
    StuckReason, WorldError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::authoring::race::RaceError;

pub(crate) use step_error::NextAttempt;
pub use step_error::StepError;

/// The kind of an error, for code that handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A step or workflow returned an error.
    Error,
    /// A step returned an error that must not be retried.
    Fatal,
    /// A step panicked.
    Panic,
    /// A timeout elapsed: of an attempt, a wait or a call.
    Timeout,
    /// The run was cancelled.
    Cancelled,
    /// The run was cancelled, and a worker that was lost may have attempted the step before that.
    MaybeAttempted,
    /// A limit was exceeded; the message names it.
    Limit,
    /// A value is invalid: a payload of another type, a text that is not a duration, an input that a check rejects.
    Invalid,
    /// It is unknown whether the step had its effect: its worker was lost during the attempt, and the step must not be
    /// attempted again.
    Unknown,
    /// There is no such run.
    NotFound,
    /// The request conflicts with the current state: a key belongs to another run, or the run has ended.
    Conflict,
    /// The run is stuck: its worker's code cannot continue it.
    Stuck,
    /// The world does not respond; the same call may succeed later.
    Unavailable,
    /// Stored data is damaged, or was moved or removed while the world was open.
    Corrupt,
}

impl ErrorKind {
    /// The kind with which the history records an error of this kind.
    fn recorded(self) -> FailureKind {
        match self {
            Self::Fatal => FailureKind::Fatal,
            Self::Panic => FailureKind::Panic,
            Self::Timeout => FailureKind::Timeout,
            Self::Cancelled => FailureKind::Cancelled,
            Self::MaybeAttempted => FailureKind::MaybeAttempted,
            Self::Limit => FailureKind::Limit,
            Self::Invalid => FailureKind::Invalid,
            Self::Conflict => FailureKind::Conflict,
            Self::Unknown => FailureKind::Unknown,
            Self::Error | Self::NotFound | Self::Stuck | Self::Unavailable | Self::Corrupt => {
                FailureKind::Error
            }
        }
    }
}

impl From<FailureKind> for ErrorKind {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Fatal => Self::Fatal,
            FailureKind::Panic => Self::Panic,
            FailureKind::Timeout => Self::Timeout,
            FailureKind::Cancelled => Self::Cancelled,
            FailureKind::MaybeAttempted => Self::MaybeAttempted,
            FailureKind::Limit => Self::Limit,
            FailureKind::Invalid => Self::Invalid,
            FailureKind::Conflict => Self::Conflict,
            FailureKind::Unknown => Self::Unknown,
            _ => Self::Error,
        }
    }
}

/// An error of a workflow or of a client call.
///
/// Any `std::error::Error` converts to it with `?`. An error that a workflow receives from an operation is recorded in
/// the history, so it is the same in every replay.
///
/// ```
/// use outlast::Error;
///
/// fn total(text: &str) -> Result<u32, Error> {
///     let number: u32 = text.parse()?; // any std error
///     if number == 0 {
///         return Err(Error::msg("an order needs at least one item"));
///     }
///     Ok(number)
/// }
/// assert_eq!(total("0").unwrap_err().to_string(), "an order needs at least one item");
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    failure: Failure,
    /// The input of the next generation, if a workflow returns this error to continue as one.
    next_input: Option<NextInput>,
}

/// The input with which a run continues as its next generation.
#[derive(Debug)]
pub(crate) struct NextInput {
    pub(crate) input: Payload,
    /// Whether the next generation has the version of this one.
    pub(crate) is_pinned: bool,
}

impl Error {
    /// Creates an error with a message.
    pub fn msg(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Error, Failure::new(FailureKind::Error, message))
    }

    /// Adds machine-readable details, which are stored with the error.
    ///
    /// Details that exceed 64 KiB or have no JSON form are left out, and the message says so.
    #[must_use]
    pub fn with_details(mut self, details: impl Serialize) -> Self {
        self.0.failure = self.0.failure.with_details(details);
        self
    }

    /// Adds a machine-readable code, such as `"card_declined"`, which is stored with the error.
    ///
    /// A code of more than 128 bytes is truncated.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.0.failure = self.0.failure.with_code(code);
        self
    }

    /// Converts a boxed error: a `Box<dyn Error + Send + Sync>`, an `anyhow::Error` or a text. The chain of its sources
    /// is kept.
    ///
    /// ```
    /// # use outlast::Error;
    /// type Boxed = Box<dyn std::error::Error + Send + Sync>;
    /// fn old_code() -> Result<u32, Boxed> { Err("no answer".into()) }
    ///
    /// fn total() -> Result<u32, Error> {
    ///     old_code().map_err(Error::from_boxed)
    /// }
    /// assert_eq!(total().unwrap_err().to_string(), "no answer");
    /// ```
    pub fn from_boxed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::of_any(&*error.into())
    }

    /// Creates an error of a given kind. Use it to test code that distinguishes kinds, or to pass on an error of
    /// another system.
    ///
    /// ```
    /// use outlast::{Error, ErrorKind};
    ///
    /// fn is_worth_a_refund(error: &Error) -> bool {
    ///     error.is_timeout() || error.is_cancelled()
    /// }
    /// assert!(is_worth_a_refund(&Error::of_kind(ErrorKind::Timeout, "no answer from the bank")));
    /// assert!(!is_worth_a_refund(&Error::of_kind(ErrorKind::Invalid, "no such card")));
    /// ```
    pub fn of_kind(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::new(kind, Failure::new(kind.recorded(), message))
    }

    fn new(kind: ErrorKind, failure: Failure) -> Self {
        Self(Box::new(Inner { kind, failure, next_input: None }))
    }

    /// The error with which a workflow continues as the next generation of its run.
    pub(crate) fn continue_as(next: NextInput) -> Self {
        let mut error = Self::msg(
            "`ctx.continue_as(…)` has no effect unless the workflow returns its result; write `return ctx.continue_as(…)` \
             in a workflow whose error type is `outlast::Error`",
        );
        error.0.next_input = Some(next);
        error
    }

    /// Takes the input of the next generation.
    pub(crate) fn take_next_input(&mut self) -> Option<NextInput> {
        self.0.next_input.take()
    }

    /// The same error, with the compensations that failed.
    pub(crate) fn with_failed_compensations(mut self, failed: Vec<FailedCompensation>) -> Self {
        self.0.failure = self.0.failure.with_failed_compensations(failed);
        self
    }

    /// Returns the compensations that failed for good, if the error is that of a run or saga that was compensated. At
    /// most 100 are listed.
    pub fn failed_compensations(&self) -> &[FailedCompensation] {
        &self.0.failure.failed_compensations
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::of_kind(ErrorKind::Invalid, message)
    }

    /// The same error with kind `Invalid`.
    pub(crate) fn into_invalid(mut self) -> Self {
        self.0.kind = ErrorKind::Invalid;
        self.0.failure.kind = FailureKind::Invalid;
        self
    }

    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::of_kind(ErrorKind::Timeout, message)
    }

    pub(crate) fn stuck(message: impl Into<String>) -> Self {
        Self::of_kind(ErrorKind::Stuck, message)
    }

    pub(crate) fn of_failure(failure: Failure) -> Self {
        Self::new(failure.kind.into(), failure)
    }

    pub(crate) fn of_world(error: &WorldError) -> Self {
        let kind = match error {
            WorldError::NotFound(_) => ErrorKind::NotFound,
            WorldError::Conflict(_) | WorldError::Fenced(_) => ErrorKind::Conflict,
            WorldError::Limit(_) => ErrorKind::Limit,
            WorldError::Unavailable(_) => ErrorKind::Unavailable,
            WorldError::Corrupt(_) | WorldError::Gone(_) => ErrorKind::Corrupt,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, Failure::of_error(FailureKind::Error, error))
    }

    pub(crate) fn into_failure(self) -> Failure {
        self.0.failure
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns whether the run was cancelled. This includes steps that
    /// [may have been attempted](Self::is_maybe_attempted).
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Cancelled | ErrorKind::MaybeAttempted)
    }

    /// Returns whether a cancel ended a step that a lost worker may have attempted. Undo such a step as if it had
    /// happened.
    pub fn is_maybe_attempted(&self) -> bool {
        self.0.kind == ErrorKind::MaybeAttempted
    }

    /// Returns whether the run is stuck, and waits for a fix.
    pub fn is_stuck(&self) -> bool {
        self.0.kind == ErrorKind::Stuck
    }

    /// Returns whether the request conflicts with the current state: for example, a key belongs to another run.
    pub fn is_conflict(&self) -> bool {
        self.0.kind == ErrorKind::Conflict
    }

    /// Returns the run with which a request conflicts, if that is known: the one that holds the token of a hook.
    pub fn conflicting_run(&self) -> Option<RunId> {
        let failure = &self.0.failure;
        let details = failure.details.as_ref().filter(|_| failure.code.as_deref() == Some(TOKEN_TAKEN))?;
        details.get("run")?.as_str()?.parse().ok()
    }

    /// Returns whether a timeout elapsed.
    pub fn is_timeout(&self) -> bool {
        self.0.kind == ErrorKind::Timeout
    }

    /// Returns whether a step has used up its attempts: every attempt ended with an error, a panic or a timeout, and
    /// none is left. The kind of the error is that of the last attempt.
    ///
    /// It is false for an error that is not retried, because it is fatal or because the step's [`Retry`] excludes its
    /// class.
    ///
    /// [`Retry`]: crate::Retry
    pub fn is_exhausted(&self) -> bool {
        self.0.failure.is_exhausted
    }

    /// Returns the machine-readable code of the error, if it has one.
    pub fn code(&self) -> Option<&str> {
        self.0.failure.code.as_deref()
    }

    /// Returns the class of the error, which says where its cause lies, if known.
    pub fn class(&self) -> Option<ErrorClass> {
        self.0.failure.class()
    }

    /// Returns the message without the step's name.
    pub fn message(&self) -> &str {
        &self.0.failure.message
    }

    /// Returns the name of the step that failed, if a step failed.
    pub fn step(&self) -> Option<&str> {
        self.0.failure.step.as_deref()
    }

    /// Returns how often the step was attempted, if a step failed.
    pub fn attempts(&self) -> u32 {
        self.0.failure.attempts
    }

    /// Returns the messages of the chain of sources, outermost first.
    pub fn causes(&self) -> &[String] {
        &self.0.failure.causes
    }

    /// Returns the Rust type of the error that a step converted with `?`, such as `std::io::Error`. It is for people: names
    /// of types change from build to build, so code should decide by [`code`](Self::code) or [`class`](Self::class).
    pub fn type_name(&self) -> Option<&str> {
        self.0.failure.origin.as_ref()?.type_name.as_deref()
    }

    /// Returns the calls that led to the error of a step, at most 8 KiB. It is recorded only if the environment variable
    /// `OUTLAST_BACKTRACE` is set to something else than `0` for the worker: it takes milliseconds, and space in the history.
    pub fn backtrace(&self) -> Option<&str> {
        self.0.failure.origin.as_ref()?.backtrace.as_deref()
    }

    /// Returns the details of the error, if it has details that can be decoded as a `T`.
    pub fn details<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_value(*self.0.failure.details.clone()?).ok()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_failure(&self.0.failure, f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_failure(&self.0.failure, f)?;
        for cause in &self.0.failure.causes {
            write!(f, "\n  caused by: {cause}")?;
        }
        Ok(())
    }
}

fn write_failure(failure: &Failure, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match &failure.step {
        Some(step) if failure.attempts > 1 => {
            write!(f, "step `{step}` failed after {} attempts: {}", failure.attempts, failure.message)
        }
        Some(step) => write!(f, "step `{step}` failed: {}", failure.message),
        None => f.write_str(&failure.message),
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::of_any(&error)
    }
}

impl Error {
    fn of_any(any: &(dyn std::error::Error + 'static)) -> Self {
        let kind = if let Some(Boxed { error, .. }) = any.downcast_ref::<Boxed>() {
            return Self::new(error.0.kind, error.0.failure.clone());
        } else if let Some(world) = any.downcast_ref::<WorldError>() {
            return Self::of_world(world);
        } else if let Some(payload) = any.downcast_ref::<PayloadError>() {
            kind_of_payload(payload)
        } else if any.is::<InvalidDuration>() {
            FailureKind::Invalid
        } else if let Some(race) = any.downcast_ref::<RaceError<Self>>() {
            kind_of_all(race.errors())
        } else {
            FailureKind::Error
        };
        Self::of_failure(Failure::of_error(kind, any))
    }
}

/// The kind of all errors, if they have the same: a race whose futures were all cancelled was cancelled.
fn kind_of_all(errors: &[Error]) -> FailureKind {
    let mut kinds = errors.iter().map(|error| error.0.failure.kind);
    let first = kinds.next().unwrap_or(FailureKind::Error);
    if kinds.all(|kind| kind == first) { first } else { FailureKind::Error }
}

pub(crate) fn kind_of_payload(error: &PayloadError) -> FailureKind {
    match error {
        PayloadError::TooLarge { .. } | PayloadError::TooDeep { .. } => FailureKind::Limit,
        _ => FailureKind::Invalid,
    }
}

/// The remedy for a stored value that the code cannot decode.
const UNREADABLE_REMEDY: &str =
    "add `#[serde(default)]` if a field was added, or deploy a build that can read it";

/// Why a run is stuck whose code cannot decode a stored value. When the worker lacks the codec (`is_coded`), the
/// message names the remedy itself.
pub(crate) fn stuck_on_unreadable(is_coded: bool, message: impl fmt::Display) -> Stuck {
    let (reason, message) = match is_coded {
        true => (StuckReason::Unreadable, message.to_string()),
        false => (StuckReason::Undecodable, format!("{message}; {UNREADABLE_REMEDY}")),
    };
    Stuck::new(reason, message)
}

/// An [`Error`] in a box. A `main` that returns it prints the message and its causes, without quotes. Its sources are the
/// causes, as they are recorded.
struct Boxed {
    error: Error,
    source: Option<Cause>,
}

impl Boxed {
    fn new(error: Error) -> Self {
        Self { source: Cause::of_messages(error.causes()), error }
    }
}

impl std::error::Error for Boxed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_ref()?)
    }
}

impl fmt::Display for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl fmt::Debug for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl From<Error> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: Error) -> Self {
        Box::new(Boxed::new(error))
    }
}

impl From<Error> for Box<dyn std::error::Error> {
    fn from(error: Error) -> Self {
        Box::new(Boxed::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_another_run_is_retried_unless_it_cannot_end_better() {
        let of = |kind| StepError::from(Error::of_failure(Failure::new(kind, "no")));
        for kind in [FailureKind::Cancelled, FailureKind::Unknown, FailureKind::Timeout, FailureKind::Error] {
            assert!(!of(kind).is_fatal(), "{kind:?}");
        }
        for kind in [FailureKind::Fatal, FailureKind::Invalid, FailureKind::Limit] {
            assert!(of(kind).is_fatal(), "{kind:?}");
        }
        let error = StepError::from(Error::msg("declined").with_code("card_declined"));
        assert_eq!(Error::from(error).code(), Some("card_declined"));
    }

    #[test]
    fn an_error_that_main_returns_in_a_box_is_printed_as_it_is() {
        let source = std::io::Error::other("connection refused");
        let mut failure = Failure::new(FailureKind::Error, "no \"bank\"");
        failure.causes = [source.to_string()].into();
        let boxed: Box<dyn std::error::Error> = Error::of_failure(failure).into();
        assert_eq!(boxed.to_string(), "no \"bank\"");
        assert_eq!(format!("{boxed:?}"), "no \"bank\"\n  caused by: connection refused");
        assert_eq!(boxed.source().unwrap().to_string(), "connection refused");
        let boxed: Box<dyn std::error::Error + Send + Sync> = StepError::msg("no \"card\"").into();
        assert_eq!(format!("{boxed:?}"), "no \"card\"");
    }

    #[test]
    fn an_error_of_a_world_keeps_its_causes() {
        let refused = std::io::Error::other("connection refused");
        let error =
            Error::from(WorldError::Unavailable("the world does not respond".into()).caused_by(&refused));
        assert_eq!(
            (error.kind(), error.causes()),
            (ErrorKind::Unavailable, &["connection refused".to_owned()][..])
        );
        let boxed: Box<dyn std::error::Error> = error.into();
        assert_eq!(boxed.source().unwrap().to_string(), "connection refused");
    }

    #[test]
    fn an_error_comes_out_of_a_box_as_it_went_in() {
        let boxed: Box<dyn std::error::Error + Send + Sync> = Error::timeout("late").with_code("slow").into();
        let error = Error::from_boxed(boxed);
        assert_eq!((error.kind(), error.code()), (ErrorKind::Timeout, Some("slow")));
        let boxed: Box<dyn std::error::Error + Send + Sync> =
            StepError::fatal("no").with_code("declined").into();
        assert_eq!(StepError::from_boxed(boxed).message(), "no");
    }

    #[test]
    fn a_boxed_error_is_known_by_what_is_in_the_box() {
        let boxed = || -> Box<dyn std::error::Error + Send + Sync> {
            Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
        };
        assert_eq!(Error::from_boxed(boxed()).class(), Some(ErrorClass::Network));
        assert_eq!(Error::from(StepError::from_boxed(boxed())).class(), Some(ErrorClass::Network));
        let world: Box<dyn std::error::Error + Send + Sync> =
            Box::new(WorldError::Unavailable("gone".into()));
        assert_eq!(Error::from_boxed(world).kind(), ErrorKind::Unavailable);
        assert_eq!(StepError::from_boxed("a text").message(), "a text");
    }
}
