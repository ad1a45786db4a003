//! The difference between the time in a run's id and the time of its start.
//!
//! Lists are sorted by id and filtered by the time of the start. Both orders are almost the same, but not quite: the
//! client creates the id with its own clock, and slightly before the start. The file stores the smallest and the
//! largest difference of all runs ever started. So a range of start times can be converted into a range of ids that
//! contains all of its runs, and a few more at both ends.

use std::ops::RangeInclusive;

use outlast_core::{RunId, Timestamp};
use rusqlite::{Connection, Error, OptionalExtension};

use crate::schema::sql;

/// The number of bits of an id below its time.
const BITS_BELOW_TIME: u32 = 80;
const BITS_OF_TIME: u32 = 128 - BITS_BELOW_TIME;

/// The latest time that an id can contain.
const MILLIS_MAX: u128 = u128::MAX >> BITS_BELOW_TIME;

/// The writer's cache of the range of differences, in milliseconds. The range in the file only grows, so a difference
/// inside the cached range is also inside the stored one.
#[derive(Debug, Default)]
pub(crate) struct IdClockSkew(Option<RangeInclusive<i64>>);

impl IdClockSkew {
    /// Records the difference of a run that started at `at`. Writes to the file only if the range grows.
    pub(crate) fn record(&mut self, connection: &Connection, run: RunId, at: Timestamp) -> Result<(), Error> {
        let difference = millis_of(run) - at.as_micros().div_euclid(1_000);
        if self.0.as_ref().is_some_and(|known| known.contains(&difference)) {
            return Ok(());
        }
        let mut widen = connection.prepare_cached(sql::ID_SKEW_WIDEN)?;
        self.0 = Some(widen.query_row([difference], |row| Ok(row.get(0)?..=row.get(1)?))?);
        Ok(())
    }

    /// Discards the cached range, because the transaction that may have widened it was rolled back.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

/// A range of ids that contains all runs that started in a range of times.
pub(crate) fn ids_between(
    connection: &Connection,
    from: Option<Timestamp>,
    before: Option<Timestamp>,
) -> Result<RangeInclusive<u128>, Error> {
    if from.is_none() && before.is_none() {
        return Ok(0..=u128::MAX);
    }
    let mut skew = connection.prepare_cached(sql::ID_SKEW)?;
    let skew = skew.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).optional()?;
    let Some((lowest, highest)) = skew else { return Ok(0..=u128::MAX) };
    let millis = |at: Timestamp, difference: i64| at.as_micros().div_euclid(1_000).saturating_add(difference);
    let low = from.map_or(0, |from| first_id_at(millis(from, lowest)));
    let high = before.map_or(u128::MAX, |before| last_id_at(millis(before, highest)));
    Ok(low..=high)
}

fn millis_of(run: RunId) -> i64 {
    // 48 bits remain, so the cast loses nothing.
    (run.bits() >> BITS_BELOW_TIME) as i64
}

fn first_id_at(millis: i64) -> u128 {
    let millis = u128::try_from(millis).unwrap_or(0);
    millis.min(MILLIS_MAX) << BITS_BELOW_TIME
}

fn last_id_at(millis: i64) -> u128 {
    match u128::try_from(millis) {
        Ok(millis) => (millis.min(MILLIS_MAX) << BITS_BELOW_TIME) | (u128::MAX >> BITS_OF_TIME),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        crate::schema::migrate::create_schema(&connection).unwrap();
        connection
    }

    fn id(millis: u128) -> RunId {
        RunId::from_bits((millis << 80) | 7)
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    #[test]
    fn a_range_of_times_contains_all_its_runs_even_if_clocks_are_wrong() {
        let (file, mut skew) = (file(), IdClockSkew::default());
        let runs =
            [(id(1_000), at(1_003)), (id(90), at(2_000)), (id(5_000), at(2_500)), (id(2_600), at(2_600))];
        for (run, start) in runs {
            skew.record(&file, run, start).unwrap();
        }
        for (from, before) in [(1_003, 1_004), (2_000, 2_001), (0, 2_500), (2_500, 2_501), (2_600, 9_000)] {
            let ids = ids_between(&file, Some(at(from)), Some(at(before))).unwrap();
            for (run, start) in runs {
                let is_wanted = at(from) <= start && start < at(before);
                assert!(!is_wanted || ids.contains(&run.bits()), "{run} started at {start}");
            }
        }
    }

    #[test]
    fn a_range_of_ids_is_wider_only_by_the_recorded_differences() {
        let (file, mut skew) = (file(), IdClockSkew::default());
        skew.record(&file, id(1_000), at(1_010)).unwrap();
        skew.record(&file, id(2_000), at(2_000)).unwrap();
        let ids = ids_between(&file, Some(at(5_000)), Some(at(6_000))).unwrap();
        assert!(!ids.contains(&id(4_989).bits()) && ids.contains(&id(4_990).bits()));
        assert!(ids.contains(&id(6_000).bits()) && !ids.contains(&id(6_001).bits()));
    }

    #[test]
    fn the_extreme_timestamps_do_not_overflow() {
        let (file, mut skew) = (file(), IdClockSkew::default());
        assert_eq!(ids_between(&file, Some(Timestamp::NEVER), None), Ok(0..=u128::MAX));
        skew.record(&file, RunId::from_bits(u128::MAX), Timestamp::from_micros(i64::MIN)).unwrap();
        skew.record(&file, RunId::from_bits(0), Timestamp::NEVER).unwrap();
        let all = ids_between(&file, Some(Timestamp::from_micros(i64::MIN)), Some(Timestamp::NEVER)).unwrap();
        assert_eq!(all, 0..=u128::MAX);
    }
}
