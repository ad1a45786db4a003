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
    /// Continue it from its failure.
    Retry,
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
    /// With `terminate`: whether compensations run first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compensating: bool,
    /// Whether only to count the runs.
    #[serde(default)]
    pub dry_run: bool,
    /// Refuse it if more runs match, and stop it when it would concern more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_at_most: Option<u64>,
    /// The largest number of calls per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

impl BulkRequest {
    /// A request for an action on all runs that it fits.
    pub fn new(action: BulkAction) -> Self {
        Self {
            action,
            query: BulkRunFilter::default(),
            reason: None,
            compensating: false,
            dry_run: false,
            expect_at_most: None,
            rate: None,
        }
    }
}

/// A bulk action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkJson {
    /// The run that makes the calls.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: RunId,
    /// What is done to each run.
    pub action: String,
    /// `running`, `completed`, `stopped`, or `failed` if its run did not end by itself.
    pub state: String,
    /// When it was started.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub created_at: Rfc3339,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub ended_at: Option<Rfc3339>,
    /// Who started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The number of runs that matched when it was started, counted to 10,000.
    pub matched: u64,
    /// Whether more runs matched.
    pub more: bool,
    /// The number of runs for which the call was made and not refused.
    pub done: u64,
    /// How many of these had nothing to do, or the same was requested before.
    pub without_effect: u64,
    /// The number of runs that refused the call.
    pub failed: u64,
    /// The number of runs that are left; not if more than 10,000 runs matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// The first 100 refusals.
    #[serde(default)]
    pub problems: Vec<BulkProblemJson>,
    /// Why it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<BulkStopJson>,
}

/// A run that refused the call of a bulk action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkProblemJson {
    /// The run.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run: RunId,
    /// Why.
    pub message: String,
}

/// Why a bulk action was stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkStopJson {
    /// The reason.
    pub reason: String,
    /// Who stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// A request to stop a bulk action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BulkStopRequest {
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
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

impl From<&RunFilter> for BulkRunFilter {
    fn from(filter: &RunFilter) -> Self {
        Self {
            status: filter.statuses.clone(),
            mark: filter.marks.clone(),
            workflow: filter.workflow.clone(),
            queue: filter.queue.clone(),
            parent: filter.parent,
            root: filter.root,
            tags: filter.tags.clone(),
            created_from: filter.created_from,
            created_before: filter.created_before,
            text: filter.text.clone(),
        }
    }
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
