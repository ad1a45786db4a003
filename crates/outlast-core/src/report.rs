//! Reports: the state of a worker, sent with every beat.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::RunId;

/// The report of a worker. It is stored with its session as JSON. A missing field has its initial value, an unknown
/// field is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Report {
    /// Whether it accepts new work.
    pub status: WorkerStatus,
    /// The number of runs that it executes.
    pub live: u64,
    /// The number of attempts in progress.
    pub attempts: u64,
    /// The number of attempts in progress by step name, for at most
    /// [`REPORT_STEPS_MAX`](crate::limits::REPORT_STEPS_MAX) steps.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<String, u64>,
    /// The number of cached futures of waiting runs.
    pub waiting_futures: u64,
    /// The number of turns that it has committed since it joined.
    pub turns: u64,
    /// The number of replays since it joined.
    pub replays: u64,
    /// The number of runs that it completed since it joined.
    pub completed: u64,
    /// The number of runs that failed on it since it joined.
    pub failed: u64,
    /// The runs whose turns the world refuses for a temporary reason, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncommitted: Option<UncommittedRuns>,
}

/// Runs whose turns the world refuses for a temporary reason, such as a full disk. Their worker tries again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct UncommittedRuns {
    /// The last error of the world.
    pub error: String,
    /// The runs that were started first, at most
    /// [`REPORT_UNCOMMITTED_MAX`](crate::limits::REPORT_UNCOMMITTED_MAX).
    pub runs: Vec<RunId>,
}

impl UncommittedRuns {
    /// These runs, with the last error of the world.
    pub fn new(error: impl Into<String>, runs: Vec<RunId>) -> Self {
        Self { error: error.into(), runs }
    }
}

impl Report {
    /// The stored form of the report.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a stored report. If this build cannot read it, the initial report is used: nothing depends on it.
    pub fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// Whether a worker accepts new work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerStatus {
    /// It accepts new work.
    #[default]
    Working,
    /// It is stopping and finishes its attempts.
    Draining,
}

impl WorkerStatus {
    /// The status as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Draining => "draining",
        }
    }
}

impl std::fmt::Display for WorkerStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_being_stored() {
        let steps = [("resize".to_owned(), 2)].into();
        let report =
            Report { status: WorkerStatus::Draining, live: 3, attempts: 2, steps, ..Report::default() };
        let runs = vec![RunId::from_bits(7)];
        let report = Report { uncommitted: Some(UncommittedRuns::new("full", runs)), ..report };
        assert_eq!(Report::from_json(&report.to_json()), report);
    }

    #[test]
    fn reports_of_other_builds_can_be_read() {
        let text = r#"{"status":"draining","mood":"good"}"#;
        let expected = Report { status: WorkerStatus::Draining, ..Report::default() };
        assert_eq!(Report::from_json(text), expected);
        assert_eq!(Report::from_json(r#"{"status":"dreaming"}"#), Report::default());
    }
}
