//! What a bulk action does, to which runs.

use outlast_core::{
    BuiltInRuns, FlagFilter, ListOrder, Marks, QueuedSteps, RunId, RunQuery, Status, Tags, Timestamp,
};
use serde::{Deserialize, Serialize};

/// What is done to each run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BulkVerb {
    Cancel { reason: String },
    Terminate { reason: String, compensating: bool },
    Pause { reason: String },
    Resume,
    Retry { reason: String },
    Restart,
    Delete,
}

impl BulkVerb {
    /// The statuses of the runs that it fits; all if there are none.
    pub(crate) fn statuses(&self) -> &'static [Status] {
        const UNFINISHED: &[Status] = &[Status::Pending, Status::Running, Status::Waiting, Status::Stuck];
        const ENDED: &[Status] = &[Status::Completed, Status::Failed, Status::Cancelled];
        match self {
            Self::Cancel { .. } | Self::Terminate { .. } | Self::Pause { .. } | Self::Resume => UNFINISHED,
            Self::Delete => ENDED,
            Self::Retry { .. } => &[Status::Failed],
            Self::Restart => &[],
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Cancel { .. } => "cancel",
            Self::Terminate { .. } => "terminate",
            Self::Pause { .. } => "pause",
            Self::Resume => "resume",
            Self::Retry { .. } => "retry",
            Self::Restart => "restart",
            Self::Delete => "delete",
        }
    }
}

/// An order for a bulk action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BulkOrder {
    pub(crate) verb: BulkVerb,
    pub(crate) query: FrozenQuery,
    /// Only runs before this id: a restart must not restart the runs that it starts.
    pub(crate) until: RunId,
    /// The number of calls per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<u32>,
    /// It stops when it would concern more runs than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_most: Option<u64>,
    /// Who ordered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<String>,
}

/// The filters of a query, as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FrozenQuery {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    marks: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<RunId>,
    #[serde(skip_serializing_if = "Tags::is_empty")]
    tags: Tags,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_before: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_before: Option<Timestamp>,
    /// `retrying` or `cancelling`.
    #[serde(skip_serializing_if = "Option::is_none")]
    flag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl FrozenQuery {
    /// The filters of a query, with the statuses that a verb fits if it names none.
    pub(crate) fn new(query: &RunQuery, verb: &BulkVerb) -> Self {
        let statuses = match query.statuses.is_empty() {
            true => verb.statuses().to_vec(),
            false => query.statuses.clone(),
        };
        Self {
            statuses,
            marks: query.marks.names().map(Into::into).collect(),
            workflow: query.workflow.as_deref().map(Into::into),
            queue: query.queue.as_deref().map(Into::into),
            key: query.key.clone(),
            parent: query.parent,
            root: query.root,
            tags: query.tags.clone(),
            created_from: query.created_from,
            created_before: query.created_before,
            ended_from: query.ended_from,
            ended_before: query.ended_before,
            flag: query.flag.map(|flag| flag_name(flag).into()),
            text: query.text.clone(),
        }
    }

    /// The query for the runs after `after` and before `until`, the oldest first.
    pub(crate) fn page(&self, after: RunId, until: RunId, limit: usize) -> RunQuery {
        let named = |name: &String| Marks::ALL.into_iter().find(|mark| mark.to_string() == *name);
        RunQuery {
            statuses: self.statuses.clone(),
            marks: self.marks.iter().filter_map(named).fold(Marks::NONE, Marks::with),
            workflow: self.workflow.as_deref().map(Into::into),
            queue: self.queue.as_deref().map(Into::into),
            queued_steps: QueuedSteps::LeftOut,
            built_in: BuiltInRuns::LeftOut,
            key: self.key.clone(),
            parent: self.parent,
            root: self.root,
            tags: self.tags.clone(),
            created_from: self.created_from,
            created_before: self.created_before,
            ended_from: self.ended_from,
            ended_before: self.ended_before,
            flag: self.flag.as_deref().map(flag_of),
            text: self.text.clone(),
            order: ListOrder::OldestFirst,
            after: Some(after),
            before: Some(until),
            limit,
        }
    }
}

fn flag_name(flag: FlagFilter) -> &'static str {
    if flag == FlagFilter::Cancelling { "cancelling" } else { "retrying" }
}

fn flag_of(name: &str) -> FlagFilter {
    if name == "cancelling" { FlagFilter::Cancelling } else { FlagFilter::Retrying }
}
