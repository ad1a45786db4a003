//! The clock of a simulation: tokio's paused time, which jumps to the next timer when all tasks wait.

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

/// The clock of the world and of all simulated processes.
///
/// It is not virtual in the sense of [`Clock::is_virtual`]: the engine polls, sends beats and loses its
/// sessions as in production.
#[derive(Clone, Debug)]
pub(super) struct SimulationClock {
    began: Instant,
    off: Arc<AtomicI64>,
}

impl SimulationClock {
    /// A clock that begins now. Needs a runtime whose time is paused.
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), off: Arc::default() }
    }

    /// How long the simulation has lasted.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Moves the clock forward or back.
    pub(super) fn jump(&self, millis: i64) {
        self.off.fetch_add(millis * 1_000, Ordering::Relaxed);
    }
}

impl Clock for SimulationClock {
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
    // Also a sleep of zero lets other tasks run.
    if time.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}
