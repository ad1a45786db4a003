//! Schedules in requests and responses.

use std::collections::BTreeMap;

use outlast_core::RunId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::control::DidWhat;
use crate::page::PageRequest;
use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;
use crate::run::RunJson;

/// A schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleJson {
    /// Its name.
    pub id: String,
    /// The run of the schedule itself.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run: RunId,
    /// How often it was changed: its definition, or whether it is paused. It is also its `ETag`.
    pub revision: u64,
    /// When it fires and what it starts, in the form of a request.
    pub definition: ScheduleDefinition,
    /// When it fires, in words.
    pub description: String,
    /// The pause, if it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<SchedulePauseJson>,
    /// The next five instants, without jitter. A pause is not taken into account.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub next: Vec<Rfc3339>,
    /// When it fires next, with jitter; not while it is paused, and not before a worker has served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub next_at: Option<Rfc3339>,
    /// The firings that have not ended.
    #[serde(default)]
    pub running: Vec<FiredJson>,
    /// The instant that waits for the end of the previous firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub waiting: Option<Rfc3339>,
    /// The ranges that are still to be backfilled or caught up.
    #[serde(default)]
    pub backlog: Vec<BacklogJson>,
    /// The firing that was started last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<FiredJson>,
    /// The last start that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<FiringRefusalJson>,
    /// Why the next instant cannot be computed, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What has happened so far.
    pub counts: FiringCountsJson,
}

/// When a schedule fires, and what it starts: a request to create a schedule or to replace its definition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduleDefinition {
    /// The name of the schedule. In a `PUT` it is the one of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A cron expression of five fields, such as `0 3 * * MON-FRI`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone of the expression; `UTC` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// An interval instead of an expression, such as `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// The workflow.
    pub workflow: String,
    /// The version of the workflow; the newest one that a joined worker has unless set, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The input of the firings. Numbers keep all their digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub input: Option<Box<RawValue>>,
    /// In responses: the step that computes the input. Only programs can set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_from: Option<String>,
    /// In responses: whether the input is too large to be shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub input_omitted: bool,
    /// The queue of the firings; `default` unless set. A schedule is executed in the queue that it was created with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The priority of the firings, 0 to 9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The tags of the firings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The headers of the firings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How long after its start a firing is cancelled, such as `2h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// What happens to an instant while an earlier firing runs; `skip` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<OverlapRule>,
    /// What happens to instants that nobody served in time; `last` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUpRule>,
    /// With `catch_up: all`, how many instants at most; 100 unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_limit: Option<u32>,
    /// The largest delay of a firing, such as `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<String>,
    /// From when on it fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub start_at: Option<Rfc3339>,
    /// From when on it does not fire any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub end_at: Option<Rfc3339>,
    /// After how many failures in a row it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after: Option<u32>,
}

macro_rules! rule {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$of])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|rule| rule.as_str() == text).copied();
                found.ok_or_else(|| {
                    let names: Vec<_> = Self::ALL.iter().map(|rule| rule.as_str()).collect();
                    format!("`{text}` is not one of {}", names.join(", "))
                })
            }
        }
    };
}

rule! {
    /// What happens to an instant while an earlier firing runs.
    OverlapRule {
        /// It is skipped.
        Skip = "skip",
        /// It waits for the end of the earlier firing.
        Queue = "queue",
        /// It fires at once.
        Allow = "allow",
        /// The earlier firing is cancelled.
        CancelPrevious = "cancel_previous",
    }
}

rule! {
    /// What happens to instants that nobody served in time.
    CatchUpRule {
        /// They are skipped.
        None = "none",
        /// The last of them fires.
        Last = "last",
        /// All of them fire, up to a limit.
        All = "all",
    }
}

/// Why a schedule is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SchedulePauseJson {
    /// The reason.
    pub reason: String,
    /// Since when.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub since: Rfc3339,
    /// Who paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// A firing of a schedule, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FiredJson {
    /// The run that was started.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run: RunId,
    /// Its instant.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub scheduled_at: Rfc3339,
}

/// A firing of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FiringJson {
    /// Its instant, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub scheduled_at: Option<Rfc3339>,
    /// Whether somebody triggered it.
    #[serde(default)]
    pub triggered: bool,
    /// The run.
    pub run: RunJson,
}

/// Instants that are still to be fired: later than `after`, and not later than `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BacklogJson {
    /// The time before the first instant.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub after: Rfc3339,
    /// The last possible instant.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub until: Rfc3339,
}

/// A firing that was not started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FiringRefusalJson {
    /// Its instant.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub scheduled_at: Rfc3339,
    /// When the start was refused.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub at: Rfc3339,
    /// Why.
    pub message: String,
}

/// What has happened to the instants of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct FiringCountsJson {
    /// Firings that were started.
    pub fired: u64,
    /// Firings that completed.
    pub completed: u64,
    /// Firings that failed.
    pub failed: u64,
    /// Firings that were cancelled.
    pub cancelled: u64,
    /// Instants that were skipped because an earlier firing was running.
    pub skipped: u64,
    /// Instants that nobody served in time.
    pub missed: u64,
    /// Firings that could not be started.
    pub refused: u64,
    /// Instants of a backfill that had fired before.
    pub repeated: u64,
}

/// Which schedules are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleFilter {
    /// Only schedules that start this workflow.
    pub workflow: Option<String>,
    /// Only schedules that are paused, or only those that are not.
    pub paused: Option<bool>,
    /// The page.
    pub page: PageRequest,
}

impl QueryPairs for ScheduleFilter {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        let (workflow, paused) = (reader.text("workflow")?, reader.parse("paused")?);
        Ok(Self { workflow, paused, page: PageRequest::read_query(reader)? })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("workflow", self.workflow.as_ref());
        writer.set("paused", self.paused);
        self.page.write_query(writer);
    }
}

/// A request to pause a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SchedulePauseRequest {
    /// The reason, which views show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A request to fire the instants of a range in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BackfillRequest {
    /// The first possible instant.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub from: Rfc3339,
    /// The end of the range, which is not part of it.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub to: Rfc3339,
    /// Whether only to count the instants.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of a backfill.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BackfilledJson {
    /// What was done; `nothing` in a dry run.
    pub did: DidWhat,
    /// The number of instants in the range, counted to 10,000.
    pub instants: u64,
    /// Whether there are more.
    pub more: bool,
    /// The first ten instants.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub sample: Vec<Rfc3339>,
    /// The schedule afterwards.
    pub schedule: ScheduleJson,
}

/// The result of a call that controls a schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleControlledJson {
    /// What was done.
    pub did: DidWhat,
    /// The schedule afterwards.
    pub schedule: ScheduleJson,
}

/// A request to pause or resume many schedules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SchedulesRequest {
    /// The schedules, at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// All schedules, instead of `ids`.
    #[serde(default)]
    pub all: bool,
    /// The reason of a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The results of a call for many schedules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SchedulesControlledJson {
    /// One for each schedule.
    pub results: Vec<ScheduleResult>,
}

/// The result for one of many schedules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleResult {
    /// The schedule.
    pub id: String,
    /// What was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub did: Option<DidWhat>,
    /// Why nothing was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// A request for the instants of a rule, without a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SchedulePreviewRequest {
    /// A cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone of the expression; `UTC` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// An interval instead of an expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// How many instants, at most 50; 5 unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// The time before the first instant; now unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub after: Option<Rfc3339>,
}

/// The instants of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SchedulePreviewJson {
    /// The rule in words.
    pub description: String,
    /// The time zone of a cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The instants.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub instants: Vec<Rfc3339>,
}
