//! Failures: errors as written in history.

use serde::{Deserialize, Serialize};

use crate::limits::{FAILURE_CAUSES_MAX, FAILURE_TEXT_BYTES_MAX};

/// An error as written in history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What sort of failure it is.
    pub kind: FailureKind,
    /// What happened, for a person.
    pub message: String,
    /// The step that failed, when a step did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// How often the step was attempted, when a step failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// What the author of the error added for machines.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub details: Option<serde_json::Value>,
    /// The chain of sources below the error, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
}

/// What sort of failure it is: what code that handles it can tell apart.
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
    /// A limit was passed.
    Limit,
    /// A value does not fit: a payload of another type, a text that is not a duration.
    Invalid,
}

impl FailureKind {
    /// Whether another attempt could end better.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Error | Self::Panic | Self::Timeout)
    }
}

impl Failure {
    /// A failure of this kind with this message.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let message = cut(message.into());
        Self { kind, message, step: None, attempts: 0, details: None, causes: Vec::new() }
    }

    /// The failure of a Rust error: its message, and those of its sources.
    pub fn of_error(kind: FailureKind, error: &(dyn std::error::Error + 'static)) -> Self {
        let causes = std::iter::successors(error.source(), |cause| cause.source());
        let mut failure = Self::new(kind, error.to_string());
        failure.causes = causes.take(FAILURE_CAUSES_MAX).map(|cause| cut(cause.to_string())).collect();
        failure
    }

    /// This failure as that of `step` after so many attempts.
    #[must_use]
    pub fn of_step(mut self, step: impl Into<String>, attempts: u32) -> Self {
        self.step = Some(step.into());
        self.attempts = attempts;
        self
    }
}

/// Cuts a text to the limit, at a character's border.
fn cut(mut text: String) -> String {
    if text.len() > FAILURE_TEXT_BYTES_MAX {
        let end = (0..=FAILURE_TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// Reads a field that is there as a value, `null` included.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(deserializer).map(Some)
}

// serde's `skip_serializing_if` passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
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
        assert_eq!(failure.causes, ["invalid digit found in string"]);
    }

    #[test]
    fn details_that_are_null_stay_null() {
        let failure =
            Failure { details: Some(serde_json::Value::Null), ..Failure::new(FailureKind::Error, "x") };
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
    }

    #[test]
    fn a_long_message_is_cut_at_a_characters_border() {
        let failure = Failure::new(FailureKind::Error, "ü".repeat(FAILURE_TEXT_BYTES_MAX));
        assert!(failure.message.len() <= FAILURE_TEXT_BYTES_MAX && failure.message.ends_with('ü'));
    }
}
