//! The output and the published state of a run.

use serde::{Deserialize, Serialize};

use crate::failure::FailureJson;
use crate::payload::PayloadJson;
use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;

/// How a run ended, or that it has not. A failed run is a successful response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputJson {
    /// Whether the run has ended.
    pub ended: bool,
    /// Its status.
    pub status: String,
    /// Its output, if it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PayloadJson>,
    /// Its failure, if it failed or was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureJson>,
}

/// The query for an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputQuery {
    /// How long to wait for the end, such as `30s`; at most 60 s.
    pub wait: Option<String>,
}

impl QueryPairs for OutputQuery {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        Ok(Self { wait: reader.text("wait")? })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("wait", self.wait.as_ref());
    }
}

/// The state that a run has published last.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateJson {
    /// The value; absent if the run has published none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PayloadJson>,
    /// When it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub at: Option<Rfc3339>,
    /// How often the run has published.
    pub version: u64,
    /// How many values were too large, and dropped.
    pub dropped: u64,
    /// Whether the run has ended.
    pub ended: bool,
}
