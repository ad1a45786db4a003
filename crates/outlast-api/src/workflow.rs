//! Workflows in responses.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rfc3339::Rfc3339;

/// The workflows that workers have code for, or had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkflowListJson {
    /// The workflows, by name.
    pub items: Vec<WorkflowJson>,
}

/// A workflow that workers have code for, or had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkflowJson {
    /// Its name.
    pub name: String,
    /// Its versions, the newest first.
    pub versions: Vec<u32>,
    /// The builds that have it.
    pub builds: Vec<String>,
    /// The queues that these workers serve.
    pub queues: Vec<String>,
    /// The number of joined workers that have it. With 0, what is said here is what the last ones said.
    pub workers: u64,
    /// When a worker that has it joined last, if its definition is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub seen_at: Option<Rfc3339>,
}

/// A workflow, with its definitions and what became of its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkflowDetailJson {
    /// The workflow.
    #[serde(flatten)]
    pub workflow: WorkflowJson,
    /// What builds have said about it: the newest version first, and of that the build that joined last.
    pub definitions: Vec<WorkflowDefinitionJson>,
    /// Its open runs.
    pub open: OpenRunsJson,
    /// The newest of its runs that have ended; up to 30 seconds old.
    pub ended: EndedRunsJson,
}

/// What a build has said about a version of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkflowDefinitionJson {
    /// The version.
    pub version: u32,
    /// The build.
    pub build: String,
    /// The queues that a worker of the build served.
    pub queues: Vec<String>,
    /// The steps of the program.
    pub steps: Vec<String>,
    /// The JSON Schema of the input, if the program says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub input: Option<Value>,
    /// The JSON Schema of the output, if the program says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub output: Option<Value>,
    /// When a worker of the build joined last.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub seen_at: Rfc3339,
}

/// The open runs of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenRunsJson {
    /// By version, the newest first.
    pub by_version: Vec<OpenVersionJson>,
    /// Whether there are more: only the newest 1,000 are counted.
    pub more: bool,
}

/// The open runs of a version of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenVersionJson {
    /// The version.
    pub version: u32,
    /// How many runs are open.
    pub runs: u64,
}

/// The newest runs of a workflow that have ended, at most 500.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndedRunsJson {
    /// How many there are.
    pub runs: u64,
    /// How many of them completed.
    pub completed: u64,
    /// How many of them failed.
    pub failed: u64,
    /// How many of them were cancelled.
    pub cancelled: u64,
    /// The part of them that completed, from 0 to 1; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_ratio: Option<f64>,
    /// The median time from start to end, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// The time that 95 % of them did not exceed, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    /// When they were read.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub as_of: Rfc3339,
}
