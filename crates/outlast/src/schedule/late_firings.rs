//! The rate at which one worker starts firings that are late.
//!
//! When a fleet is back after hours, many schedules have an instant to make up for, all at the same time. Jitter spreads
//! them if they have it. Besides, each worker starts [`LATE_FIRINGS_PER_SECOND`] of them at once, and then as many in each
//! second. The time is part of the recorded plan, so a replay does not depend on it.

use std::time::Duration;

use outlast_core::Timestamp;
use outlast_core::limits::{LATE_FIRING_DELAY_MAX, LATE_FIRINGS_PER_SECOND};
use parking_lot::Mutex;

/// How far a firing may be ahead of its turn: the first ones start at once.
const BURST: Duration = Duration::from_secs(1);

/// The times of the late firings of one worker.
#[derive(Debug, Default)]
pub(crate) struct LateFirings {
    /// The time of the next one if all were one after the other.
    free: Mutex<Option<Timestamp>>,
}

impl LateFirings {
    /// The time of a firing that is late at `now`. It is so early that the instant `followed_by` does not take its place.
    pub(super) fn next(&self, now: Timestamp, followed_by: Option<Timestamp>) -> Timestamp {
        let mut free = self.free.lock();
        // A clock that was set back delays nothing for long.
        let turn = free.unwrap_or(now).clamp(now, now.plus(LATE_FIRING_DELAY_MAX));
        *free = Some(turn.plus(BURST / LATE_FIRINGS_PER_SECOND));
        let at = turn.minus(BURST).max(now);
        match followed_by {
            Some(next) => at.min(now.plus(next.since(now) / 2)),
            None => at,
        }
    }
}
