//! Open hooks in responses.

use outlast_core::RunId;
use serde::{Deserialize, Serialize};

use crate::page::PageRequest;
use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;

/// A hook that a run waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenHookJson {
    /// Its name.
    pub name: String,
    /// The run.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run: RunId,
    /// The number of the operation.
    pub op: u64,
    /// The workflow of the run.
    pub workflow: String,
    /// The key of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Since when the run waits.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub since: Rfc3339,
    /// When the wait ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub until: Option<Rfc3339>,
}

/// Which open hooks are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookFilter {
    /// Only hooks with this name.
    pub name: Option<String>,
    /// Only hooks of runs of this workflow.
    pub workflow: Option<String>,
    /// Only hooks of runs that have waited since before this time.
    pub opened_before: Option<Rfc3339>,
    /// The page.
    pub page: PageRequest,
}

impl QueryPairs for HookFilter {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        Ok(Self {
            name: reader.text("name")?,
            workflow: reader.text("workflow")?,
            opened_before: reader.parse("opened_before")?,
            page: PageRequest::read_query(reader)?,
        })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("name", self.name.as_ref());
        writer.set("workflow", self.workflow.as_ref());
        writer.set("opened_before", self.opened_before);
        self.page.write_query(writer);
    }
}
