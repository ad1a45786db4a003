//! Schedules as clients see them.

use std::time::Duration;

use outlast_core::limits::SCHEDULE_NEXT_MAX;
use outlast_core::{Headers, RunId, Tags, Timestamp};
use serde::{Deserialize, Serialize};

use super::instants::Instants;
use super::rule::{CatchUp, Overlap, ScheduleTiming};
use super::state::PublishedSchedule;
use super::target::FiringInput;
use crate::error::Error;

/// A schedule as clients see it; returned by [`ScheduleHandle::view`](crate::ScheduleHandle::view).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// The run of the schedule itself.
    pub run: RunId,
    /// When it fires.
    pub timing: ScheduleTiming,
    /// How often clients have changed it: its definition, or whether it is paused. It is 1 when it is created.
    pub revision: u64,
    /// The largest delay of a firing.
    #[serde(skip_serializing_if = "Duration::is_zero")]
    pub jitter: Duration,
    /// From when on it fires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// From when on it does not fire any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
    /// After how many failures in a row it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_after: Option<u32>,
    /// What happens to instants that overlap.
    pub overlap: Overlap,
    /// What happens to missed instants.
    pub catch_up: CatchUp,
    /// The workflow that it starts.
    pub workflow: String,
    /// The version of the workflow.
    pub version: u32,
    /// The queue of the firings.
    pub queue: String,
    /// The priority of the firings.
    pub priority: u8,
    /// The input of the firings.
    pub input: ScheduleInput,
    /// The tags of the firings.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// The headers of the firings.
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// How long after its start a firing is cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// When it fires next, with jitter. `None` while it is paused, after its end, and before a worker has served it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// The instant of that firing, without jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_scheduled_at: Option<Timestamp>,
    /// The pause, if it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<SchedulePause>,
    /// The firings that have not ended.
    pub running: Vec<FiringView>,
    /// The instant that waits for the end of the previous firing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Timestamp>,
    /// The ranges of instants that are still to be backfilled or caught up: later than the first time, and not later
    /// than the second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backlog: Vec<(Timestamp, Timestamp)>,
    /// The firing that was started last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<FiringView>,
    /// The last start that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<ScheduleRefusal>,
    /// Why the next instant cannot be computed, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What has happened so far.
    pub counts: ScheduleCounts,
    /// The time that intervals are counted from.
    #[serde(skip)]
    anchor: Timestamp,
    /// Instants up to this time are dealt with.
    #[serde(skip)]
    position: Timestamp,
}

/// The input of the firings of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScheduleInput {
    /// This JSON text.
    Json(String),
    /// The output of this step.
    Step(String),
    /// A JSON text that is too large for a view.
    Large,
}

impl ScheduleView {
    /// Returns the next instants at `now`, without jitter, as this machine's time-zone data has them: at most 1,000. A
    /// pause is not taken into account.
    ///
    /// # Errors
    ///
    /// `Invalid` if this machine does not know the time zone.
    pub fn next_instants(&self, now: Timestamp, count: usize) -> Result<Vec<Timestamp>, Error> {
        let instants = Instants::new(&self.timing, self.anchor).map_err(Error::invalid)?;
        let is_before_end = |next: &Timestamp| self.end_at.is_none_or(|end| *next < end);
        let next = instants.following(self.position.max(now)).take_while(is_before_end);
        Ok(next.take(count.min(SCHEDULE_NEXT_MAX)).collect())
    }

    /// Returns the instants of a range, whose end is not part of it: at most `count`.
    ///
    /// # Errors
    ///
    /// `Invalid` if this machine does not know the time zone.
    pub fn instants_in(
        &self,
        range: std::ops::Range<Timestamp>,
        count: usize,
    ) -> Result<Vec<Timestamp>, Error> {
        let instants = Instants::new(&self.timing, self.anchor).map_err(Error::invalid)?;
        let following = instants.following(super::plan::just_before(range.start));
        Ok(following.take_while(|instant| *instant < range.end).take(count).collect())
    }

    pub(crate) fn new(name: &str, run: RunId, published: PublishedSchedule) -> Self {
        let PublishedSchedule { rule, workflow, queue, target, is_input_left_out, progress, next } =
            published;
        let running = progress.running.iter();
        let deadline = target.as_ref().and_then(|target| target.deadline_micros);
        let input = target.as_ref().map(|target| target.input.clone());
        Self {
            name: name.into(),
            run,
            timing: rule.timing,
            revision: progress.revision,
            jitter: Duration::from_micros(rule.jitter_micros),
            start_at: rule.start_at,
            end_at: rule.end_at,
            pause_after: rule.pause_after,
            version: target.as_ref().map_or(1, |target| target.version),
            priority: target.as_ref().map_or(0, |target| target.priority),
            tags: target.as_ref().map(|target| target.tags.clone()).unwrap_or_default(),
            headers: target.map(|target| target.headers).unwrap_or_default(),
            input: match input {
                Some(FiringInput::Step(step)) => ScheduleInput::Step(step),
                Some(FiringInput::Json(json)) if !is_input_left_out => ScheduleInput::Json(json),
                _ => ScheduleInput::Large,
            },
            deadline: deadline.map(Duration::from_micros),
            anchor: progress.anchor,
            position: progress.position,
            overlap: rule.overlap,
            catch_up: rule.catch_up,
            workflow,
            queue,
            next: next.map(|next| next.at),
            next_scheduled_at: next.map(|next| next.nominal),
            paused: progress.pause,
            running: running
                .map(|firing| FiringView { run: firing.run, scheduled_at: firing.nominal })
                .collect(),
            waiting: progress.waiting.map(|waiting| waiting.nominal),
            backlog: progress.backlog.iter().map(|range| (range.after, range.until)).collect(),
            last: progress.last,
            refusal: progress.refusal,
            problem: progress.problem,
            counts: progress.counts,
        }
    }
}

/// A firing of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FiringView {
    /// The run that was started.
    pub run: RunId,
    /// Its instant.
    pub scheduled_at: Timestamp,
}

impl FiringView {
    pub(crate) fn new(run: RunId, scheduled_at: Timestamp) -> Self {
        Self { run, scheduled_at }
    }
}

/// Why a schedule is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SchedulePause {
    /// The reason.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// Who paused it, if a client did and said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

impl SchedulePause {
    pub(crate) fn new(reason: String, since: Timestamp, actor: Option<String>) -> Self {
        Self { reason, since, actor }
    }
}

/// A firing that was not started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScheduleRefusal {
    /// Its instant.
    pub scheduled_at: Timestamp,
    /// When the start was refused.
    pub at: Timestamp,
    /// Why.
    pub message: String,
}

impl ScheduleRefusal {
    pub(crate) fn new(scheduled_at: Timestamp, at: Timestamp, message: String) -> Self {
        Self { scheduled_at, at, message }
    }
}

/// What has happened to the instants of a schedule so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ScheduleCounts {
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
    /// Instants that nobody served in time and that were not caught up. After a long time without workers, at most
    /// 10,000 are counted.
    pub missed: u64,
    /// Firings that could not be started: the world refused the start, or the step that computes the input failed.
    pub refused: u64,
    /// Instants of a backfill that had fired before.
    pub repeated: u64,
}
