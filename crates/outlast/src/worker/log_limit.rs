//! Limits on log lines that can repeat for every run: a service that is down makes thousands of steps fail, and the log
//! shall still be readable.

use std::time::Duration;

use outlast_core::{Failure, RunId, Stuck, WorldError};
use parking_lot::Mutex;

use super::attempts::retry_events::RetryNotice;
use super::outage::whole_time;
use crate::clock::monotonic;

/// The target of the lines: users filter by it, and this module is a detail.
const TARGET: &str = "outlast::worker";

/// The period for which lines of one kind are counted.
const PERIOD: Duration = Duration::from_secs(10);

/// The maximum number of lines of one kind in a period.
const LINES_MAX: u32 = 20;

/// Logs what happens to single runs, each kind of line with a limit of its own. The field `omitted` of a line is the
/// number of lines of its kind that the limit has suppressed since the line before it.
#[derive(Debug, Default)]
pub(super) struct RunLogs {
    retries: LogLimit,
    exhausted: LogLimit,
    failed: LogLimit,
    stuck: LogLimit,
    lost: LogLimit,
    not_committed: LogLimit,
}

impl RunLogs {
    /// Logs an attempt that failed and is followed by another.
    pub(super) fn retried(&self, retry: &RetryNotice) {
        if let Some(omitted) = self.retries.admit() {
            let RetryNotice { run, step, attempt, message, pause, .. } = retry;
            tracing::info!(
                target: TARGET,
                %run, step, attempt, ?pause, omitted,
                "attempt {attempt} of step `{step}` failed and is retried: {message}"
            );
        }
    }

    /// Logs a step that has failed because no attempt was left.
    pub(super) fn exhausted(&self, run: RunId, failure: &Failure) {
        if let Some(omitted) = self.exhausted.admit() {
            let (step, attempts) = (failure.step.as_deref().unwrap_or_default(), failure.attempts);
            tracing::info!(
                target: TARGET,
                %run, step, attempts, omitted,
                "step `{step}` failed after {attempts} attempts and is not retried: {}", failure.message
            );
        }
    }

    /// Logs a run that has failed.
    pub(super) fn failed(&self, run: RunId, failure: &Failure) {
        if let Some(omitted) = self.failed.admit() {
            tracing::info!(target: TARGET, %run, omitted, "the run failed: {}", failure.message);
        }
    }

    /// Logs a run that is about to be marked stuck.
    pub(super) fn stuck(&self, run: RunId, stuck: &Stuck) {
        if let Some(omitted) = self.stuck.admit() {
            tracing::error!(target: TARGET, %run, reason = %stuck.reason, omitted, "the run is stuck: {}", stuck.message);
        }
    }

    /// Logs a turn that the world refuses for a temporary reason, and that is tried again.
    pub(super) fn not_committed(&self, run: RunId, error: &WorldError) {
        if let Some(omitted) = self.not_committed.admit() {
            tracing::warn!(target: TARGET, %run, omitted, "a turn of the run is not committed, and is tried again: {error}");
        }
    }

    /// Logs that such a turn was committed, this long after it was first refused.
    pub(super) fn committed_after(run: RunId, time: Duration) {
        tracing::info!(target: TARGET, %run, "the turn of the run is committed, after {}", whole_time(time));
    }

    /// Logs a run that this worker does not hold any more, though it has not released it. Another worker continues it.
    pub(super) fn lost(&self, run: RunId, error: &WorldError) {
        if let Some(omitted) = self.lost.admit() {
            tracing::info!(target: TARGET, %run, %error, omitted, "stopped working on a run that this worker does not hold any more");
        }
    }
}

/// Admits a limited number of log lines per [`PERIOD`].
#[derive(Debug, Default)]
struct LogLimit(Mutex<LogPeriod>);

#[derive(Debug, Default)]
struct LogPeriod {
    began: Option<Duration>,
    lines: u32,
    omitted: u64,
}

impl LogLimit {
    /// Whether a line may be logged now; then the number of lines that were omitted since the last one.
    fn admit(&self) -> Option<u64> {
        self.0.lock().admit(monotonic())
    }
}

impl LogPeriod {
    fn admit(&mut self, now: Duration) -> Option<u64> {
        if self.began.is_none_or(|began| now >= began + PERIOD) {
            (self.began, self.lines) = (Some(now), 0);
        }
        if self.lines >= LINES_MAX {
            self.omitted += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_above_the_limit_are_counted_and_reported_with_the_next_line() {
        let mut period = LogPeriod::default();
        let start = Duration::from_secs(100);
        for _ in 0..LINES_MAX {
            assert_eq!(period.admit(start), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(period.admit(start + Duration::from_secs(9)), None);
        }
        assert_eq!(period.admit(start + PERIOD), Some(3));
        assert_eq!(period.admit(start + PERIOD), Some(0));
    }
}
