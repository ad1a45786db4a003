//! The same action for many runs.

use std::collections::BTreeMap;

use outlast_core::{RunId, Status};
use serde::{Deserialize, Serialize};

use crate::rfc3339::Rfc3339;
use crate::role::Role;
use crate::run::RunJson;
use crate::runs::RunFilter;

/// What is done to each run of a bulk request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BulkAction {
    /// Ask it to stop.
    Cancel,
    /// End it without its code.
    Terminate,
    /// Hold it back.
    Pause,
    /// End its pause, or let failed builds try again.
    Resume,
    /// Start a new run with its input.
    Restart,
    /// Delete it.
    Delete,
}

impl BulkAction {
    /// The role that the action needs for many runs.
    pub const fn role(self) -> Role {
        match self {
            Self::Terminate | Self::Delete => Role::Admin,
            _ => Role::Operate,
        }
    }
}

/// A request for the same action on many runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BulkRequest {
    /// The action.
    pub action: BulkAction,
    /// The runs. Queued steps, built-in runs and runs in quarantine are left out.
    pub query: BulkRunFilter,
    /// The reason, which the history of each run shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether only to count the runs. It must be `true`.
    pub dry_run: bool,
}

/// The runs of a bulk request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BulkRunFilter {
    /// Only runs in one of these statuses; those that the action fits unless set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub status: Vec<Status>,
    /// Only runs with one of these marks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mark: Vec<String>,
    /// Only runs of this workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Only runs of this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Only children of this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub parent: Option<RunId>,
    /// Only descendants of this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub root: Option<RunId>,
    /// Only runs with these tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Only runs started at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub created_from: Option<Rfc3339>,
    /// Only runs started before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub created_before: Option<Rfc3339>,
    /// Only runs whose id, workflow or key contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl From<BulkRunFilter> for RunFilter {
    fn from(filter: BulkRunFilter) -> Self {
        Self {
            statuses: filter.status,
            marks: filter.mark,
            workflow: filter.workflow,
            queue: filter.queue,
            parent: filter.parent,
            root: filter.root,
            tags: filter.tags,
            created_from: filter.created_from,
            created_before: filter.created_before,
            text: filter.text,
            ..Self::default()
        }
    }
}

/// The runs that a bulk request selects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkPreview {
    /// The number of runs, counted to 10,000.
    pub matched: u64,
    /// Whether there may be more than that.
    pub more: bool,
    /// Their number in each status.
    pub by_status: BTreeMap<String, u64>,
    /// The first 10 of them, the oldest first.
    pub sample: Vec<RunJson>,
}
