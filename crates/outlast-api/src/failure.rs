//! Failures in responses.

use outlast_core::Failure;
use serde::{Deserialize, Serialize};

/// An error as recorded in history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureJson {
    /// What sort of error: `error`, `fatal`, `panic`, `timeout`, `cancelled`, `limit`, `invalid`, …
    pub kind: String,
    /// The message.
    pub message: String,
    /// The code that the program gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Where the cause lies: `network`, `rate_limit`, `server`, `transient`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The step that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The number of its attempts.
    #[serde(default)]
    pub attempts: u32,
    /// Whether the step had no attempts left.
    #[serde(default)]
    pub exhausted: bool,
    /// Details that the program added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
    /// The messages of the causes, the nearest first.
    #[serde(default)]
    pub causes: Vec<String>,
    /// The compensations that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_compensations: Vec<FailedCompensationJson>,
}

/// A compensation that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailedCompensationJson {
    /// Its operation.
    pub op: u64,
    /// Its step.
    pub step: String,
    /// The message.
    pub message: String,
}

impl From<&Failure> for FailureJson {
    fn from(failure: &Failure) -> Self {
        let failed = failure.failed_compensations.iter().map(|failed| FailedCompensationJson {
            op: failed.op,
            step: failed.step.clone(),
            message: failed.message.clone(),
        });
        Self {
            kind: name_of(&failure.kind),
            message: failure.message.clone(),
            code: failure.code.as_deref().map(Into::into),
            class: failure.class().as_ref().map(name_of),
            step: failure.step.as_deref().map(Into::into),
            attempts: failure.attempts,
            exhausted: failure.is_exhausted,
            details: failure.details.as_deref().cloned(),
            causes: failure.causes.to_vec(),
            failed_compensations: failed.collect(),
        }
    }
}

/// The name of a unit variant in JSON.
pub(crate) fn name_of(variant: &impl Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(name)) => name,
        _ => "other".into(),
    }
}
