//! Operations in responses.

use std::collections::BTreeMap;

use outlast_core::RunId;
use serde::{Deserialize, Serialize};

use crate::failure::FailureJson;
use crate::hook::WebhookJson;
use crate::page::PageRequest;
use crate::payload::{PayloadAmount, PayloadJson};
use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;

/// An operation of a run: a step, timer, hook, child, …
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperationJson {
    /// Its number.
    pub op: u64,
    /// `step`, `timer`, `hook`, `child`, `value`, `tags`, `compensation` or `keep`.
    pub kind: String,
    /// The name of the step, hook or value, the workflow of the child, or the length of the sleep.
    pub name: String,
    /// `open`, `completed`, `failed`, `cancelled`, `dropped` or `abandoned`.
    pub status: String,
    /// When it was requested.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub started_at: Rfc3339,
    /// When its last change was recorded.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub changed_at: Rfc3339,
    /// When it was asked to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub cancelled_at: Option<Rfc3339>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub ended_at: Option<Rfc3339>,
    /// The attempts of a step, the first 100. The last one of an open step may not have begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptJson>,
    /// The number of attempts of a step.
    pub attempt_count: u32,
    /// How often a worker crashed during the current attempt.
    #[serde(default)]
    pub crashed: u32,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub retry_at: Option<Rfc3339>,
    /// When the timer fires or the wait times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub until: Option<Rfc3339>,
    /// The run of a child or queued step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub run: Option<RunId>,
    /// The queue of a queued step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<PayloadJson>,
    /// Its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PayloadJson>,
    /// Its failure, or that of its last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureJson>,
    /// The tags that it set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The operation that a compensation undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    /// The payloads that a hook could not decode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<RejectionJson>,
    /// How requests are handled, if it opened a webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookJson>,
    /// Whether it belongs to an earlier generation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

/// One attempt of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptJson {
    /// Its number, from 1.
    pub number: u32,
    /// When it was due. When it really began is not recorded.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub due_at: Rfc3339,
    /// When its end was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub ended_at: Option<Rfc3339>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureJson>,
    /// The build that recorded its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// A payload that a hook could not decode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RejectionJson {
    /// The id of the message.
    pub message: String,
    /// When it was rejected.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub at: Rfc3339,
    /// The reason.
    pub reason: String,
}

/// The query of a list of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationFilter {
    /// Only operations of this kind.
    pub kind: Option<String>,
    /// Only operations with this status.
    pub status: Option<String>,
    /// Only operations with this name.
    pub name: Option<String>,
    /// How much of payloads is wanted; previews unless set.
    pub payloads: Option<PayloadAmount>,
    /// The page.
    pub page: PageRequest,
}

impl QueryPairs for OperationFilter {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        Ok(Self {
            kind: reader.text("kind")?,
            status: reader.text("status")?,
            name: reader.text("name")?,
            payloads: reader.parse("payloads")?,
            page: PageRequest::read_query(reader)?,
        })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("kind", self.kind.as_ref());
        writer.set("status", self.status.as_ref());
        writer.set("name", self.name.as_ref());
        writer.set("payloads", self.payloads);
        self.page.write_query(writer);
    }
}
