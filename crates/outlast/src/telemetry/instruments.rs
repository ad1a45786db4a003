//! Numbers that many threads count at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::families::HistogramValue;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct MetricCounter(AtomicU64);

impl MetricCounter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub(crate) struct MetricGauge(AtomicU64);

impl MetricGauge {
    pub(crate) fn increase(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn decrease(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bounds of a histogram, in increasing order, and what one unit of them is.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) bounds: &'static [u64],
    pub(super) unit: f64,
}

/// Durations of work inside a process, in microseconds: 50 µs to 10 s.
pub(super) static SHORT_TIMES: Bounds = Bounds {
    bounds: &[
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 10_000_000,
    ],
    unit: 1e-6,
};

/// Durations of attempts and delays, in microseconds: 1 ms to 1 h.
pub(super) static MEDIUM_TIMES: Bounds = Bounds {
    bounds: &[
        1_000,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        30_000_000,
        60_000_000,
        300_000_000,
        900_000_000,
        3_600_000_000,
    ],
    unit: 1e-6,
};

/// Durations of runs, in microseconds: 10 ms to 30 days.
pub(super) static LONG_TIMES: Bounds = Bounds {
    bounds: &[
        10_000,
        100_000,
        500_000,
        1_000_000,
        5_000_000,
        30_000_000,
        60_000_000,
        300_000_000,
        1_800_000_000,
        3_600_000_000,
        21_600_000_000,
        86_400_000_000,
        604_800_000_000,
        2_592_000_000_000,
    ],
    unit: 1e-6,
};

/// Numbers of turns in a commit.
pub(super) static TURN_COUNTS: Bounds =
    Bounds { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024], unit: 1.0 };

/// Numbers of events in a replay.
pub(super) static EVENT_COUNTS: Bounds =
    Bounds { bounds: &[1, 10, 50, 100, 500, 1_000, 5_000, 10_000, 50_000, 100_000], unit: 1.0 };

/// Counts numbers in buckets with fixed bounds.
#[derive(Debug)]
pub(crate) struct MetricHistogram {
    bounds: &'static Bounds,
    /// One for each bound, and one for what is larger than all of them.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl MetricHistogram {
    pub(super) fn new(bounds: &'static Bounds) -> Self {
        let buckets = (0..=bounds.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts a duration.
    pub(crate) fn time(&self, time: Duration) {
        self.count(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Counts a number.
    pub(crate) fn count(&self, number: u64) {
        let bucket = self.bounds.bounds.partition_point(|bound| *bound < number);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(number, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> HistogramValue {
        let mut below = 0;
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let buckets = self.bounds.bounds.iter().zip(&counts).map(|(bound, count)| {
            below += count;
            (self.in_units(*bound), below)
        });
        let buckets = buckets.collect();
        HistogramValue {
            buckets,
            count: counts.iter().sum(),
            sum: self.sum.load(Ordering::Relaxed) as f64 * self.bounds.unit,
        }
    }

    /// A bound in units. A division is exact where a multiplication by `unit` would give 0.00025000000000000001.
    fn in_units(&self, bound: u64) -> f64 {
        bound as f64 / (1.0 / self.bounds.unit).round()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_counted_in_its_bucket_and_in_all_larger_ones() {
        let histogram = MetricHistogram::new(&TURN_COUNTS);
        for number in [1, 2, 3, 5_000] {
            histogram.count(number);
        }
        let value = histogram.read();
        assert_eq!((value.count, value.sum), (4, 5_006.0));
        assert_eq!(value.buckets[..3], [(1.0, 1), (2.0, 2), (4.0, 3)]);
        assert_eq!(value.buckets.last(), Some(&(1_024.0, 3)), "the largest is only in the count");
    }

    #[test]
    fn bounds_are_seconds_without_rounding_errors() {
        let times = MetricHistogram::new(&SHORT_TIMES);
        times.time(Duration::from_micros(250));
        let bounds: Vec<String> = times.read().buckets.iter().map(|(bound, _)| bound.to_string()).collect();
        assert_eq!(bounds[..4], ["0.00005", "0.0001", "0.00025", "0.0005"]);
        assert_eq!(times.read().buckets[2].1, 1, "a bound includes itself");
    }
}
