//! The clock of a simulation: tokio's time, paused, which jumps to the next moment at which something is due.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use outlast_core::{Busy, Clock, Timestamp};
use tokio::time::Instant;

use outlast_testkit::TestClock;

/// The longest sleep before the clock is read again, so that a corrected clock is noticed.
const NAP_MAX: Duration = Duration::from_secs(1);

/// The world's clock. Everybody who is simulated has the same.
///
/// It is not virtual in the sense of [`Clock::is_virtual`]: the engine polls, beats and loses its
/// sessions as it does in earnest.
#[derive(Clone, Debug)]
pub(super) struct SimClock {
    began: Instant,
    off: Arc<AtomicI64>,
}

impl SimClock {
    /// A clock that begins now. Needs a runtime whose time is paused.
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), off: Arc::default() }
    }

    /// How long the simulation has lasted.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Sets the clock on, or back.
    pub(super) fn jump(&self, millis: i64) {
        self.off.fetch_add(millis * 1_000, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let now = TestClock::BEGIN.plus(self.elapsed()).as_micros();
        Timestamp::from_micros(now + self.off.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let left = at.since(clock.now());
                if left.is_zero() {
                    return Busy::uncounted();
                }
                sleep(left.min(NAP_MAX)).await;
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

/// Lets simulated time pass.
#[allow(clippy::disallowed_methods, reason = "the time of the runtime is paused: this is virtual time")]
pub(super) async fn sleep(time: Duration) {
    // Even nothing lets others go first.
    if time.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}
