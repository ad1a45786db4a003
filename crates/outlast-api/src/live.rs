//! The events of live streams.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use outlast_core::RunId;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;
use crate::runs::RunFilter;

/// The first event of every stream: `hello`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HelloJson {
    /// The time of the world.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub server_time: Rfc3339,
    /// After how many milliseconds to connect again.
    pub retry_ms: u64,
}

/// The last event of a stream that the server closes: `bye`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ByeJson {
    /// The reason: `shutdown`.
    pub reason: String,
}

/// The reader must read everything again: `reset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResetJson {
    /// The reason: `behind`, `unknown_position` or `unavailable`.
    pub reason: String,
}

/// The run has ended, and all its events were sent: `end`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndJson {
    /// Its status.
    pub status: String,
}

/// A run is no longer in the list: `gone`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GoneJson {
    /// The run.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: RunId,
}

/// A step writes to a stream again from the beginning: `restarted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RestartedJson {
    /// The operation.
    pub op: u64,
    /// The chunks of the operation from this index on are superseded.
    pub from: u64,
}

/// What a live list contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LiveTopic {
    /// The counts of runs: `counts`.
    Counts,
    /// The first page of a list of runs: `run`, `gone`.
    Runs,
    /// The joined workers: `worker`, `worker_gone`.
    Workers,
    /// The queues: `queue`, `queue_gone`.
    Queues,
}

impl LiveTopic {
    /// All topics.
    pub const ALL: [Self; 4] = [Self::Counts, Self::Runs, Self::Workers, Self::Queues];

    /// The name in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Runs => "runs",
            Self::Workers => "workers",
            Self::Queues => "queues",
        }
    }
}

impl fmt::Display for LiveTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for LiveTopic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|topic| topic.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not a topic; expected counts, runs, workers or queues"))
    }
}

/// The query of a live list: `topics=counts,runs`, and the filters of a list of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveFilter {
    /// The topics; counts and runs unless set.
    pub topics: BTreeSet<LiveTopic>,
    /// The runs.
    pub runs: RunFilter,
}

impl Default for LiveFilter {
    fn default() -> Self {
        Self { topics: [LiveTopic::Counts, LiveTopic::Runs].into(), runs: RunFilter::default() }
    }
}

impl QueryPairs for LiveFilter {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        let topics = match reader.text("topics")? {
            None => Self::default().topics,
            Some(names) => names
                .split(',')
                .map(|name| name.parse().map_err(|message: String| Problem::field("?topics", message)))
                .collect::<Result<_, _>>()?,
        };
        let runs = RunFilter::read_query(reader)?;
        if runs.page.cursor.is_some() {
            return Err(Problem::field("?cursor", "only the first page of a list is live"));
        }
        if runs.text.is_some() {
            return Err(Problem::field("?text", "a search by text is not live; use an exact filter"));
        }
        if runs.ended_from.is_some() || runs.ended_before.is_some() {
            return Err(Problem::field("?ended_from", "a list by the time of the end is not live"));
        }
        Ok(Self { topics, runs })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        let topics: Vec<_> = self.topics.iter().map(|topic| topic.as_str()).collect();
        writer.set("topics", Some(topics.join(",")));
        self.runs.write_query(writer);
    }
}
