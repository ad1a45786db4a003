//! Requests that control runs.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::retry::RetryPlanJson;
use crate::rfc3339::Rfc3339;
use crate::run::RunJson;

/// A request to cancel a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// The reason, which history shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A request to end a run without its code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TerminateRequest {
    /// The reason, which history shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether its compensations run first.
    #[serde(default)]
    pub compensating: bool,
}

/// A request to pause a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// The reason, which an explanation shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A request to end sleeps of a run early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WakeRequest {
    /// The operation of the timer; all open timers unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<u64>,
}

/// A request to start a new run with the workflow and input of another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RestartRequest {
    /// Another input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub input: Option<Box<RawValue>>,
}

/// A request to delete the runs that ended before a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PruneRequest {
    /// The time.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub ended_before: Rfc3339,
    /// Only count the runs.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of a prune.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrunedJson {
    /// The number of runs that were deleted. In a dry run that would be, counted to 10,000.
    pub deleted: u64,
    /// Whether a dry run has stopped to count: there are more.
    #[serde(default)]
    pub more: bool,
}

/// The result of a call that controls a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ControlledJson {
    /// What was done.
    pub did: DidWhat,
    /// The run afterwards.
    pub run: RunJson,
    /// What a retry would do, if it was a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<RetryPlanJson>,
}

/// What a call that controls a run has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DidWhat {
    /// The request was accepted.
    Requested,
    /// The same was requested before, and is still in effect.
    Already,
    /// There was nothing to do.
    Nothing,
}
