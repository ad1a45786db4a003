//! Failures: errors as recorded in the history.

mod origin;

use serde::{Deserialize, Serialize};

pub use self::origin::FailureOrigin;
use crate::limits::{
    FAILED_COMPENSATIONS_MAX, FAILURE_CAUSES_MAX, FAILURE_DETAILS_BYTES_MAX, FAILURE_TEXT_BYTES_MAX,
    NAME_BYTES_MAX,
};
use crate::payload::{Payload, PayloadError};

/// An error as recorded in the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// Its kind.
    pub kind: FailureKind,
    /// The message.
    pub message: String,
    /// The durable code of the error, such as `card_declined`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Box<str>>,
    /// The class of the cause, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ErrorClass>,
    /// The step that failed, when a step did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Box<str>>,
    /// The operation of the run that it came from, when a workflow returned the error of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<Box<u64>>,
    /// The number of attempts, when a step failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// Whether the failure could have been retried, but no attempt was left.
    #[serde(default, rename = "exhausted", skip_serializing_if = "is_false")]
    pub is_exhausted: bool,
    /// Machine-readable details.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub details: Option<Box<serde_json::Value>>,
    /// The chain of sources below the error, outermost first.
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    pub causes: Box<[String]>,
    /// The compensations that failed for good, when a run or saga failed and was compensated.
    #[serde(default, skip_serializing_if = "<[FailedCompensation]>::is_empty")]
    pub failed_compensations: FailedCompensations,
    /// Where the error was made, when a step failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<FailureOrigin>>,
}

/// Compensations that failed for good. Few failures have any, and failures are part of most results, so the list is a
/// single pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<FailedCompensation>", into = "Vec<FailedCompensation>")]
pub struct FailedCompensations(Option<Box<CompensationList>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct CompensationList {
    list: Vec<FailedCompensation>,
}

impl From<Vec<FailedCompensation>> for FailedCompensations {
    fn from(list: Vec<FailedCompensation>) -> Self {
        Self((!list.is_empty()).then(|| Box::new(CompensationList { list })))
    }
}

impl From<FailedCompensations> for Vec<FailedCompensation> {
    fn from(failed: FailedCompensations) -> Self {
        failed.0.map(|failed| failed.list).unwrap_or_default()
    }
}

impl std::ops::Deref for FailedCompensations {
    type Target = [FailedCompensation];

    fn deref(&self) -> &[FailedCompensation] {
        self.0.as_ref().map_or(&[], |failed| &failed.list)
    }
}

/// A compensation that failed for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedCompensation {
    /// The operation that registered it.
    pub op: u64,
    /// Its step.
    pub step: String,
    /// The message of its failure.
    pub message: String,
}

impl FailedCompensation {
    /// The compensation that operation `op` registered, and its failure.
    pub fn new(op: u64, step: impl Into<String>, failure: &Failure) -> Self {
        Self { op, step: step.into(), message: failure.message.clone() }
    }
}

/// The kind of a failure, for code that handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The user's code returned an error.
    Error,
    /// The user's code returned an error that must not be retried.
    Fatal,
    /// The user's code panicked.
    Panic,
    /// Time ran out.
    Timeout,
    /// The run was cancelled.
    Cancelled,
    /// A limit was exceeded.
    Limit,
    /// A value is not valid: a payload of another type, a text that is not a duration.
    Invalid,
    /// The call conflicts with existing data, such as a key that names another run.
    Conflict,
    /// It is unknown whether the effect happened: the worker was lost while it attempted the step.
    Unknown,
    /// The run was cancelled, and a lost worker may have attempted the step before.
    MaybeAttempted,
}

/// The class of the cause of an error, which indicates whether a retry may succeed.
///
/// An attempt's error has the class that its author set, or that of the first `std::io::Error` among
/// its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorClass {
    /// The network: connection refused or reset, unreachable, too slow.
    Network,
    /// The server limits the rate of requests.
    RateLimit,
    /// The server: overloaded, failing, restarting.
    Server,
    /// A temporary cause. When classes are selected, it means all of them.
    Transient,
}

impl ErrorClass {
    /// The class of an error: that of the first `std::io::Error` among it and its sources.
    ///
    /// ```
    /// use outlast_core::ErrorClass;
    /// use std::io::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::ConnectionReset, "gone");
    /// assert_eq!(ErrorClass::of(&error), Some(ErrorClass::Network));
    /// assert_eq!(ErrorClass::of(&Error::new(ErrorKind::NotFound, "no such file")), None);
    /// ```
    pub fn of(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut chain = std::iter::successors(Some(error), |error| error.source());
        chain.find_map(|error| {
            let io = error.downcast_ref::<std::io::Error>()?;
            // The error inside an I/O error is not its `source`, but replaces it.
            Self::of_io(io.kind()).or_else(|| Self::of(io.get_ref()?))
        })
    }

    fn of_io(kind: std::io::ErrorKind) -> Option<Self> {
        use std::io::ErrorKind as Io;
        Some(match kind {
            Io::ConnectionRefused
            | Io::ConnectionReset
            | Io::ConnectionAborted
            | Io::NotConnected
            | Io::HostUnreachable
            | Io::NetworkUnreachable
            | Io::NetworkDown
            | Io::AddrNotAvailable
            | Io::BrokenPipe
            | Io::UnexpectedEof
            | Io::TimedOut => Self::Network,
            Io::Interrupted | Io::WouldBlock | Io::ResourceBusy | Io::Deadlock => Self::Transient,
            _ => return None,
        })
    }
}

impl FailureKind {
    /// Whether another attempt could succeed.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Error | Self::Panic | Self::Timeout)
    }
}

/// How the message of the failure of a terminated run begins.
const TERMINATED: &str = "terminated: ";

/// The reason of an operation that its own workflow cancelled.
pub const CANCELLED_BY_WORKFLOW: &str = "by its workflow";

impl Failure {
    /// A failure of this kind with this message.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let message = cut(message.into());
        Self {
            kind,
            message,
            code: None,
            class: None,
            step: None,
            op: None,
            attempts: 0,
            is_exhausted: false,
            details: None,
            causes: Box::default(),
            failed_compensations: FailedCompensations::default(),
            origin: None,
        }
    }

    /// The failure of a Rust error: its message, those of its sources, and its class.
    pub fn of_error(kind: FailureKind, error: &(dyn std::error::Error + 'static)) -> Self {
        let causes = std::iter::successors(error.source(), |cause| cause.source());
        let mut failure = Self::new(kind, error.to_string());
        failure.causes = causes.take(FAILURE_CAUSES_MAX).map(|cause| cut(cause.to_string())).collect();
        failure.class = ErrorClass::of(error);
        failure
    }

    /// This failure as that of an operation, which a run gets when it awaits the operation.
    #[must_use]
    pub fn of_operation(mut self, op: u64) -> Self {
        self.op = Some(Box::new(op));
        self
    }

    /// This failure with a code, truncated to the maximum length of a name.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(cut_to(code.into(), NAME_BYTES_MAX).into());
        self
    }

    /// This failure with machine-readable details. Details that exceed a limit or cannot be serialized as JSON are
    /// omitted, and the message says so.
    #[must_use]
    pub fn with_details(mut self, details: impl Serialize) -> Self {
        let too_large = |bytes| format!("they have {bytes} bytes, the limit is {FAILURE_DETAILS_BYTES_MAX}");
        let problem = match Payload::json(&details) {
            Ok(json) if json.bytes().len() <= FAILURE_DETAILS_BYTES_MAX => {
                self.details = json.decode().ok();
                return self;
            }
            Ok(json) => too_large(json.bytes().len()),
            Err(PayloadError::TooLarge { bytes }) => too_large(bytes),
            Err(error) => error.to_string(),
        };
        self.details = None;
        self.add_to_message(&format!(" (its details are left out: {problem})"));
        self
    }

    /// Adds a note to the message, which is truncated if it is too long.
    pub fn add_to_message(&mut self, note: &str) {
        let note = cut(note.to_owned());
        let message = cut_to(std::mem::take(&mut self.message), FAILURE_TEXT_BYTES_MAX - note.len());
        self.message = message + &note;
    }

    /// This failure with the compensations that failed. The message names the first few.
    #[must_use]
    pub fn with_failed_compensations(mut self, failed: Vec<FailedCompensation>) -> Self {
        let Some(first) = failed.first() else { return self };
        let others = match failed.len() - 1 {
            0 => String::new(),
            others => format!(", and {others} more"),
        };
        let note = format!(
            " (a compensation failed: `{}`, operation {}: {}{others})",
            first.step, first.op, first.message
        );
        self.add_to_message(&note);
        let mut all: Vec<_> = std::mem::take(&mut self.failed_compensations).into();
        all.extend(failed);
        all.truncate(FAILED_COMPENSATIONS_MAX);
        self.failed_compensations = all.into();
        self
    }

    /// The failure of a run that was ended without its code.
    pub fn terminated(reason: &str) -> Self {
        Self::new(FailureKind::Cancelled, format!("{TERMINATED}{reason}"))
    }

    /// Whether it is the failure of a run that was ended without its code.
    pub fn is_termination(&self) -> bool {
        self.kind == FailureKind::Cancelled && self.message.starts_with(TERMINATED)
    }

    /// The failure of an operation that ended because its run was cancelled.
    pub fn cancelled(reason: &str) -> Self {
        Self::new(FailureKind::Cancelled, format!("cancelled: {reason}"))
    }

    /// The failure of a step that a cancel ended, and that a lost worker may have attempted.
    pub fn maybe_attempted(reason: &str) -> Self {
        let message =
            format!("cancelled: {reason}; a worker that was lost may have attempted the step before");
        Self::new(FailureKind::MaybeAttempted, message)
    }

    /// Whether a cancel ended the operation, of its run or by its workflow.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.kind, FailureKind::Cancelled | FailureKind::MaybeAttempted)
    }

    /// The class of the cause; a timeout is transient.
    pub fn class(&self) -> Option<ErrorClass> {
        self.class.or_else(|| (self.kind == FailureKind::Timeout).then_some(ErrorClass::Transient))
    }

    /// This failure as that of `step` after this number of attempts.
    #[must_use]
    pub fn of_step(mut self, step: impl Into<Box<str>>, attempts: u32) -> Self {
        self.step = Some(step.into());
        self.attempts = attempts;
        self
    }
}

fn cut(text: String) -> String {
    cut_to(text, FAILURE_TEXT_BYTES_MAX)
}

/// Truncates a text to a limit, at a character boundary.
fn cut_to(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// Reads a present field as a value, including `null`.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<serde_json::Value>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

// serde's `skip_serializing_if` passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_the_chain_of_sources() {
        #[derive(Debug, thiserror::Error)]
        #[error("the bank said no")]
        struct Refused(#[source] std::num::ParseIntError);
        let error = Refused("x".parse::<i32>().unwrap_err());
        let failure = Failure::of_error(FailureKind::Error, &error);
        assert_eq!(failure.message, "the bank said no");
        assert_eq!(*failure.causes, ["invalid digit found in string"]);
    }

    #[test]
    fn the_class_of_an_error_is_that_of_the_io_error_below_it() {
        #[derive(Debug, thiserror::Error)]
        #[error("the bank does not answer")]
        struct Silent(#[source] std::io::Error);
        let class = |kind: std::io::ErrorKind| {
            Failure::of_error(FailureKind::Error, &Silent(std::io::Error::new(kind, "x"))).class
        };
        assert_eq!(class(std::io::ErrorKind::ConnectionRefused), Some(ErrorClass::Network));
        assert_eq!(class(std::io::ErrorKind::Interrupted), Some(ErrorClass::Transient));
        assert_eq!(class(std::io::ErrorKind::PermissionDenied), None);
        let wrapped = std::io::Error::other(Silent(std::io::ErrorKind::ConnectionReset.into()));
        assert_eq!(ErrorClass::of(&wrapped), Some(ErrorClass::Network));
    }

    #[test]
    fn details_past_the_limit_are_left_out_and_the_message_says_so() {
        let failure = || Failure::new(FailureKind::Error, "fat");
        let largest = "y".repeat(FAILURE_DETAILS_BYTES_MAX - 2);
        assert!(failure().with_details(&largest).details.is_some());
        for (details, bytes) in [(largest + "y", "65537 bytes"), ("y".repeat(5_000_000), "5000002 bytes")] {
            let failure = failure().with_details(details);
            assert_eq!(failure.details, None);
            assert!(failure.message.starts_with("fat (its details are left out: "), "{}", failure.message);
            assert!(failure.message.contains(bytes), "{}", failure.message);
        }
        let deep = (0..100).fold(serde_json::Value::Null, |inner, _| serde_json::json!([inner]));
        let long = Failure::new(FailureKind::Error, "ü".repeat(FAILURE_TEXT_BYTES_MAX)).with_details(deep);
        assert!(long.details.is_none() && long.message.len() <= FAILURE_TEXT_BYTES_MAX);
        assert!(long.message.ends_with("flatten it)"), "{}", &long.message[8_000..]);
    }

    #[test]
    fn details_that_are_null_stay_null() {
        let failure = Failure {
            details: Some(Box::new(serde_json::Value::Null)),
            ..Failure::new(FailureKind::Error, "x")
        };
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
    }

    #[test]
    fn a_long_message_is_cut_at_a_characters_border() {
        let failure = Failure::new(FailureKind::Error, "ü".repeat(FAILURE_TEXT_BYTES_MAX));
        assert!(failure.message.len() <= FAILURE_TEXT_BYTES_MAX && failure.message.ends_with('ü'));
    }
}
