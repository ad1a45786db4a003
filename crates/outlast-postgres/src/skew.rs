//! How far the time in a run's id may lie from the time of its start.
//!
//! Lists are sorted by id and asked for by the time of the start. The two go together, but not exactly: an
//! id has the clock of whoever made it, and is made a little earlier. The world keeps how far they ever
//! lay apart, so that a range of times is a range of ids, with a little more at both ends.

use std::ops::RangeInclusive;

use outlast_core::{RunId, Timestamp};

/// The bits of an id below its time.
const BITS_BELOW_TIME: u32 = 80;
const BITS_OF_TIME: u32 = 128 - BITS_BELOW_TIME;

/// The latest time that an id can have.
const MILLIS_MAX: u128 = u128::MAX >> BITS_BELOW_TIME;

/// The ids among which are all runs that started in a range of times, where ids and starts lie so far apart.
pub(crate) fn ids_between(
    skew: Option<(i64, i64)>,
    from: Option<Timestamp>,
    before: Option<Timestamp>,
) -> RangeInclusive<u128> {
    let Some((lowest, highest)) = skew else { return 0..=u128::MAX };
    let millis = |at: Timestamp, apart: i64| at.as_micros().div_euclid(1_000).saturating_add(apart);
    let low = from.map_or(0, |from| first_of(millis(from, lowest)));
    let high = before.map_or(u128::MAX, |before| last_of(millis(before, highest)));
    low..=high
}

/// The time in a run's id.
pub(crate) fn millis_of(run: RunId) -> i64 {
    // 48 bits are left.
    (run.bits() >> BITS_BELOW_TIME) as i64
}

fn first_of(millis: i64) -> u128 {
    let millis = u128::try_from(millis).unwrap_or(0);
    millis.min(MILLIS_MAX) << BITS_BELOW_TIME
}

fn last_of(millis: i64) -> u128 {
    match u128::try_from(millis) {
        Ok(millis) => (millis.min(MILLIS_MAX) << BITS_BELOW_TIME) | (u128::MAX >> BITS_OF_TIME),
        Err(_) => 0,
    }
}
