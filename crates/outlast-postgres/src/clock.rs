//! The database's clock, as this process estimates it.
//!
//! Answers of the database carry its time. In between, this process adds the time that has passed on its monotonic
//! clock. An answer is never newer than the moment at which it arrives, so the offset between the two clocks is at
//! least the time in the answer minus the monotonic time of its arrival. The largest offset of the last 30 to 60
//! seconds comes from the fastest answer, and is the estimate. The wall clock of this machine is never read.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use outlast_core::{Busy, Clock, Timestamp};
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// The length of a window of the estimate. Older offsets are dropped, since clocks drift.
const WINDOW: Duration = Duration::from_secs(30);

/// The longest sleep before the clock is read again, since the estimate may have improved.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The database's clock.
#[derive(Debug)]
pub(crate) struct DatabaseClock {
    started_at: Instant,
    handle: Handle,
    /// The last time that was returned; the clock never goes back.
    last_reading: AtomicI64,
    estimate: Mutex<OffsetEstimate>,
}

/// The offset of the database's clock from the monotonic clock, in microseconds.
#[derive(Debug)]
struct OffsetEstimate {
    /// The largest offset of the current and the previous window: the estimate.
    best: i64,
    /// The largest offset of the current window.
    next_best: i64,
    window_end: i64,
}

impl DatabaseClock {
    /// A clock without an estimate.
    #[allow(clippy::disallowed_methods, reason = "the monotonic clock")]
    pub(crate) fn new(handle: Handle) -> Self {
        let estimate = OffsetEstimate { best: i64::MIN, next_best: i64::MIN, window_end: i64::MIN };
        Self {
            started_at: Instant::now(),
            handle,
            last_reading: AtomicI64::new(i64::MIN),
            estimate: Mutex::new(estimate),
        }
    }

    /// Updates the estimate with the time in an answer that has just arrived.
    pub(crate) fn observe(&self, reported: Timestamp) {
        let elapsed = self.elapsed_micros();
        let offset = reported.as_micros().saturating_sub(elapsed);
        let mut estimate = self.estimate.lock();
        if estimate.best == i64::MIN {
            estimate.window_end = elapsed.saturating_add(as_micros(WINDOW));
        } else if elapsed >= estimate.window_end {
            estimate.best = estimate.next_best.max(offset);
            estimate.next_best = offset;
            estimate.window_end = elapsed.saturating_add(as_micros(WINDOW));
        }
        estimate.best = estimate.best.max(offset);
        estimate.next_best = estimate.next_best.max(offset);
    }

    fn elapsed_micros(&self) -> i64 {
        as_micros(self.started_at.elapsed())
    }

    fn read(&self) -> Timestamp {
        let now = self.elapsed_micros().saturating_add(self.estimate.lock().best);
        let before = self.last_reading.fetch_max(now, Ordering::Relaxed);
        Timestamp::from_micros(now.max(before))
    }
}

/// The clock as [`World::clock`](outlast_core::World::clock) returns it.
#[derive(Clone, Debug)]
pub(crate) struct SharedClock(pub(crate) std::sync::Arc<DatabaseClock>);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.read()
    }

    #[allow(clippy::disallowed_methods, reason = "this is the implementation of `Clock`")]
    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        if at == Timestamp::NEVER {
            return Box::pin(std::future::pending());
        }
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let left = at.since(clock.now());
                if left.is_zero() {
                    return Busy::uncounted();
                }
                let sleep = {
                    let _entered = clock.0.handle.enter();
                    tokio::time::sleep(left.min(SLEEP_MAX))
                };
                sleep.await;
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

fn as_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The source of a world's time.
#[derive(Clone, Debug)]
pub(crate) enum TimeSource {
    /// The database's clock.
    Database(SharedClock),
    /// A clock that a test controls.
    Virtual(std::sync::Arc<dyn Clock>),
}

impl TimeSource {
    /// The time parameter of statements: `None` if they read the database's clock.
    pub(crate) fn statement_time(&self) -> Option<i64> {
        match self {
            Self::Database(_) => None,
            Self::Virtual(clock) => Some(clock.now().as_micros()),
        }
    }

    /// Updates the estimate with the time in an answer that has just arrived.
    pub(crate) fn observe(&self, reported: Timestamp) {
        if let Self::Database(clock) = self {
            clock.0.observe(reported);
        }
    }

    /// Whether a test controls the clock.
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }

    /// The clock, for callers of the world.
    pub(crate) fn clock(&self) -> std::sync::Arc<dyn Clock> {
        match self {
            Self::Database(clock) => std::sync::Arc::new(clock.clone()),
            Self::Virtual(clock) => clock.clone(),
        }
    }
}
