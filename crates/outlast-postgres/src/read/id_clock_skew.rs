//! The clock skew between ids and starts: the difference between the time in a run's id and the time of its start.
//!
//! Lists are sorted by id and can be limited by the time of the start. The two times are close, but not equal: an id
//! has the clock of the process that created it, shortly before the start. The world stores the smallest and the
//! largest difference of all runs, so a range of start times can be converted to a slightly larger range of ids.

use std::ops::RangeInclusive;

use outlast_core::{RunId, Timestamp};

/// The number of bits of an id below its time.
const BITS_BELOW_TIME: u32 = 80;
const BITS_OF_TIME: u32 = 128 - BITS_BELOW_TIME;

/// The latest time that an id can contain, in milliseconds.
const MILLIS_MAX: u128 = u128::MAX >> BITS_BELOW_TIME;

/// A range of ids that contains all runs that were started from `from` until `before`. `skew` is the smallest and the
/// largest difference between ids and starts, in milliseconds.
pub(crate) fn ids_between(
    skew: Option<(i64, i64)>,
    from: Option<Timestamp>,
    before: Option<Timestamp>,
) -> RangeInclusive<u128> {
    let Some((lowest, highest)) = skew else { return 0..=u128::MAX };
    let millis = |at: Timestamp, skew: i64| at.as_micros().div_euclid(1_000).saturating_add(skew);
    let low = from.map_or(0, |from| lowest_id_at(millis(from, lowest)));
    let high = before.map_or(u128::MAX, |before| highest_id_at(millis(before, highest)));
    low..=high
}

/// The time in a run's id, in milliseconds since 1970.
pub(crate) fn millis_of(run: RunId) -> i64 {
    // The time has 48 bits, so the conversion is lossless.
    (run.bits() >> BITS_BELOW_TIME) as i64
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
