//! The progress of a bulk action.

use outlast_core::RunId;
use outlast_core::limits::BULK_PROBLEMS_MAX;
use serde::{Deserialize, Serialize};

/// How far a durable bulk action is; returned by [`BulkHandle::progress`](crate::BulkHandle::progress).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BulkProgress {
    /// What is done to each run, such as `cancel`.
    pub action: String,
    /// Whether it works, or how it ended.
    pub state: BulkState,
    /// The number of runs that matched when it started, counted to 10,000.
    pub matched: u64,
    /// Whether more runs matched.
    pub more: bool,
    /// The number of runs for which the request was accepted.
    pub requested: u64,
    /// The number of runs for which the same was requested before.
    pub already: u64,
    /// The number of runs for which there was nothing to do.
    pub nothing: u64,
    /// The number of runs that refused the call.
    pub refused: u64,
    /// The first 100 refusals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<BulkProblem>,
    /// Why it was stopped, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<BulkStop>,
    /// Who ordered it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// Whether a bulk action works, or how it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BulkState {
    /// It works, or waits for a worker.
    #[default]
    Running,
    /// It has made all calls.
    Completed,
    /// It was stopped before.
    Stopped,
}

/// A run that refused the call of a bulk action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BulkProblem {
    /// The run.
    pub run: RunId,
    /// Why.
    pub message: String,
}

/// Why a bulk action was stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BulkStop {
    /// The reason.
    pub reason: String,
    /// Who stopped it, if a client did and said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

impl BulkProblem {
    pub(super) fn new(run: RunId, message: String) -> Self {
        Self { run, message }
    }
}

impl BulkStop {
    pub(crate) fn new(reason: impl Into<String>, actor: Option<String>) -> Self {
        Self { reason: reason.into(), actor }
    }
}

/// The results of the calls for one page of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PageCounts {
    pub(super) requested: u64,
    pub(super) already: u64,
    pub(super) nothing: u64,
    pub(super) refused: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<BulkProblem>,
}

impl BulkProgress {
    /// The number of runs for which a call was made.
    pub fn called(&self) -> u64 {
        self.requested + self.already + self.nothing + self.refused
    }

    pub(super) fn add(&mut self, page: PageCounts) {
        self.requested += page.requested;
        self.already += page.already;
        self.nothing += page.nothing;
        self.refused += page.refused;
        let room = BULK_PROBLEMS_MAX.saturating_sub(self.problems.len());
        self.problems.extend(page.problems.into_iter().take(room));
    }
}
