//! The machine's clock: the one place that reads the time and sleeps.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_core::{Busy, Clock, Timestamp};

/// The longest sleep before the clock is read again, so that a corrected clock is noticed.
const NAP_MAX: Duration = Duration::from_secs(1);

/// The clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the door through which time comes")]
    fn now(&self) -> Timestamp {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the door through which time comes")]
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
                tokio::time::sleep(left.min(NAP_MAX)).await;
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

/// Waits for a future, but not longer than [`monotonic`] time shows `deadline`.
pub(crate) async fn within<T>(future: impl Future<Output = T>, deadline: Duration) -> Option<T> {
    tokio::time::timeout(deadline.saturating_sub(monotonic()), future).await.ok()
}

/// Waits in real time: between two tries of a world that does not answer, and for a worker to drain.
#[allow(clippy::disallowed_methods, reason = "this is the door through which time comes")]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Time that passes whatever the wall clock does, since the process first asked. It is tokio's, so that a
/// runtime whose time is paused has one time only.
pub(crate) fn monotonic() -> Duration {
    static START: std::sync::LazyLock<tokio::time::Instant> =
        std::sync::LazyLock::new(tokio::time::Instant::now);
    START.elapsed()
}
