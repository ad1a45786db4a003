//! The world's clock: the system clock, but it never goes back.
//!
//! An administrator may set the system clock back by hours. Runs that became ready before would then wait until the
//! system clock has caught up. To prevent that, the file stores the latest time that a beat has seen. A process that
//! opens the file starts its clock at that time, and lets it run slightly slower than the system clock until both
//! agree.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Busy, Clock, Timestamp, WorldError};
use rusqlite::{Connection, OptionalExtension};

use crate::connection::error::from_sqlite;
use crate::connection::file::retry_busy;
use crate::schema::row::timestamp;
use crate::schema::sql;

/// How far the time in the file may be ahead of the system clock. If it is further ahead, the file was written with a
/// wrong clock, and its time is ignored.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// While the world's clock is ahead, it omits one of this many microseconds.
const CATCH_UP_DIVISOR: u32 = 8;

/// A clock that starts ahead of the system clock and runs slower until that one has caught up.
#[derive(Debug)]
pub(crate) struct WorldClock {
    system: Arc<dyn Clock>,
    opened_at: Timestamp,
    ahead: Duration,
}

impl WorldClock {
    /// The clock of the world in this file: the system clock, but never behind the time that the file stores.
    pub(crate) fn continue_from_file(
        system: Arc<dyn Clock>,
        connection: &Connection,
        path: &Path,
    ) -> Result<Arc<dyn Clock>, WorldError> {
        if system.is_virtual() {
            return Ok(system);
        }
        let read = || connection.query_row(sql::CLOCK_READ, [], |row| timestamp(row, 0)).optional();
        let latest = retry_busy(read).map_err(|error| from_sqlite(&error, path))?;
        let opened_at = system.now();
        let ahead = latest.map_or(Duration::ZERO, |latest| latest.since(opened_at));
        if ahead.is_zero() {
            return Ok(system);
        }
        let file = path.display();
        if ahead > AHEAD_MAX {
            tracing::warn!(
                %file, ?latest, now = %opened_at,
                "the file was last used more than a day in the future; correct the clock of this machine. \
                 Runs that became ready at that time wait until then"
            );
            return Ok(system);
        }
        tracing::warn!(
            %file, ?ahead,
            "the clock of this machine was set back; the world's clock continues from its last time, more slowly"
        );
        Ok(Arc::new(Self { system, opened_at, ahead }))
    }

    /// The world's time when the system clock shows `now`.
    fn world_time(&self, now: Timestamp) -> Timestamp {
        now.plus(self.ahead.saturating_sub(now.since(self.opened_at) / CATCH_UP_DIVISOR))
    }
}

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        self.world_time(self.system.now())
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        let clock = Self { system: self.system.clone(), ..*self };
        Box::pin(async move {
            loop {
                let now = clock.system.now();
                let left = at.since(clock.world_time(now));
                // This sleep may be too short, never too long: the world's clock is not faster than the system clock.
                let busy = clock.system.sleep_until(now.plus(left)).await;
                if left.is_zero() || clock.now() >= at {
                    return busy;
                }
            }
        })
    }

    fn busy(&self) -> Busy {
        self.system.busy()
    }

    fn is_virtual(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct FixedClock(i64);

    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(self.0)
        }

        fn sleep_until(&self, _: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
            Box::pin(std::future::pending())
        }

        fn busy(&self) -> Busy {
            Busy::uncounted()
        }

        fn is_virtual(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_clock_that_is_ahead_never_goes_back_until_the_system_clock_catches_up() {
        let opened_at = Timestamp::from_micros(1_000);
        let clock =
            WorldClock { system: Arc::new(FixedClock(1_000)), opened_at, ahead: Duration::from_micros(800) };
        let world_time = |now| clock.world_time(Timestamp::from_micros(now)).as_micros();
        assert_eq!(clock.now().as_micros(), 1_800);
        assert_eq!(world_time(1_080), 1_870, "7 microseconds for 8");
        assert!((1_000..9_000).is_sorted_by(|a, b| world_time(*a) <= world_time(*b)));
        assert_eq!((world_time(7_400), world_time(9_000)), (7_400, 9_000));
    }
}
