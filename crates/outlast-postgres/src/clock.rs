//! The world's clock as this process knows it: the database's, told by its answers, and a clock that nobody
//! can set in between. The machine's own clock is never asked.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use outlast_core::{Busy, Clock, Timestamp};
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// For so long the best of what the answers told counts; then it is looked for anew, since clocks drift.
const WINDOW: Duration = Duration::from_secs(30);

/// The longest sleep before the clock is read again: it may have learnt better.
const NAP_MAX: Duration = Duration::from_secs(1);

/// The database's clock.
#[derive(Debug)]
pub(crate) struct DatabaseClock {
    begin: Instant,
    handle: Handle,
    /// The last moment that was told; it never goes back.
    last: AtomicI64,
    learnt: Mutex<Learnt>,
}

/// How far the database's clock is ahead of ours, at least: an answer is never older than it was told.
#[derive(Debug)]
struct Learnt {
    best: i64,
    next_best: i64,
    window_end: i64,
}

impl DatabaseClock {
    /// A clock that has learnt nothing yet.
    #[allow(clippy::disallowed_methods, reason = "a clock that nobody can set")]
    pub(crate) fn new(handle: Handle) -> Self {
        let learnt = Learnt { best: i64::MIN, next_best: i64::MIN, window_end: i64::MIN };
        Self { begin: Instant::now(), handle, last: AtomicI64::new(i64::MIN), learnt: Mutex::new(learnt) }
    }

    /// Learns from an answer that just came what the database's clock showed while it was made.
    pub(crate) fn learn(&self, told: Timestamp) {
        let ours = self.ours();
        let ahead = told.as_micros().saturating_sub(ours);
        let mut learnt = self.learnt.lock();
        if learnt.best == i64::MIN {
            learnt.window_end = ours.saturating_add(as_micros(WINDOW));
        } else if ours >= learnt.window_end {
            learnt.best = learnt.next_best.max(ahead);
            learnt.next_best = ahead;
            learnt.window_end = ours.saturating_add(as_micros(WINDOW));
        }
        learnt.best = learnt.best.max(ahead);
        learnt.next_best = learnt.next_best.max(ahead);
    }

    fn ours(&self) -> i64 {
        as_micros(self.begin.elapsed())
    }

    fn read(&self) -> Timestamp {
        let now = self.ours().saturating_add(self.learnt.lock().best);
        let before = self.last.fetch_max(now, Ordering::Relaxed);
        Timestamp::from_micros(now.max(before))
    }
}

/// A handle on the clock, as the world gives it to others.
#[derive(Clone, Debug)]
pub(crate) struct SharedClock(pub(crate) std::sync::Arc<DatabaseClock>);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.read()
    }

    #[allow(clippy::disallowed_methods, reason = "this is the door through which time comes")]
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
                let nap = {
                    let _entered = clock.0.handle.enter();
                    tokio::time::sleep(left.min(NAP_MAX))
                };
                nap.await;
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

/// Where a world's time comes from.
#[derive(Clone, Debug)]
pub(crate) enum Time {
    /// The database.
    Database(SharedClock),
    /// A test.
    Virtual(std::sync::Arc<dyn Clock>),
}

impl Time {
    /// What statements are given as their time: nothing, when the database knows it.
    pub(crate) fn at(&self) -> Option<i64> {
        match self {
            Self::Database(_) => None,
            Self::Virtual(clock) => Some(clock.now().as_micros()),
        }
    }

    /// Learns from an answer that just came.
    pub(crate) fn learn(&self, told: Timestamp) {
        if let Self::Database(clock) = self {
            clock.0.learn(told);
        }
    }

    /// Whether a test moves the clock.
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }

    /// The clock as others see it.
    pub(crate) fn clock(&self) -> std::sync::Arc<dyn Clock> {
        match self {
            Self::Database(clock) => std::sync::Arc::new(clock.clone()),
            Self::Virtual(clock) => clock.clone(),
        }
    }
}
