//! Streams in responses.

use serde::{Deserialize, Serialize};

use crate::payload::{PayloadAmount, PayloadJson};
use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;

/// The streams of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamListJson {
    /// The streams, by name.
    pub items: Vec<StreamJson>,
}

/// A stream of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamJson {
    /// Its name.
    pub name: String,
    /// The index of the first entry that is still stored.
    pub first: u64,
    /// The index behind the last entry.
    pub end: u64,
    /// Whether nothing more is written to it.
    pub closed: bool,
    /// How many entries it keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<u64>,
    /// How many chunks were dropped because of a limit.
    pub dropped: u64,
    /// How many chunks came after it was closed.
    pub late: u64,
}

/// A page of a stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChunkListJson {
    /// The chunks.
    pub items: Vec<ChunkJson>,
    /// The index at which the next page begins.
    pub next: u64,
    /// The index behind the last entry of the stream.
    pub tail: u64,
    /// Whether the stream is closed and this is its last page.
    pub done: bool,
}

/// A chunk of a stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChunkJson {
    /// Its index.
    pub index: u64,
    /// When it was stored.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub at: Rfc3339,
    /// The operation that wrote it; absent if the workflow did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<u64>,
    /// The attempt that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// `text`, `json` or `bytes`; bytes are Base64.
    pub kind: String,
    /// The value.
    pub value: PayloadJson,
    /// Whether a newer attempt has begun since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
}

/// The query of a page of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkFilter {
    /// The first index; negative numbers count from the end.
    pub from: Option<i64>,
    /// The number of entries, 1 to 1,000.
    pub limit: Option<usize>,
    /// Whether chunks of superseded attempts are wanted: `attempts=all`.
    pub all_attempts: bool,
    /// How much of payloads is wanted; all unless set.
    pub payloads: Option<PayloadAmount>,
}

impl QueryPairs for ChunkFilter {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        let all_attempts = match reader.text("attempts")?.as_deref() {
            None | Some("surviving") => false,
            Some("all") => true,
            Some(_) => return Err(Problem::field("?attempts", "expected surviving or all")),
        };
        let limit = reader.parse::<usize>("limit")?;
        if limit.is_some_and(|limit| limit == 0 || limit > 1_000) {
            return Err(Problem::field("?limit", "expected 1 to 1000"));
        }
        Ok(Self { from: reader.parse("from")?, limit, all_attempts, payloads: reader.parse("payloads")? })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("from", self.from);
        writer.set("limit", self.limit);
        writer.set("attempts", self.all_attempts.then_some("all"));
        writer.set("payloads", self.payloads);
    }
}
