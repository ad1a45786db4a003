//! Numbers of runs over time: a ring of samples in the memory of the process.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use outlast_core::{Counts, Status, Timestamp};

use super::Service;
use super::problems::of_error;
use crate::problem::Problem;
use crate::stats::{StatsJson, StatsPointJson, StatsQuery};

/// Samples that are kept: one a minute, for 24 hours, and the one before.
const SAMPLES_MAX: usize = 24 * 60 + 1;

/// The numbers of runs at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Timestamp,
    open: u64,
    stuck: u64,
    ended: [u64; 3],
}

impl Sample {
    fn of(counts: &Counts, at: Timestamp) -> Self {
        let count = |status| counts.get(&status).copied().unwrap_or_default();
        let open = super::list::OPEN.map(count).iter().sum();
        let ended = [Status::Completed, Status::Failed, Status::Cancelled].map(count);
        Self { at, open, stuck: count(Status::Stuck), ended }
    }
}

/// The samples of the last 24 hours, the oldest first.
#[derive(Debug, Default)]
pub(super) struct StatsRing(VecDeque<Sample>);

impl StatsRing {
    fn add(&mut self, sample: Sample) {
        if self.0.len() >= SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    fn points(&self, query: StatsQuery, now: Timestamp) -> Vec<StatsPointJson> {
        let length = i64::try_from(query.bucket.as_micros()).unwrap_or(i64::MAX).max(1);
        let begin = now.minus(query.window);
        let mut points: BTreeMap<i64, StatsPointJson> = BTreeMap::new();
        for (before, sample) in self.0.iter().zip(self.0.iter().skip(1)) {
            if sample.at <= begin {
                continue;
            }
            // Buckets begin at whole multiples of their length, so that two queries have the same ones.
            let bucket = sample.at.as_micros().div_euclid(length) * length;
            let point = points.entry(bucket).or_insert_with(|| StatsPointJson {
                at: Timestamp::from_micros(bucket).into(),
                open: 0,
                stuck: 0,
                completed: 0,
                failed: 0,
                cancelled: 0,
            });
            let [completed, failed, cancelled] =
                [0, 1, 2].map(|index| sample.ended[index].saturating_sub(before.ended[index]));
            (point.open, point.stuck) = (sample.open, sample.stuck);
            point.completed += completed;
            point.failed += failed;
            point.cancelled += cancelled;
        }
        points.into_values().collect()
    }
}

impl Service {
    /// How often [`sample`](Self::sample) is to be called.
    pub const SAMPLE_EVERY: Duration = Duration::from_secs(60);

    /// Adds the numbers of runs of this moment to those of which [`stats`](Self::stats) are made. Whoever serves the
    /// service calls it once a minute.
    ///
    /// # Errors
    ///
    /// `unavailable`.
    pub async fn sample(&self) -> Result<(), Problem> {
        let counts = self.client.counts().await.map_err(of_error)?;
        self.stats.lock().add(Sample::of(&counts, self.now().0));
        Ok(())
    }

    /// `GET /api/stats`.
    pub fn stats(&self, query: StatsQuery) -> StatsJson {
        let ring = self.stats.lock();
        StatsJson {
            since: ring.0.front().map(|sample| sample.at.into()),
            bucket_seconds: query.bucket.as_secs(),
            items: ring.points(query, self.now().0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;

    /// A ring with a sample each minute; one more run completes in each, and each fifth fails.
    fn ring(minutes: i64) -> StatsRing {
        let mut ring = StatsRing::default();
        for minute in 0..minutes {
            let ended = [minute.unsigned_abs(), minute.unsigned_abs() / 5, 0];
            ring.add(Sample { at: Timestamp::from_micros(minute * MINUTE), open: 7, stuck: 1, ended });
        }
        ring
    }

    fn query(window: u64, bucket: u64) -> StatsQuery {
        StatsQuery { window: Duration::from_secs(window * 60), bucket: Duration::from_secs(bucket * 60) }
    }

    #[test]
    fn buckets_sum_up_what_ended_in_them() {
        let points = ring(61).points(query(30, 10), Timestamp::from_micros(60 * MINUTE));
        let counted: Vec<_> =
            points.iter().map(|point| (point.at.0.as_micros() / MINUTE, point.completed)).collect();
        assert_eq!(counted, [(30, 9), (40, 10), (50, 10), (60, 1)]);
        assert_eq!((points[1].failed, points[1].open, points[1].stuck), (2, 7, 1));
    }

    #[test]
    fn the_ring_is_bounded_and_deleted_runs_do_not_count_backwards() {
        let mut ring = ring(3 * 24 * 60);
        assert_eq!(ring.0.len(), SAMPLES_MAX);
        let at = Timestamp::from_micros(3 * 24 * 60 * MINUTE);
        ring.add(Sample { at, open: 0, stuck: 0, ended: [0; 3] });
        let points = ring.points(query(1, 1), at);
        assert_eq!((points.len(), points[0].completed, points[0].open), (1, 0, 0));
        assert!(StatsRing::default().points(query(60, 1), at).is_empty());
    }
}
