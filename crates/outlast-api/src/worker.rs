//! Workers in responses.

use std::collections::BTreeMap;

use outlast_core::SessionId;
use serde::{Deserialize, Serialize};

use crate::rfc3339::Rfc3339;

/// The joined workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerListJson {
    /// The workers, in the order of their sessions.
    pub items: Vec<WorkerJson>,
}

/// A joined worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerJson {
    /// Its session.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The build of its code.
    pub build: String,
    /// The version of the library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// `working` or `draining`.
    pub status: String,
    /// When it joined.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub joined_at: Rfc3339,
    /// The time of its last beat.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub beat_at: Rfc3339,
    /// When its session expires unless it beats before.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub expires_at: Rfc3339,
    /// The queues that it serves.
    pub queues: Vec<String>,
    /// The workflows that it has code for.
    pub workflows: Vec<WorkflowCodeJson>,
    /// How many runs it holds.
    pub held: u64,
    /// How many runs are live in it.
    pub live: u64,
    /// How many attempts are in progress.
    pub attempts: u64,
    /// How many attempts of each step are in progress.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<String, u64>,
    /// How many turns it has made.
    pub turns: u64,
    /// How many replays it has made.
    pub replays: u64,
    /// How many runs have completed in it.
    pub completed: u64,
    /// How many runs have failed in it.
    pub failed: u64,
}

/// A version of a workflow that a worker has code for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkflowCodeJson {
    /// The workflow.
    pub workflow: String,
    /// The version.
    pub version: u32,
}
