//! The audit in responses: who did what.

use outlast_core::RunId;
use serde::{Deserialize, Serialize};

use crate::page::PageRequest;
use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;
use crate::role::Role;

/// What became of an audited request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditOutcome {
    /// It was about to be done; whether it was is not known. The server was stopped, or could not write the outcome.
    Intended,
    /// It was done.
    Done,
    /// There was nothing to do: it was so already, or the request only asked what would be done.
    Unchanged,
    /// It was refused because of its caller.
    Refused,
    /// It was not done, or not completely: the code says why.
    Failed,
    /// This build cannot read the record.
    #[serde(other)]
    Unreadable,
}

impl AuditOutcome {
    /// All that a filter may ask for.
    pub const ALL: [Self; 5] = [Self::Intended, Self::Done, Self::Unchanged, Self::Refused, Self::Failed];

    /// The name of the outcome.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Done => "done",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unreadable => "unreadable",
        }
    }
}

impl std::fmt::Display for AuditOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for AuditOutcome {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|outcome| outcome.as_str() == text);
        found.ok_or_else(|| {
            format!("`{text}` is not an outcome; expected intended, done, unchanged, refused or failed")
        })
    }
}

/// A request that changed something or was refused, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditJson {
    /// The id of the record; later records have higher ids.
    #[serde(default)]
    pub id: String,
    /// When the request was made.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub at: Rfc3339,
    /// Who made it.
    pub actor: String,
    /// The role of the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The action, such as `cancel` or `log_in`.
    pub action: String,
    /// The route, with parameters in braces: tokens are never part of it.
    pub route: String,
    /// The run, if the route names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub run: Option<RunId>,
    /// What else the route names, such as a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// What became of it.
    pub outcome: AuditOutcome,
    /// The status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The code of the problem, if it was refused or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The reason that the actor gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The address of the other side of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The id of the request, which logs contain too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// Which records of the audit are listed; the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only those of this actor.
    pub actor: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only those about this run.
    pub run: Option<RunId>,
    /// Only those with this outcome.
    pub outcome: Option<AuditOutcome>,
    /// Only those since this time.
    pub from: Option<Rfc3339>,
    /// Only those before this time.
    pub to: Option<Rfc3339>,
    /// The page.
    pub page: PageRequest,
}

impl AuditFilter {
    /// The filters, without the page.
    pub(crate) fn filters(&self) -> String {
        Self { page: PageRequest::default(), ..self.clone() }.to_query()
    }

    /// Whether a record is wanted.
    pub(crate) fn wants(&self, record: &AuditJson) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        is(&self.actor, &record.actor)
            && is(&self.action, &record.action)
            && self.run.is_none_or(|run| record.run == Some(run))
            && self.outcome.is_none_or(|outcome| record.outcome == outcome)
            && self.from.is_none_or(|from| record.at.0 >= from.0)
            && self.to.is_none_or(|to| record.at.0 < to.0)
    }
}

impl QueryPairs for AuditFilter {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        Ok(Self {
            actor: reader.text("actor")?,
            action: reader.text("action")?,
            run: reader.parse("run")?,
            outcome: reader.parse("outcome")?,
            from: reader.parse("from")?,
            to: reader.parse("to")?,
            page: PageRequest::read_query(reader)?,
        })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("actor", self.actor.as_ref());
        writer.set("action", self.action.as_ref());
        writer.set("run", self.run);
        writer.set("outcome", self.outcome);
        writer.set("from", self.from);
        writer.set("to", self.to);
        self.page.write_query(writer);
    }
}
