//! Lists of runs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use outlast_core::{RunId, Status};
use serde::{Deserialize, Serialize};

use crate::page::PageRequest;
use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;
use crate::run::RunJson;

/// Which runs a list contains: the query of `GET /api/runs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs in one of these statuses.
    pub statuses: Vec<Status>,
    /// Only runs that have not ended.
    pub open: bool,
    /// Only runs with one of these marks: `paused`, `compensating`, `compensated`, `quarantined`.
    pub marks: Vec<String>,
    /// Only runs with this flag.
    pub flag: Option<RunFlag>,
    /// Only runs of this workflow.
    pub workflow: Option<String>,
    /// Only runs of this queue.
    pub queue: Option<String>,
    /// Only the run with this key.
    pub key: Option<String>,
    /// Only children of this run.
    pub parent: Option<RunId>,
    /// Only descendants of this run.
    pub root: Option<RunId>,
    /// Only runs with these tags: `tag=name:value`.
    pub tags: BTreeMap<String, String>,
    /// Only runs started at this time or later.
    pub created_from: Option<Rfc3339>,
    /// Only runs started before this time.
    pub created_before: Option<Rfc3339>,
    /// Only runs that ended at this time or later.
    pub ended_from: Option<Rfc3339>,
    /// Only runs that ended before this time.
    pub ended_before: Option<Rfc3339>,
    /// Only runs whose id, workflow or key contains this text.
    pub text: Option<String>,
    /// Whether queued steps are listed.
    pub queued_steps: bool,
    /// Whether runs of the engine, such as schedules, are listed.
    pub built_in: bool,
    /// The order.
    pub order: RunListOrder,
    /// The page.
    pub page: PageRequest,
}

/// The order of a list of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunListOrder {
    /// The run that was started last comes first.
    #[default]
    NewestFirst,
    /// The run that was started first comes first.
    OldestFirst,
}

impl RunListOrder {
    /// The name in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NewestFirst => "newest",
            Self::OldestFirst => "oldest",
        }
    }
}

impl fmt::Display for RunListOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for RunListOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "newest" => Ok(Self::NewestFirst),
            "oldest" => Ok(Self::OldestFirst),
            _ => Err(format!("`{text}` is not an order; expected newest or oldest")),
        }
    }
}

/// What follows from other fields of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunFlag {
    /// A step waits for its next attempt. A run that a worker holds shows this only in its operations.
    Retrying,
    /// It was asked to stop, and has not ended.
    Cancelling,
}

impl RunFlag {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retrying => "retrying",
            Self::Cancelling => "cancelling",
        }
    }
}

impl fmt::Display for RunFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for RunFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "retrying" => Ok(Self::Retrying),
            "cancelling" => Ok(Self::Cancelling),
            _ => Err(format!("`{text}` is not a flag; expected retrying or cancelling")),
        }
    }
}

impl RunFilter {
    /// The filters alone, without the page, as text. Cursors contain a digest of it.
    pub fn filters(&self) -> String {
        Self { page: PageRequest::default(), ..self.clone() }.to_query()
    }
}

impl QueryPairs for RunFilter {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        Ok(Self {
            statuses: reader.parse_all("status")?,
            open: reader.parse("open")?.unwrap_or(false),
            marks: reader.all("mark"),
            flag: reader.parse("flag")?,
            workflow: reader.text("workflow")?,
            queue: reader.text("queue")?,
            key: reader.text("key")?,
            parent: reader.parse("parent")?,
            root: reader.parse("root")?,
            tags: reader.all("tag").iter().map(|tag| read_tag(tag)).collect::<Result<_, _>>()?,
            created_from: reader.parse("created_from")?,
            created_before: reader.parse("created_before")?,
            ended_from: reader.parse("ended_from")?,
            ended_before: reader.parse("ended_before")?,
            text: reader.text("text")?,
            queued_steps: reader.parse("queued_steps")?.unwrap_or(false),
            built_in: reader.parse("built_in")?.unwrap_or(false),
            order: reader.parse("order")?.unwrap_or_default(),
            page: PageRequest::read_query(reader)?,
        })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set_all("status", &self.statuses);
        writer.set("open", self.open.then_some(true));
        writer.set_all("mark", &self.marks);
        writer.set("flag", self.flag);
        writer.set("workflow", self.workflow.as_ref());
        writer.set("queue", self.queue.as_ref());
        writer.set("key", self.key.as_ref());
        writer.set("parent", self.parent);
        writer.set("root", self.root);
        writer.set_all("tag", self.tags.iter().map(|(name, value)| format!("{name}:{value}")));
        writer.set("created_from", self.created_from);
        writer.set("created_before", self.created_before);
        writer.set("ended_from", self.ended_from);
        writer.set("ended_before", self.ended_before);
        writer.set("text", self.text.as_ref());
        writer.set("queued_steps", self.queued_steps.then_some(true));
        writer.set("built_in", self.built_in.then_some(true));
        writer.set("order", (self.order != RunListOrder::default()).then_some(self.order));
        self.page.write_query(writer);
    }
}

fn read_tag(text: &str) -> Result<(String, String), Problem> {
    let (name, value) = text.split_once(':').ok_or_else(|| Problem::field("?tag", "expected name:value"))?;
    Ok((name.into(), value.into()))
}

/// The number of runs in each status and with each mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CountsJson {
    /// The number of runs in each status. Queued steps are counted.
    pub counts: BTreeMap<String, u64>,
    /// The number of runs with each mark.
    pub marks: BTreeMap<String, u64>,
    /// The number of runs with each flag, counted to 1,000.
    #[serde(default)]
    pub flags: BTreeMap<String, u64>,
    /// The time of the world at which they were read.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub as_of: Rfc3339,
}

/// The query that finds a run by a part of its id, or by its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolveQuery {
    /// An id, the beginning or the end of one, or a key.
    pub q: String,
}

impl QueryPairs for ResolveQuery {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        let q = reader.text("q")?.filter(|q| !q.trim().is_empty());
        Ok(Self { q: q.ok_or_else(|| Problem::field("?q", "give an id, a part of one, or a key"))? })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("q", Some(&self.q));
    }
}

/// The runs that fit a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResolveJson {
    /// The runs, the newest first; at most 10.
    pub candidates: Vec<RunJson>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_survives_its_query() {
        let filter = RunFilter {
            statuses: vec![Status::Failed, Status::Stuck],
            open: true,
            marks: vec!["paused".into()],
            flag: Some(RunFlag::Cancelling),
            workflow: Some("check out & more".into()),
            queue: Some("größe".into()),
            key: Some("order:42/7".into()),
            parent: Some(RunId::from_bits(7)),
            root: Some(RunId::from_bits(8)),
            tags: [("customer".into(), "a:b=c".into())].into(),
            created_from: Some("2026-11-18T04:26:31.123456Z".parse().unwrap()),
            created_before: Some("2026-11-19T04:26:31.123456Z".parse().unwrap()),
            ended_from: Some("2026-11-20T04:26:31.123456Z".parse().unwrap()),
            ended_before: Some("2026-11-21T04:26:31.123456Z".parse().unwrap()),
            text: Some("100 %+".into()),
            queued_steps: true,
            built_in: true,
            order: RunListOrder::OldestFirst,
            page: PageRequest { limit: Some(7), cursor: Some("abc".into()) },
        };
        assert_eq!(RunFilter::from_query(&filter.to_query()), Ok(filter));
    }

    #[test]
    fn filters_do_not_depend_on_the_page() {
        let filter = RunFilter::from_query("workflow=a&limit=5&cursor=x").unwrap();
        assert_eq!(filter.filters(), "workflow=a");
    }
}
