//! Metrics: counters of a worker's activity.
//!
//! Counting is an atomic addition, so it is always on. Durations are counted in a histogram of fixed size, whose
//! relative error is at most a quarter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outlast_core::Status;

use crate::telemetry::{LabelledMetric, StepMetrics};

/// Counters of a worker's activity since it started, over all its sessions; from
/// [`Worker::metrics`](crate::Worker::metrics).
///
/// The counters are read one after the other while the worker works, so they need not be consistent with each other.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Committed turns.
    pub turns: u64,
    /// Calls of `commit`.
    pub commits: u64,
    /// The mean number of turns per commit.
    pub batch_mean: f64,
    /// The number of turns of the largest commit.
    pub batch_max: u64,
    /// The duration of commits.
    pub commit_time: Times,
    /// Runs whose history was replayed, because their future was not in memory.
    pub replays: u64,
    /// Claimed runs whose future was in memory.
    pub cache_hits: u64,
    /// Claimed runs, without new ones, whose future was not in memory.
    pub cache_misses: u64,
    /// Claims that returned.
    pub claims: u64,
    /// Runs that were claimed.
    pub claimed_runs: u64,
    /// The time from a hint until the claim that followed it returned.
    pub hint_to_claim: Times,
    /// Runs that are live now.
    pub live_runs: u64,
    /// Runs that the session held according to the world, at the last beat.
    pub held_runs: u64,
    /// Beats that were acknowledged.
    pub beats: u64,
    /// Sessions that were lost. After each loss the worker joins again.
    pub sessions_lost: u64,
    /// Attempts that were started.
    pub attempts_started: u64,
    /// Attempts that failed: by an error, a panic or a timeout. An input that the step's code cannot decode is not
    /// counted: it makes the run stuck.
    pub attempts_failed: u64,
    /// Turns that did not return in time; each made its run stuck.
    pub turns_hung: u64,
}

/// A summary of durations. Percentiles are rounded up, by at most a quarter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// The number of durations.
    pub count: u64,
    /// The mean.
    pub mean: Duration,
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The maximum.
    pub max: Duration,
}

/// The counters behind [`Metrics`].
#[derive(Debug, Default)]
pub(in crate::worker) struct Meter {
    pub(in crate::worker) turns: Counter,
    pub(in crate::worker) commits: Counter,
    pub(in crate::worker) batch_turns: Counter,
    pub(in crate::worker) batch_max: Counter,
    pub(in crate::worker) commit_time: Histogram,
    pub(in crate::worker) replays: Counter,
    pub(in crate::worker) cache_hits: Counter,
    pub(in crate::worker) cache_misses: Counter,
    pub(in crate::worker) claims: Counter,
    pub(in crate::worker) claimed_runs: Counter,
    pub(in crate::worker) hint_to_claim: Histogram,
    pub(in crate::worker) held_runs: Counter,
    pub(in crate::worker) beats: Counter,
    pub(in crate::worker) sessions_lost: Counter,
    pub(in crate::worker) attempts_started: Counter,
    pub(in crate::worker) attempts_failed: Counter,
    pub(in crate::worker) turns_hung: Counter,
    pub(in crate::worker) runs_completed: Counter,
    pub(in crate::worker) runs_failed: Counter,
    /// The number of running attempts by the index of the step; the first is for steps that are not registered.
    running_attempts: Box<[AtomicU64]>,
}

/// An attempt that is counted as running until this is dropped.
#[derive(Debug)]
pub(in crate::worker) struct RunningAttempt {
    pub(in crate::worker) meter: Arc<Meter>,
    step_index: usize,
    /// The metrics of the step, for all workers of this process.
    pub(in crate::worker) step: Arc<LabelledMetric<StepMetrics>>,
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        if let Some(count) = self.meter.running_attempts.get(self.step_index) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        self.step.metric.active.decrease();
    }
}

impl Meter {
    /// Counters for a worker with this number of registered steps.
    pub(in crate::worker) fn new(steps: usize) -> Self {
        Self { running_attempts: (0..=steps).map(|_| AtomicU64::new(0)).collect(), ..Self::default() }
    }

    /// Counts an attempt at the step with this index.
    pub(in crate::worker) fn begin_attempt(
        self: &Arc<Self>,
        step_index: usize,
        step: Arc<LabelledMetric<StepMetrics>>,
    ) -> RunningAttempt {
        self.attempts_started.add(1);
        step.metric.active.increase();
        if let Some(count) = self.running_attempts.get(step_index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        RunningAttempt { meter: self.clone(), step_index, step }
    }

    /// The number of running attempts by the index of the step.
    pub(in crate::worker) fn running_attempts(&self) -> impl Iterator<Item = u64> {
        self.running_attempts.iter().map(|count| count.load(Ordering::Relaxed))
    }

    /// Counts a run that has ended.
    pub(in crate::worker) fn ended(&self, status: Status) {
        match status {
            Status::Completed => self.runs_completed.add(1),
            Status::Failed => self.runs_failed.add(1),
            _ => {}
        }
    }

    /// Counts a commit of this number of turns.
    pub(in crate::worker) fn committed(&self, turns: usize, took: Duration) {
        self.commits.add(1);
        self.batch_turns.add(turns as u64);
        self.batch_max.raise(turns as u64);
        self.commit_time.add(took);
    }

    /// Returns the current values, for a worker with this number of live runs.
    pub(in crate::worker) fn read(&self, live_runs: usize) -> Metrics {
        let commits = self.commits.get();
        Metrics {
            turns: self.turns.get(),
            commits,
            batch_mean: if commits == 0 { 0.0 } else { self.batch_turns.get() as f64 / commits as f64 },
            batch_max: self.batch_max.get(),
            commit_time: self.commit_time.summary(),
            replays: self.replays.get(),
            cache_hits: self.cache_hits.get(),
            cache_misses: self.cache_misses.get(),
            claims: self.claims.get(),
            claimed_runs: self.claimed_runs.get(),
            hint_to_claim: self.hint_to_claim.summary(),
            live_runs: live_runs as u64,
            held_runs: self.held_runs.get(),
            beats: self.beats.get(),
            sessions_lost: self.sessions_lost.get(),
            attempts_started: self.attempts_started.get(),
            attempts_failed: self.attempts_failed.get(),
            turns_hung: self.turns_hung.get(),
        }
    }
}

/// A counter that can be read at any time.
#[derive(Debug, Default)]
pub(in crate::worker) struct Counter(AtomicU64);

impl Counter {
    pub(in crate::worker) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(in crate::worker) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// Raises the value to at least this one.
    fn raise(&self, at_least: u64) {
        if self.get() < at_least {
            self.0.fetch_max(at_least, Ordering::Relaxed);
        }
    }

    pub(in crate::worker) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The number of buckets per doubling.
const STEPS: u64 = 4;

/// The number of buckets: up to 2^36 microseconds, most of a day. Longer durations are counted in the last bucket.
const BUCKETS: usize = 4 * 36;

/// Counts durations in buckets.
#[derive(Debug)]
pub(in crate::worker) struct Histogram {
    buckets: [Counter; BUCKETS],
    micros: Counter,
    max_micros: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = std::array::from_fn(|_| Counter::default());
        Self { buckets, micros: Counter::default(), max_micros: Counter::default() }
    }
}

impl Histogram {
    pub(in crate::worker) fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(micros)].add(1);
        self.micros.add(micros);
        self.max_micros.raise(micros);
    }

    /// Computes the percentiles.
    fn summary(&self) -> Times {
        let counts: Vec<u64> = self.buckets.iter().map(Counter::get).collect();
        let count: u64 = counts.iter().sum();
        let max = self.max_micros.get();
        let percentile = |percent: u64| {
            let rank = (count * percent).div_ceil(100);
            let mut seen = 0;
            let reached = counts.iter().position(|in_bucket| {
                seen += in_bucket;
                seen >= rank
            });
            Duration::from_micros(reached.map_or(max, |index| bucket_max(index).min(max)))
        };
        if count == 0 {
            return Times::default();
        }
        Times {
            count,
            mean: Duration::from_micros(self.micros.get() / count),
            p50: percentile(50),
            p99: percentile(99),
            max: Duration::from_micros(max),
        }
    }
}

/// The bucket of a duration: one for each microsecond below 4, then four per doubling.
fn bucket(micros: u64) -> usize {
    if micros < STEPS {
        return micros as usize;
    }
    let doubling = u64::from(micros.ilog2());
    let index = STEPS * (doubling - 1) + ((micros >> (doubling - 2)) & (STEPS - 1));
    (index as usize).min(BUCKETS - 1)
}

/// The longest duration in a bucket, in microseconds.
fn bucket_max(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let (doubling, step) = (bucket / STEPS + 1, bucket % STEPS);
    ((STEPS + step + 1) << (doubling - 2)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_rounded_up_by_at_most_a_quarter() {
        for micros in (0..10_000).chain([65_535, 65_536, 1_000_000, 3_600_000_000]) {
            let last = bucket_max(bucket(micros));
            assert!(last >= micros && last <= micros + micros / 4, "{micros} is in a bucket up to {last}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_summary_has_percentiles_and_the_maximum() {
        let histogram = Histogram::default();
        assert_eq!(histogram.summary(), Times::default());
        for _ in 0..98 {
            histogram.add(Duration::from_micros(100));
        }
        histogram.add(Duration::from_millis(10));
        histogram.add(Duration::from_secs(2));
        let summary = histogram.summary();
        assert_eq!((summary.count, summary.max), (100, Duration::from_secs(2)));
        assert_eq!(summary.mean, Duration::from_micros(20_198));
        assert!((100..=125).contains(&summary.p50.as_micros()), "{summary:?}");
        assert!((10_000..=12_500).contains(&summary.p99.as_micros()), "{summary:?}");
    }
}
