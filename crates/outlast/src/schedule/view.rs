//! Schedules as clients see them.

use outlast_core::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::rule::{CatchUp, Overlap, ScheduleTiming};
use super::state::PublishedSchedule;

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
    /// What happens to instants that overlap.
    pub overlap: Overlap,
    /// What happens to missed instants.
    pub catch_up: CatchUp,
    /// The workflow that it starts.
    pub workflow: String,
    /// The queue of the firings.
    pub queue: String,
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
}

impl ScheduleView {
    pub(crate) fn new(name: &str, run: RunId, published: PublishedSchedule) -> Self {
        let PublishedSchedule { rule, workflow, queue, progress, next } = published;
        let running = progress.running.iter();
        Self {
            name: name.into(),
            run,
            timing: rule.timing,
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
