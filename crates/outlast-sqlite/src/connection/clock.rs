//! The world's clock: the machine's, which never goes back.
//!
//! A machine's clock may be set back by hours. Whatever became ready before would then wait until it has
//! caught up. So a world goes on from the latest moment that its file knows, and runs a little slower
//! than the machine's clock until that one has caught up.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Busy, Clock, Timestamp, WorldError};
use rusqlite::{Connection, OptionalExtension};

use crate::connection::error::of_sqlite;
use crate::connection::file::retry_busy;
use crate::schema::row::moment;
use crate::schema::sql;

/// How far a file may be ahead of the machine. More is no clock set back but one that was far off when
/// the file was written, and nobody wants to live in that future.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Of so many microseconds the world's clock leaves out one while it is ahead.
const SLOWER: u32 = 8;

/// A clock that began ahead of another, and lets that one catch up.
#[derive(Debug)]
pub(crate) struct WorldClock {
    machine: Arc<dyn Clock>,
    opened_at: Timestamp,
    ahead: Duration,
}

impl WorldClock {
    /// The clock of the world in this file: `machine`, but not behind what the file knows.
    pub(crate) fn go_on(
        machine: Arc<dyn Clock>,
        connection: &Connection,
        path: &Path,
    ) -> Result<Arc<dyn Clock>, WorldError> {
        if machine.is_virtual() {
            return Ok(machine);
        }
        let read = || connection.query_row(sql::CLOCK_READ, [], |row| moment(row, 0)).optional();
        let latest = retry_busy(read).map_err(|error| of_sqlite(&error, path))?;
        let opened_at = machine.now();
        let ahead = latest.map_or(Duration::ZERO, |latest| latest.since(opened_at));
        if ahead.is_zero() {
            return Ok(machine);
        }
        let file = path.display();
        if ahead > AHEAD_MAX {
            tracing::warn!(
                %file, ?latest, now = %opened_at,
                "the file was last used more than a day in the future; set this machine's clock right. \
                 What became ready then waits until then"
            );
            return Ok(machine);
        }
        tracing::warn!(%file, ?ahead, "this machine's clock was set back; the world's clock goes on and slows down");
        Ok(Arc::new(Self { machine, opened_at, ahead }))
    }

    /// What the world's clock shows when the machine's shows `now`.
    fn shown(&self, now: Timestamp) -> Timestamp {
        now.plus(self.ahead.saturating_sub(now.since(self.opened_at) / SLOWER))
    }
}

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        self.shown(self.machine.now())
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        let clock = Self { machine: self.machine.clone(), ..*self };
        Box::pin(async move {
            loop {
                let now = clock.machine.now();
                let left = at.since(clock.shown(now));
                // At least this long: the world's clock is not the faster one.
                let busy = clock.machine.sleep_until(now.plus(left)).await;
                if left.is_zero() || clock.now() >= at {
                    return busy;
                }
            }
        })
    }

    fn busy(&self) -> Busy {
        self.machine.busy()
    }

    fn is_virtual(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(i64);

    impl Clock for Fixed {
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
    fn a_clock_that_is_ahead_never_goes_back_and_is_caught_up_with() {
        let opened_at = Timestamp::from_micros(1_000);
        let clock =
            WorldClock { machine: Arc::new(Fixed(1_000)), opened_at, ahead: Duration::from_micros(800) };
        let shown = |now| clock.shown(Timestamp::from_micros(now)).as_micros();
        assert_eq!(clock.now().as_micros(), 1_800);
        assert_eq!(shown(1_080), 1_870, "7 microseconds for 8");
        assert!((1_000..9_000).is_sorted_by(|a, b| shown(*a) <= shown(*b)));
        assert_eq!((shown(7_400), shown(9_000)), (7_400, 9_000));
    }
}
