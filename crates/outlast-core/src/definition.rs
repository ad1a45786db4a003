//! Definitions: what workers say about their workflows when they join. They are stored as [records](crate::record), and
//! outlive the session.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{DEFINITION_NAMES_MAX, DEFINITION_SCHEMA_BYTES_MAX, RECORD_ID_BYTES_MAX};
use crate::record::{NewRecord, StoredRecord};
use crate::time::Timestamp;

/// The space of the records of definitions.
pub const DEFINITIONS: &str = "definitions";

/// What a build says about a version of a workflow. A missing field has its initial value, an unknown field is ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkflowSummary {
    /// The name of the workflow.
    pub workflow: String,
    /// The version.
    pub version: u32,
    /// The build.
    pub build: String,
    /// The queues that the worker served.
    pub queues: Vec<String>,
    /// The names of the steps of the program.
    pub steps: Vec<String>,
    /// The JSON Schema of the input, if the program says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The JSON Schema of the output, if the program says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// A stored definition.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DefinitionView {
    /// What the build says.
    pub summary: WorkflowSummary,
    /// When a worker with it joined last.
    pub seen_at: Timestamp,
}

impl WorkflowSummary {
    /// A definition without schemas. Names beyond [`DEFINITION_NAMES_MAX`] are left out.
    pub fn new(workflow: &str, version: u32, build: &str, queues: &[String], steps: &[String]) -> Self {
        let some = |names: &[String]| names.iter().take(DEFINITION_NAMES_MAX).cloned().collect();
        Self {
            workflow: workflow.to_owned(),
            version,
            build: build.to_owned(),
            queues: some(queues),
            steps: some(steps),
            ..Self::default()
        }
    }

    /// With the schemas of its input and output. Those that are too large are left out.
    #[must_use]
    pub fn with_schemas(mut self, input: &Value, output: &Value) -> Self {
        let fits = |schema: &&Value| schema.to_string().len() <= DEFINITION_SCHEMA_BYTES_MAX;
        self.input = Some(input).filter(fits).cloned();
        self.output = Some(output).filter(fits).cloned();
        self
    }

    /// The record of the definition.
    pub fn to_record(&self) -> NewRecord {
        let id = definition_id(&self.workflow, self.version, &self.build);
        NewRecord { id, body: serde_json::to_string(self).unwrap_or_default() }
    }
}

/// The id of the record of a definition. A build whose name is too long for an id is named by its beginning.
pub fn definition_id(workflow: &str, version: u32, build: &str) -> String {
    let mut id = format!("{workflow}/{version}/{build}");
    if id.len() > RECORD_ID_BYTES_MAX {
        let end = (0..=RECORD_ID_BYTES_MAX).rev().find(|end| id.is_char_boundary(*end));
        id.truncate(end.unwrap_or_default());
    }
    id
}

impl DefinitionView {
    /// Reads a stored definition; `None` if it is not one, or a later build has written it in another way.
    pub fn of_record(record: &StoredRecord) -> Option<Self> {
        let summary: WorkflowSummary = serde_json::from_str(&record.body).ok()?;
        (!summary.workflow.is_empty()).then_some(Self { summary, seen_at: record.at })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::check_records;

    #[test]
    fn a_definition_survives_being_stored() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let summary = WorkflowSummary::new("a/b", 2, "b1", &names(&["default"]), &names(&["charge"]))
            .with_schemas(&json!({ "type": "object" }), &json!(true));
        let NewRecord { id, body } = summary.to_record();
        assert_eq!(id, "a/b/2/b1");
        let at = Timestamp::from_micros(7);
        let read =
            |body: &str| DefinitionView::of_record(&StoredRecord { id: id.clone(), body: body.into(), at });
        assert_eq!(read(&body), Some(DefinitionView { summary, seen_at: at }));
        assert_eq!(read("{}"), None);
        assert_eq!(read("what"), None);
        assert!(read(r#"{"workflow":"a","mood":"good"}"#).is_some());
    }

    #[test]
    fn a_large_definition_fits_into_a_record() {
        let many: Vec<String> = (0..1_000).map(|number| format!("{number:0128}")).collect();
        let large = json!("x".repeat(DEFINITION_SCHEMA_BYTES_MAX));
        let build = "\u{fc}".repeat(1_000);
        let summary = WorkflowSummary::new(&"w".repeat(128), 1, &build, &many[..32], &many);
        let record = summary.with_schemas(&large, &large).to_record();
        assert_eq!(check_records(DEFINITIONS, &[record]), Ok(()));
    }
}
