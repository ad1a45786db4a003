//! Groups of failed runs in responses.

use outlast_core::RunId;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;
use crate::run::RunJson;

/// Failed runs of one workflow with the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureGroupJson {
    /// The same for failures of the same kind, code, step and message, whatever numbers the message contains.
    pub fingerprint: String,
    /// The workflow.
    pub workflow: String,
    /// The step that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What sort of error.
    pub kind: String,
    /// The code that the program gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The message of the newest failure.
    pub message: String,
    /// How many runs failed in the last 24 hours, or since the given time.
    pub count: u64,
    /// How many of them failed in each of the last 24 hours, the oldest first.
    #[serde(default)]
    pub by_hour: Vec<u64>,
    /// The first failure of the group that is known.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub first: Rfc3339,
    /// The last failure.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub last: Rfc3339,
    /// The newest runs, at most 5.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub samples: Vec<RunId>,
}

/// The groups of failed runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureListJson {
    /// The groups, the most frequent first.
    pub items: Vec<FailureGroupJson>,
    /// From when on failures are counted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub since: Rfc3339,
    /// Whether there are more failures or groups than were counted: 10,000 failures at a time, 1,000 groups.
    pub truncated: bool,
}

/// One group with its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureDetailJson {
    /// The groups with this fingerprint: one for each workflow.
    pub groups: Vec<FailureGroupJson>,
    /// The runs that ended last, at most 50.
    pub runs: Vec<RunJson>,
}

/// Which failures are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureFilter {
    /// Only failures of this workflow.
    pub workflow: Option<String>,
    /// Only failures since this time, at most 24 hours ago.
    pub since: Option<Rfc3339>,
}

impl QueryPairs for FailureFilter {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        Ok(Self { workflow: reader.text("workflow")?, since: reader.parse("since")? })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("workflow", self.workflow.as_ref());
        writer.set("since", self.since);
    }
}
