//! Reports: what a worker says of itself with every beat.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a worker says of itself. It is stored with its session, as JSON; a field that is missing there is
/// as it was at the join, one that is not known is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Whether it takes new work.
    pub status: WorkerStatus,
    /// How many runs it has in hand.
    pub live: u64,
    /// How many attempts at steps are under way.
    pub attempts: u64,
    /// The same by the step's name, of at most [`REPORT_STEPS_MAX`](crate::limits::REPORT_STEPS_MAX).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<String, u64>,
    /// How many futures of waiting runs it keeps.
    pub waiting_futures: u64,
    /// How many turns it has committed since it began.
    pub turns: u64,
    /// How often it replayed a history since it began.
    pub replays: u64,
    /// How many runs completed in its hands since it began.
    pub completed: u64,
    /// How many runs failed in its hands since it began.
    pub failed: u64,
}

impl Report {
    /// The report as it is stored.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// A stored report. One that this build cannot read is as at the join: nothing depends on it.
    pub fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// Whether a worker takes new work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerStatus {
    /// It does.
    #[default]
    Working,
    /// It stops: it finishes what it has in hand.
    Draining,
}

impl WorkerStatus {
    /// The status as it is written.
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
