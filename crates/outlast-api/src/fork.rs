//! Forks of runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::retry::PlannedOperationJson;

/// A request to start a new run with the events of another one before an event, or before the outcome of an operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// The event before which all events are copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// Other outcomes, by the numbers of operations, instead of an event: outputs of steps and children, payloads of
    /// hooks, recorded values. Everything after the earliest recorded outcome is dropped.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, serde_json::Value>))]
    pub outputs: BTreeMap<u64, Box<RawValue>>,
    /// Whether steps may be attempted again that are attempted at most once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Whether only to say what would run again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// What a fork would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForkPlanJson {
    /// The first event that is not copied.
    pub event: u64,
    /// The number of events that are not copied.
    pub dropped_events: u64,
    /// The operations that are open there: steps run again, waits begin again.
    pub open: Vec<PlannedOperationJson>,
    /// The operations that the run has requested since. The workflow decides anew about them.
    pub later: Vec<PlannedOperationJson>,
    /// The operations that get other outcomes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<PlannedOutputJson>,
}

/// An operation that gets another outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlannedOutputJson {
    /// The operation.
    pub op: u64,
    /// Its kind: `step`, `hook`, `child`, `value`.
    pub kind: String,
    /// The name of the step, hook, workflow or value.
    pub name: String,
}
