//! The system clock: the only module that reads the time and sleeps.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_core::{Backoff, Busy, Clock, Timestamp};

use crate::ids::{chance, simulated_since};

/// The longest sleep before the clock is read again, so that an adjusted clock takes effect.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The clock of this machine. It never goes back while the process runs, even if the machine's clock is set back.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// How long the difference to the wall clock is used before the wall clock is read again. A turn reads the clock several
/// times, and reading two clocks takes twice as long as reading one.
const WALL_CLOCK_INTERVAL: i64 = 1_000; // microseconds

/// Combines the wall clock and the monotonic clock into a clock that never goes back.
#[derive(Debug)]
struct SteadyClock {
    /// The largest difference between the wall clock and the monotonic clock so far.
    ahead: AtomicI64,
    /// The monotonic time from which on the wall clock is to be read again.
    next_wall_reading: AtomicI64,
}

impl SteadyClock {
    const fn new() -> Self {
        Self { ahead: AtomicI64::new(i64::MIN / 2), next_wall_reading: AtomicI64::new(i64::MIN) }
    }

    /// The time at a monotonic time, given a function that reads the wall clock.
    fn read(&self, wall: impl FnOnce() -> i64, monotonic: i64) -> i64 {
        if monotonic < self.next_wall_reading.load(Ordering::Acquire) {
            return monotonic.saturating_add(self.ahead.load(Ordering::Relaxed));
        }
        let ahead = wall().saturating_sub(monotonic);
        let before = self.ahead.fetch_max(ahead, Ordering::Relaxed);
        self.next_wall_reading.store(monotonic.saturating_add(WALL_CLOCK_INTERVAL), Ordering::Release);
        monotonic.saturating_add(ahead.max(before))
    }
}

static STEADY: SteadyClock = SteadyClock::new();

impl Clock for SystemClock {
    #[allow(
        clippy::disallowed_methods,
        reason = "this module is the only one that reads the time and sleeps"
    )]
    fn now(&self) -> Timestamp {
        // Not tokio's clock: a runtime with paused time must not affect it.
        static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros);
        Timestamp::from_micros(STEADY.read(wall, micros(START.elapsed())))
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "this module is the only one that reads the time and sleeps"
    )]
    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        if at == Timestamp::NEVER {
            return Box::pin(std::future::pending());
        }
        Box::pin(async move {
            loop {
                let left = at.since(Self.now());
                if left.is_zero() {
                    return Busy::uncounted();
                }
                tokio::time::sleep(left.min(SLEEP_MAX)).await;
            }
        })
    }

    fn busy(&self) -> Busy {
        Busy::uncounted()
    }

    fn is_virtual(&self) -> bool {
        false
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Waits for a future until [`monotonic`] time reaches `deadline`.
pub(crate) async fn within<T>(future: impl Future<Output = T>, deadline: Duration) -> Option<T> {
    tokio::time::timeout(deadline.saturating_sub(monotonic()), future).await.ok()
}

/// Waits in real time: between two calls to a world that does not respond, and while a worker drains.
#[allow(clippy::disallowed_methods, reason = "this module is the only one that reads the time and sleeps")]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Waits before the next try of a call to a world that does not respond.
pub(crate) async fn pause_before_retry(backoff: &mut Backoff) {
    pause(backoff.next_pause(chance())).await;
}

/// The monotonic time since the first call in the process. It is tokio's, so that it stands still in a runtime with
/// paused time. In a simulation, it is the time since the simulation began: otherwise its results would depend on what
/// the process did before.
pub(crate) fn monotonic() -> Duration {
    static START: LazyLock<tokio::time::Instant> = LazyLock::new(tokio::time::Instant::now);
    simulated_since().unwrap_or_else(|| *START).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_when_the_clock_is_set_back_and_follows_when_it_is_set_forward() {
        const HOUR: i64 = 3_600_000_000;
        let steady = SteadyClock::new();
        let read = |wall: i64, monotonic| steady.read(|| wall * HOUR, monotonic * HOUR);
        assert_eq!(read(100, 0), 100 * HOUR);
        assert_eq!(read(97, 1), 101 * HOUR, "set back by four hours");
        assert_eq!(read(98, 2), 102 * HOUR);
        assert_eq!(read(110, 3), 110 * HOUR, "set forward");
        assert_eq!(read(106, 4), 111 * HOUR, "and back");
    }

    #[test]
    fn the_wall_clock_is_read_at_most_once_per_interval() {
        let (steady, readings) = (SteadyClock::new(), std::cell::Cell::new(0));
        let read = |wall: i64, monotonic| {
            let wall = || {
                readings.set(readings.get() + 1);
                wall
            };
            steady.read(wall, monotonic)
        };
        assert_eq!(read(5_000_000, 0), 5_000_000);
        assert_eq!(read(9_000_000, WALL_CLOCK_INTERVAL - 1), 5_000_000 + WALL_CLOCK_INTERVAL - 1);
        assert_eq!(readings.get(), 1);
        assert_eq!(read(9_000_000, WALL_CLOCK_INTERVAL), 9_000_000, "set forward in between");
        assert_eq!(readings.get(), 2);
    }
}
