//! The state of a schedule: what outlives a generation.

use outlast_core::limits::SCHEDULE_INPUT_PUBLISHED_MAX;
use outlast_core::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::answer::CommandAnswer;
use super::plan::{InstantRange, PlannedInstant, just_before};
use super::rule::{Rule, RuleChanges};
use super::target::{FiringInput, ScheduleTarget};
use super::view::{FiringView, ScheduleCounts, SchedulePause, ScheduleRefusal};

/// The input of a generation of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScheduleState {
    pub(crate) rule: Rule,
    pub(crate) target: ScheduleTarget,
    pub(crate) progress: Progress,
}

/// How far a schedule is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The time that intervals are counted from.
    pub(crate) anchor: Timestamp,
    /// Instants up to this time are dealt with.
    pub(crate) position: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pause: Option<SchedulePause>,
    /// The firings that were started and have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) running: Vec<RunningFiring>,
    /// The firings whose input is being computed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) preparing: Vec<DueFiring>,
    /// The firing that waits for the end of the previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<DueFiring>,
    /// Instants to backfill and to catch up, one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) backlog: Vec<InstantRange>,
    #[serde(default)]
    pub(crate) counts: ScheduleCounts,
    #[serde(default)]
    pub(crate) failures_in_a_row: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<FiringView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<ScheduleRefusal>,
    /// Why the next instant cannot be computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    /// The instant of the last trigger, so that no two are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) triggered: Option<Timestamp>,
    /// How often clients have changed the schedule.
    #[serde(default)]
    pub(crate) revision: u64,
    /// Answers to commands whose senders wait for them, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answers: Vec<CommandAnswer>,
}

/// A firing that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DueFiring {
    pub(crate) nominal: Timestamp,
    pub(crate) lane: Lane,
}

/// Why an instant fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lane {
    /// Its time has come. The overlap rule applies.
    Regular,
    /// A client has triggered it. The overlap rule applies.
    Trigger,
    /// It is backfilled or caught up: one after the other, beside the others.
    Backlog,
}

/// A firing that was started and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningFiring {
    /// The operation that started it, which later generations keep.
    pub(crate) op: u64,
    pub(crate) run: RunId,
    pub(crate) nominal: Timestamp,
    pub(crate) lane: Lane,
}

impl ScheduleState {
    /// The state of a schedule that is created at `now`.
    pub(crate) fn new(rule: Rule, target: ScheduleTarget, now: Timestamp) -> Self {
        let (anchor, position) = begin_of(&rule, now);
        let progress = Progress {
            anchor,
            position,
            pause: None,
            running: Vec::new(),
            preparing: Vec::new(),
            waiting: None,
            backlog: Vec::new(),
            counts: ScheduleCounts::default(),
            failures_in_a_row: 0,
            last: None,
            refusal: None,
            problem: None,
            triggered: None,
            revision: 1,
            answers: Vec::new(),
        };
        Self { rule, target, progress }
    }

    /// Replaces the definition at `now`. Instants before that are not caught up. Returns whether it differs.
    pub(super) fn define(&mut self, rule: Rule, target: ScheduleTarget, now: Timestamp) -> bool {
        let has_changed = self.target != target || self.rule != rule;
        self.progress.revision += u64::from(has_changed);
        self.target = target;
        if self.rule == rule {
            return has_changed;
        }
        let (anchor, position) = begin_of(&rule, now);
        if rule.timing != self.rule.timing || rule.start_at != self.rule.start_at {
            self.progress.anchor = anchor;
        }
        self.progress.position = self.progress.position.max(position);
        self.rule = rule;
        true
    }

    pub(super) fn change(
        &mut self,
        changes: &RuleChanges,
        target: Option<ScheduleTarget>,
        now: Timestamp,
    ) -> bool {
        let target = target.unwrap_or_else(|| self.target.clone());
        self.define(changes.apply(&self.rule), target, now)
    }

    /// Whether a firing runs or is prepared that an instant must not overlap.
    pub(super) fn is_busy(&self) -> bool {
        self.has_firing(|lane| lane != Lane::Backlog)
    }

    /// Whether an instant of the backlog runs or is prepared.
    pub(super) fn is_backlog_busy(&self) -> bool {
        self.has_firing(|lane| lane == Lane::Backlog)
    }

    fn has_firing(&self, is_wanted: impl Fn(Lane) -> bool) -> bool {
        let Progress { running, preparing, .. } = &self.progress;
        running.iter().any(|firing| is_wanted(firing.lane)) || preparing.iter().any(|due| is_wanted(due.lane))
    }

    /// The number of firings that run or are prepared.
    pub(super) fn firings(&self) -> usize {
        self.progress.running.len() + self.progress.preparing.len()
    }
}

/// The time that intervals are counted from, and the position, of a rule that applies from `now` on.
fn begin_of(rule: &Rule, now: Timestamp) -> (Timestamp, Timestamp) {
    match rule.start_at {
        Some(start) => (start, just_before(start).max(now)),
        None => (now, now),
    }
}

/// The state that a schedule publishes for its views. It does not contain a large input of firings.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PublishedSchedule {
    pub(crate) rule: Rule,
    pub(crate) workflow: String,
    pub(crate) queue: String,
    /// What it starts, without a large input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<ScheduleTarget>,
    #[serde(default)]
    pub(crate) is_input_left_out: bool,
    pub(crate) progress: Progress,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<PlannedInstant>,
}

impl PublishedSchedule {
    pub(crate) fn new(state: &ScheduleState, next: Option<PlannedInstant>) -> Self {
        let mut target = state.target.clone();
        let is_input_left_out = match &target.input {
            FiringInput::Json(json) => json.len() > SCHEDULE_INPUT_PUBLISHED_MAX,
            FiringInput::Step(_) => false,
        };
        if is_input_left_out {
            target.input = FiringInput::Json("null".into());
        }
        Self {
            target: Some(target),
            is_input_left_out,
            rule: state.rule.clone(),
            workflow: state.target.workflow.clone(),
            queue: state.target.queue.clone(),
            progress: state.progress.clone(),
            next,
        }
    }
}
