//! What clients send to a schedule.

use std::ops::Range;

use outlast_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::plan::{InstantRange, just_before};
use super::rule::{Rule, RuleChanges};
use super::target::ScheduleTarget;

/// A command for a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScheduleCommand {
    /// The whole definition. It changes nothing if the schedule has it already.
    Define { rule: Box<Rule>, target: Box<ScheduleTarget> },
    /// Changes of the rule, and the target if it changes.
    Change {
        rule: Box<RuleChanges>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<Box<ScheduleTarget>>,
    },
    /// No instant fires until it is resumed.
    Pause { reason: String },
    /// Instants fire again. Those since the pause are not caught up.
    Resume,
    /// One firing now.
    Trigger,
    /// The instants of a range, one after the other.
    Backfill(InstantRange),
}

impl ScheduleCommand {
    /// The command to fire the instants of a range, whose end is not part of it.
    pub(crate) fn backfill(range: Range<Timestamp>) -> Self {
        Self::Backfill(InstantRange { after: just_before(range.start), until: just_before(range.end) })
    }
}
