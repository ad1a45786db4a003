//! Pages of runs in worlds that read them from indexes, in the order of ids.
//!
//! A page is a range of ids. Lists are sorted by id and can be limited by the time of the start. The two orders are
//! almost the same, but not quite: an id has the clock of the process that created it, shortly before the start. A world
//! stores the smallest and the largest difference of all runs ever started, the *skew*, so a range of start times can be
//! converted into a range of ids that contains all of its runs, and a few more at both ends.

use std::ops::RangeInclusive;

use crate::id::RunId;
use crate::run::{ListOrder, RunQuery, RunView};
use crate::time::Timestamp;

/// The number of bits of an id below its time.
const BITS_BELOW_TIME: u32 = 80;
const BITS_OF_TIME: u32 = 128 - BITS_BELOW_TIME;

/// The latest time that an id can contain, in milliseconds.
const MILLIS_MAX: u128 = u128::MAX >> BITS_BELOW_TIME;

/// The smallest and the largest difference between the time in an id and the time of its start, in milliseconds.
pub type IdSkew = RangeInclusive<i64>;

/// The difference between the time in a run's id and the time of its start, in milliseconds.
pub fn id_skew(run: RunId, started: Timestamp) -> i64 {
    millis_of(run) - started.as_micros().div_euclid(1_000)
}

/// The time in a run's id, in milliseconds since 1970.
pub fn millis_of(run: RunId) -> i64 {
    // The time has 48 bits, so the conversion is lossless.
    (run.bits() >> BITS_BELOW_TIME) as i64
}

/// The ids that a page may contain, and the direction in which they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The ids.
    pub ids: RangeInclusive<u128>,
    /// Whether they are read from the lowest id on. A list is read backwards if only its end is given.
    pub is_ascending: bool,
}

impl IdRange {
    /// Whether the range of a query depends on the skew.
    pub fn needs_skew(query: &RunQuery) -> bool {
        query.created_from.is_some() || latest_start(query).is_some()
    }

    /// The range of a query; `None` if it is empty. Without a skew, no run was ever started or the query does not
    /// [need](Self::needs_skew) it.
    pub fn of(query: &RunQuery, skew: Option<IdSkew>) -> Option<Self> {
        let is_backwards = query.before.is_some() && query.after.is_none();
        let is_ascending = (query.order == ListOrder::OldestFirst) != is_backwards;
        let (mut low, mut high) = ids_between(skew, query.created_from, latest_start(query)).into_inner();
        let (above, below) = match query.order {
            ListOrder::OldestFirst => (query.after, query.before),
            ListOrder::NewestFirst => (query.before, query.after),
        };
        if let Some(above) = above {
            low = low.max(above.bits().checked_add(1)?);
        }
        if let Some(below) = below {
            high = high.min(below.bits().checked_sub(1)?);
        }
        (low <= high).then_some(Self { ids: low..=high, is_ascending })
    }

    /// The runs with the lowest and the highest id.
    pub fn bounds(&self) -> [RunId; 2] {
        [*self.ids.start(), *self.ids.end()].map(RunId::from_bits)
    }

    /// Ends the range where the first of several scans reached its limit, and returns that run. `scan_ends` has the last
    /// run of each scan that did not reach the end of the range.
    pub fn end_at_first(&mut self, scan_ends: impl IntoIterator<Item = RunId>) -> Option<RunId> {
        let scan_ends = scan_ends.into_iter();
        let nearest = if self.is_ascending { scan_ends.min() } else { scan_ends.max() }?;
        let (low, high) = (*self.ids.start(), *self.ids.end());
        self.ids = if self.is_ascending { low..=nearest.bits() } else { nearest.bits()..=high };
        Some(nearest)
    }

    /// Sorts runs of several scans in the order of the page, and discards those beyond `limit` and one more, which shows
    /// that there is a next page.
    pub fn merge(&self, runs: &mut Vec<RunView>, limit: usize) {
        runs.sort_by_key(|run| run.id);
        if !self.is_ascending {
            runs.reverse();
        }
        runs.truncate(limit + 1);
    }
}

/// The time before which the runs of a query were started: a run that ended before a time was started before it.
fn latest_start(query: &RunQuery) -> Option<Timestamp> {
    query.created_before.into_iter().chain(query.ended_before).min()
}

/// A range of ids that contains all runs that were started from `from` until `before`.
fn ids_between(
    skew: Option<IdSkew>,
    from: Option<Timestamp>,
    before: Option<Timestamp>,
) -> RangeInclusive<u128> {
    let Some(skew) = skew else { return 0..=u128::MAX };
    let millis = |at: Timestamp, skew: i64| at.as_micros().div_euclid(1_000).saturating_add(skew);
    let low = from.map_or(0, |from| lowest_id_at(millis(from, *skew.start())));
    let high = before.map_or(u128::MAX, |before| highest_id_at(millis(before, *skew.end())));
    low..=high
}

fn lowest_id_at(millis: i64) -> u128 {
    let millis = u128::try_from(millis).unwrap_or(0);
    millis.min(MILLIS_MAX) << BITS_BELOW_TIME
}

fn highest_id_at(millis: i64) -> u128 {
    match u128::try_from(millis) {
        Ok(millis) => (millis.min(MILLIS_MAX) << BITS_BELOW_TIME) | (u128::MAX >> BITS_OF_TIME),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(millis: u128) -> RunId {
        RunId::from_bits((millis << BITS_BELOW_TIME) | 7)
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    /// The skew of these runs and the times of their starts.
    fn skew(runs: &[(RunId, Timestamp)]) -> Option<IdSkew> {
        let differences = || runs.iter().map(|(run, started)| id_skew(*run, *started));
        Some(differences().min()?..=differences().max()?)
    }

    #[test]
    fn a_range_of_times_contains_all_its_runs_even_if_clocks_are_wrong() {
        let runs =
            [(id(1_000), at(1_003)), (id(90), at(2_000)), (id(5_000), at(2_500)), (id(2_600), at(2_600))];
        for (from, before) in [(1_003, 1_004), (2_000, 2_001), (0, 2_500), (2_500, 2_501), (2_600, 9_000)] {
            let ids = ids_between(skew(&runs), Some(at(from)), Some(at(before)));
            for (run, start) in runs {
                let is_wanted = at(from) <= start && start < at(before);
                assert!(!is_wanted || ids.contains(&run.bits()), "{run} started at {start}");
            }
        }
    }

    #[test]
    fn a_range_of_ids_is_wider_only_by_the_recorded_differences() {
        let skew = skew(&[(id(1_000), at(1_010)), (id(2_000), at(2_000))]);
        let ids = ids_between(skew, Some(at(5_000)), Some(at(6_000)));
        assert!(!ids.contains(&id(4_989).bits()) && ids.contains(&id(4_990).bits()));
        assert!(ids.contains(&id(6_000).bits()) && !ids.contains(&id(6_001).bits()));
    }

    #[test]
    fn the_extreme_timestamps_do_not_overflow() {
        let (first, last) = (Timestamp::from_micros(i64::MIN), Timestamp::NEVER);
        assert_eq!(ids_between(None, Some(last), None), 0..=u128::MAX);
        let skew = skew(&[(RunId::from_bits(u128::MAX), first), (RunId::from_bits(0), last)]);
        assert_eq!(ids_between(skew, Some(first), Some(last)), 0..=u128::MAX);
    }

    #[test]
    fn a_page_is_between_its_cursors_and_is_read_from_the_given_one() {
        let (low, high) = (Some(RunId::from_bits(3)), Some(RunId::from_bits(9)));
        let query = |after, before, order| RunQuery { after, before, order, ..RunQuery::default() };
        let range = |query: &RunQuery| IdRange::of(query, None).map(|range| (range.ids, range.is_ascending));
        let oldest = ListOrder::OldestFirst;
        assert_eq!(range(&query(low, None, oldest)), Some((4..=u128::MAX, true)));
        assert_eq!(range(&query(None, high, oldest)), Some((0..=8, false)));
        assert_eq!(range(&query(low, high, oldest)), Some((4..=8, true)));
        let newest = ListOrder::NewestFirst;
        assert_eq!(range(&query(high, None, newest)), Some((0..=8, false)));
        assert_eq!(range(&query(None, low, newest)), Some((4..=u128::MAX, true)));
        assert_eq!(range(&query(high, low, oldest)), None);
        assert_eq!(range(&query(Some(RunId::from_bits(u128::MAX)), None, oldest)), None);
    }

    #[test]
    fn runs_that_ended_before_a_time_were_started_before_it() {
        let skew = Some(0..=0);
        let query = RunQuery { ended_before: Some(at(500)), ..RunQuery::default() };
        assert!(IdRange::needs_skew(&query));
        let range = IdRange::of(&query, skew.clone()).unwrap();
        assert!(range.ids.contains(&id(499).bits()) && !range.ids.contains(&id(501).bits()));
        let query = RunQuery { created_before: Some(at(400)), ..query };
        assert!(!IdRange::of(&query, skew).unwrap().ids.contains(&id(499).bits()));
    }

    #[test]
    fn a_range_ends_where_its_first_scan_ended() {
        let mut range = IdRange { ids: 1..=9, is_ascending: true };
        assert_eq!(range.end_at_first([7, 5].map(RunId::from_bits)), Some(RunId::from_bits(5)));
        assert_eq!(range.ids, 1..=5);
        let mut range = IdRange { ids: 1..=9, is_ascending: false };
        assert_eq!(range.end_at_first([7, 5].map(RunId::from_bits)), Some(RunId::from_bits(7)));
        assert_eq!(range.ids, 7..=9);
        assert_eq!(range.end_at_first([]), None);
        assert_eq!(range.ids, 7..=9);
    }
}
