//! The rule of a schedule: when it fires, and what happens to firings that overlap or were missed.

use std::fmt;
use std::time::Duration;

use outlast_core::Timestamp;
use outlast_core::duration::duration_text;
use serde::{Deserialize, Serialize};

/// When a schedule fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScheduleTiming {
    /// At the local times that match a cron expression.
    Cron {
        /// The expression.
        expression: String,
        /// The time zone, such as `Europe/Berlin`.
        timezone: String,
    },
    /// At equal intervals, counted from the creation of the schedule or from its `start_at`.
    Every {
        /// The interval, in microseconds.
        micros: u64,
    },
}

impl fmt::Display for ScheduleTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron { expression, timezone } => write!(f, "cron `{expression}` in {timezone}"),
            Self::Every { micros } => write!(f, "every {}", duration_text(Duration::from_micros(*micros))),
        }
    }
}

/// What happens when an instant comes while an earlier firing of the schedule is still running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overlap {
    /// The instant is skipped and counted.
    #[default]
    Skip,
    /// It fires when the earlier firing has ended. One instant waits; further ones are skipped and counted.
    Queue,
    /// It fires at once, up to 100 firings of a schedule at the same time; further ones are skipped and counted.
    Allow,
    /// The earlier firing is cancelled, and the instant fires when it has ended. If another instant comes before that,
    /// it takes the place of the one that waits.
    CancelPrevious,
}

/// What happens to instants that nobody served in time, because no worker was running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CatchUp {
    /// They are skipped and counted. An instant counts as missed when it is a minute late, or when the next one has come.
    None,
    /// The last of them fires; the others are skipped and counted.
    #[default]
    Last,
    /// All of them fire, up to this many: the newest. All but the last run one after the other, beside the firings of
    /// later instants; older ones are skipped and counted.
    All(u32),
}

/// The rule of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) timing: ScheduleTiming,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) jitter_micros: u64,
    #[serde(default)]
    pub(crate) overlap: Overlap,
    #[serde(default)]
    pub(crate) catch_up: CatchUp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pause_after: Option<u32>,
}

/// Changes of a rule. What is not set stays as it is, or gets its default in a new schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RuleChanges {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timezone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) every_micros: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jitter_micros: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overlap: Option<Overlap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) catch_up: Option<CatchUp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pause_after: Option<u32>,
}

impl RuleChanges {
    /// The rule of a new schedule; `None` if it has neither a cron expression nor an interval.
    pub(crate) fn new_rule(&self) -> Option<Rule> {
        let timing = self.timing(None)?;
        let rule = Rule {
            timing,
            jitter_micros: 0,
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            start_at: None,
            end_at: None,
            pause_after: None,
        };
        Some(self.apply(&rule))
    }

    /// The rule after these changes.
    pub(crate) fn apply(&self, rule: &Rule) -> Rule {
        Rule {
            timing: self.timing(Some(&rule.timing)).unwrap_or_else(|| rule.timing.clone()),
            jitter_micros: self.jitter_micros.unwrap_or(rule.jitter_micros),
            overlap: self.overlap.unwrap_or(rule.overlap),
            catch_up: self.catch_up.unwrap_or(rule.catch_up),
            start_at: self.start_at.or(rule.start_at),
            end_at: self.end_at.or(rule.end_at),
            pause_after: self.pause_after.or(rule.pause_after),
        }
    }

    fn timing(&self, current: Option<&ScheduleTiming>) -> Option<ScheduleTiming> {
        if let Some(micros) = self.every_micros {
            return Some(ScheduleTiming::Every { micros });
        }
        let (expression, timezone) = match current {
            Some(ScheduleTiming::Cron { expression, timezone }) => (Some(expression), Some(timezone)),
            _ => (None, None),
        };
        let expression = self.cron.as_ref().or(expression)?.clone();
        let timezone = self.timezone.as_ref().or(timezone).cloned();
        Some(ScheduleTiming::Cron { expression, timezone: timezone.unwrap_or_else(|| "UTC".into()) })
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
