//! Events in responses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::page::PageRequest;
use crate::payload::PayloadAmount;
use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;

/// An event of a history.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventJson {
    /// Its number in the history, from 0.
    pub number: u64,
    /// When its turn was committed.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub at: Rfc3339,
    /// Its turn.
    pub turn: String,
    /// The build that recorded it; empty if a client did.
    pub build: String,
    /// Its kind, such as `step_completed`.
    pub kind: String,
    /// The operation that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<u64>,
    /// The event as stored. Times in it are microseconds since 1970.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    pub data: Box<RawValue>,
    /// Whether payloads are left out of `data`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub omitted: bool,
    /// Whether it belongs to an earlier generation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

/// The query of a list of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only events from this number on.
    pub from: Option<u64>,
    /// Only events of this kind.
    pub kind: Option<String>,
    /// Only events of this operation.
    pub op: Option<u64>,
    /// The order.
    pub order: EventOrder,
    /// How much of payloads is wanted; previews unless set.
    pub payloads: Option<PayloadAmount>,
    /// The page.
    pub page: PageRequest,
}

/// The order of a list of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventOrder {
    /// The first event first.
    #[default]
    OldestFirst,
    /// The last event first.
    NewestFirst,
}

impl EventOrder {
    /// The name in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OldestFirst => "oldest",
            Self::NewestFirst => "newest",
        }
    }
}

impl fmt::Display for EventOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for EventOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "oldest" => Ok(Self::OldestFirst),
            "newest" => Ok(Self::NewestFirst),
            _ => Err(format!("`{text}` is not an order; expected oldest or newest")),
        }
    }
}

impl QueryPairs for EventFilter {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        Ok(Self {
            from: reader.parse("from")?,
            kind: reader.text("kind")?,
            op: reader.parse("op")?,
            order: reader.parse("order")?.unwrap_or_default(),
            payloads: reader.parse("payloads")?,
            page: PageRequest::read_query(reader)?,
        })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("from", self.from);
        writer.set("kind", self.kind.as_ref());
        writer.set("op", self.op);
        writer.set("order", (self.order != EventOrder::default()).then_some(self.order));
        writer.set("payloads", self.payloads);
        self.page.write_query(writer);
    }
}
