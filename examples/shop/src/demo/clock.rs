//! A clock that is behind the machine's clock, and catches up in jumps.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use outlast::SystemClock;
use outlast::core::{Busy, Clock, Timestamp};
use tokio::sync::watch;

/// A clock that shows a time in the past. Each [jump](Self::jump) brings it nearer to the present.
#[derive(Clone, Debug)]
pub(super) struct PastClock {
    lag: Arc<watch::Sender<Duration>>,
}

impl PastClock {
    /// A clock that is behind by this time.
    pub(super) fn behind(lag: Duration) -> Self {
        Self { lag: Arc::new(watch::Sender::new(lag)) }
    }

    /// Moves the clock forward, so that it is behind by this time.
    pub(super) fn jump(&self, lag: Duration) {
        self.lag.send_modify(|current| *current = lag.min(*current));
    }
}

impl Clock for PastClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().minus(*self.lag.borrow())
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        let (clock, mut lag) = (self.clone(), self.lag.subscribe());
        Box::pin(async move {
            loop {
                lag.borrow_and_update();
                let left = at.since(clock.now());
                if left.is_zero() {
                    return Busy::uncounted();
                }
                let in_real_time = match at {
                    Timestamp::NEVER => SystemClock.sleep_until(at),
                    _ => SystemClock.sleep_until(SystemClock.now().plus(left)),
                };
                tokio::select! {
                    _ = lag.changed() => {}
                    _ = in_real_time => {}
                }
            }
        })
    }

    fn busy(&self) -> Busy {
        Busy::uncounted()
    }

    /// Sessions do not expire when the clock jumps.
    fn is_virtual(&self) -> bool {
        true
    }
}
