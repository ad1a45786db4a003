//! Metrics: what a worker has done, in numbers.
//!
//! Counting is adding to an atomic, so it is always on. Times go into a histogram of fixed size, whose
//! buckets are at most a quarter wider than what they hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outlast_core::Status;

/// What a worker has done since it started, over all its sessions; from
/// [`Worker::metrics`](crate::Worker::metrics).
///
/// The numbers are read one by one while the worker goes on, so they may differ by what happened
/// meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Turns that were committed.
    pub turns: u64,
    /// Calls to the world that committed them.
    pub commits: u64,
    /// Turns per commit: all of them together, over the number of commits.
    pub batch_mean: f64,
    /// Turns of the largest commit.
    pub batch_max: u64,
    /// How long the world took to commit.
    pub commit_time: Times,
    /// Runs whose history was replayed because their future was not here.
    pub replays: u64,
    /// Claimed runs whose future was still here.
    pub cache_hits: u64,
    /// Claimed runs, not new ones, whose future was not here.
    pub cache_misses: u64,
    /// Claims that the world answered.
    pub claims: u64,
    /// Runs that they brought.
    pub claimed_runs: u64,
    /// How long it took from a hint to the answer of the claim that followed it.
    pub hint_to_claim: Times,
    /// Runs that this worker knows to be live, now.
    pub live_runs: u64,
    /// Runs that the world said its session held, at the last beat.
    pub held_runs: u64,
    /// Beats that were acknowledged.
    pub beats: u64,
    /// Sessions that were lost; after each the worker joins anew.
    pub sessions_lost: u64,
    /// Attempts that were started.
    pub attempts_started: u64,
    /// Attempts that failed: by an error, a panic or a timeout. An input that the step's code cannot read is none:
    /// its run is stuck.
    pub attempts_failed: u64,
    /// Turns that did not come back in time; each left its run stuck.
    pub turns_hung: u64,
}

/// A summary of how long something took. What is not known exactly is rounded up, by a quarter at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// How often it happened.
    pub count: u64,
    /// All of it together, over `count`.
    pub mean: Duration,
    /// Half of them took no longer.
    pub p50: Duration,
    /// 99 of 100 took no longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

/// Counts for [`Metrics`].
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) turns: Counter,
    pub(super) commits: Counter,
    pub(super) batch_turns: Counter,
    pub(super) batch_max: Counter,
    pub(super) commit_time: Histogram,
    pub(super) replays: Counter,
    pub(super) cache_hits: Counter,
    pub(super) cache_misses: Counter,
    pub(super) claims: Counter,
    pub(super) claimed_runs: Counter,
    pub(super) hint_to_claim: Histogram,
    pub(super) held_runs: Counter,
    pub(super) beats: Counter,
    pub(super) sessions_lost: Counter,
    pub(super) attempts_started: Counter,
    pub(super) attempts_failed: Counter,
    pub(super) turns_hung: Counter,
    pub(super) runs_completed: Counter,
    pub(super) runs_failed: Counter,
    /// How many attempts are under way, by the step's place among those that are registered; the first
    /// is for steps that are not.
    under_way: Box<[AtomicU64]>,
}

/// An attempt that is under way, until this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) meter: Arc<Meter>,
    place: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(count) = self.meter.under_way.get(self.place) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Meter {
    /// A meter for so many registered steps.
    pub(super) fn new(steps: usize) -> Self {
        Self { under_way: (0..=steps).map(|_| AtomicU64::new(0)).collect(), ..Self::default() }
    }

    /// An attempt at the step of this place begins.
    pub(super) fn begin(self: &Arc<Self>, place: usize) -> UnderWay {
        self.attempts_started.add(1);
        if let Some(count) = self.under_way.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        UnderWay { meter: self.clone(), place }
    }

    /// How many attempts are under way, by the step's place.
    pub(super) fn under_way(&self) -> impl Iterator<Item = u64> {
        self.under_way.iter().map(|count| count.load(Ordering::Relaxed))
    }

    /// A run has ended here.
    pub(super) fn ended(&self, status: Status) {
        match status {
            Status::Completed => self.runs_completed.add(1),
            Status::Failed => self.runs_failed.add(1),
            _ => {}
        }
    }

    /// A commit of so many turns was answered.
    pub(super) fn committed(&self, turns: usize, took: Duration) {
        self.commits.add(1);
        self.batch_turns.add(turns as u64);
        self.batch_max.raise(turns as u64);
        self.commit_time.add(took);
    }

    /// The numbers as they are, of a worker with so many live runs.
    pub(super) fn read(&self, live_runs: usize) -> Metrics {
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

/// A number that others may read at any time.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    fn raise(&self, at_least: u64) {
        if self.get() < at_least {
            self.0.fetch_max(at_least, Ordering::Relaxed);
        }
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Buckets per doubling.
const STEPS: u64 = 4;

/// Enough for 2^36 microseconds, most of a day; what is longer counts as that.
const BUCKETS: usize = 4 * 36;

/// How often something took how long.
#[derive(Debug)]
pub(super) struct Histogram {
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
    pub(super) fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(micros)].add(1);
        self.micros.add(micros);
        self.max_micros.raise(micros);
    }

    fn summary(&self) -> Times {
        let counts: Vec<u64> = self.buckets.iter().map(Counter::get).collect();
        let count: u64 = counts.iter().sum();
        let max = self.max_micros.get();
        let part = |hundredths: u64| {
            let wanted = (count * hundredths).div_ceil(100);
            let mut seen = 0;
            let reached = counts.iter().position(|here| {
                seen += here;
                seen >= wanted
            });
            Duration::from_micros(reached.map_or(max, |index| last_of(index).min(max)))
        };
        if count == 0 {
            return Times::default();
        }
        Times {
            count,
            mean: Duration::from_micros(self.micros.get() / count),
            p50: part(50),
            p99: part(99),
            max: Duration::from_micros(max),
        }
    }
}

/// The bucket of a time: one each below 4 microseconds, then four per doubling.
fn bucket(micros: u64) -> usize {
    if micros < STEPS {
        return micros as usize;
    }
    let doubling = u64::from(micros.ilog2());
    let index = STEPS * (doubling - 1) + ((micros >> (doubling - 2)) & (STEPS - 1));
    (index as usize).min(BUCKETS - 1)
}

/// The longest time in a bucket, in microseconds.
fn last_of(bucket: usize) -> u64 {
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
    fn a_bucket_is_at_most_a_quarter_wider_than_what_it_holds() {
        for micros in (0..10_000).chain([65_535, 65_536, 1_000_000, 3_600_000_000]) {
            let last = last_of(bucket(micros));
            assert!(last >= micros && last <= micros + micros / 4, "{micros} is in a bucket up to {last}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_summary_says_what_most_took_and_what_the_worst() {
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
