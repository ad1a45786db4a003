//! Why a run is in its current state.

use outlast_core::RunId;
use serde::{Deserialize, Serialize};

/// Why a run is in its current state, as data and as a sentence with the remedy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplanationJson {
    /// The run.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run: RunId,
    /// Its status.
    pub status: String,
    /// The cause: an object with `kind` (`ended`, `delayed`, `held`, `worker_gone`, `waits`, `ready`, `no_code`,
    /// `not_served`, `no_worker`, `stuck`, `paused`, `builds_failed`, `past_deadline`) and what belongs to it.
    pub because: serde_json::Value,
    /// The request to stop, if there is one: `reason`, `at`, `is_told`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<serde_json::Value>,
    /// Whether it is in quarantine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_quarantined: bool,
    /// The state of its compensations, while they run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensating: Option<serde_json::Value>,
    /// Who keeps its turn from being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// Why its last turn could not be committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_committed: Option<String>,
    /// What could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// All of it in a few sentences, with the remedy.
    pub sentence: String,
}
