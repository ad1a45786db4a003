//! Retries of runs that have failed.

use outlast_core::RunId;
use serde::{Deserialize, Serialize};

use crate::start::TimeOrDuration;

/// A request to continue a run from the operation that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryRunRequest {
    /// The operation from which it continues; the one that failed unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Its deadline: a time, or a duration from now on. It keeps its own unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub deadline: Option<TimeOrDuration>,
    /// Whether steps may be attempted again that are attempted at most once.
    #[serde(default)]
    pub force: bool,
    /// Whether only to say what would run again.
    #[serde(default)]
    pub dry_run: bool,
    /// The reason, which history shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a retry would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetryPlanJson {
    /// The operation from which the run continues.
    pub reopens: u64,
    /// The first event that is skipped.
    pub from_event: u64,
    /// The number of events that are skipped.
    pub skipped_events: u64,
    /// The number of outcomes and payloads among them that are recorded again.
    pub recorded_again: u64,
    /// The operations that are open again: steps run again, waits begin again.
    pub open: Vec<PlannedOperationJson>,
}

/// An operation that is open after a retry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlannedOperationJson {
    /// The operation.
    pub op: u64,
    /// Its kind: `step`, `timer`, `hook`, `child`.
    pub kind: String,
    /// The name of the step, hook or workflow.
    pub name: String,
    /// The queue of a queued step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Whether it is attempted at most once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_most_once: bool,
    /// The run of a child or queued step so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub run: Option<RunId>,
}
