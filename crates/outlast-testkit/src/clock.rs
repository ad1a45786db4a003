//! A clock that the test moves.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use outlast_core::time::CountBusy;
use outlast_core::{Busy, Clock, IntoDuration, Timestamp};
use parking_lot::Mutex;

use crate::watchdog::{TIMEOUT_SECONDS, WatchedWait};

/// Virtual time: it passes only when a test moves it, and then at once.
///
/// The clock knows all sleepers and the number of pieces of work in progress ([`Clock::busy`]). So a test can wait
/// until nothing is in progress, and jump to the next time at which a sleeper is due. Clones share the same clock.
///
/// ```
/// use outlast_core::Clock;
/// use outlast_testkit::TestClock;
///
/// let clock = TestClock::new();
/// assert_eq!(clock.now().to_string(), "2030-01-01T00:00:00.000000Z");
/// clock.advance("1h30m");
/// assert_eq!(clock.now().to_string(), "2030-01-01T01:30:00.000000Z");
/// ```
#[derive(Clone, Debug)]
pub struct TestClock {
    time: Arc<Mutex<ClockState>>,
    work: Arc<WorkCount>,
}

#[derive(Debug)]
struct ClockState {
    now: Timestamp,
    // By time, then by order of arrival.
    sleepers: BTreeMap<(Timestamp, u64), Arc<Mutex<Sleeper>>>,
    arrived: u64,
}

#[derive(Debug, Default)]
struct Sleeper {
    waker: Option<Waker>,
    // Held from the move of the clock until the sleeper wakes, so that the clock is busy in between.
    woken: Option<Busy>,
}

/// The number of pieces of work in progress, and the wakers of those who wait until there are none. Separate from the
/// time, because a sleeper becomes busy while the time is locked.
#[derive(Debug, Default)]
struct WorkCount(Mutex<WorkCountState>);

#[derive(Debug, Default)]
struct WorkCountState {
    busy: usize,
    settling: Vec<Waker>,
}

impl CountBusy for WorkCount {
    fn began(&self) {
        self.0.lock().busy += 1;
    }

    fn ended(&self) {
        let settled = {
            let mut state = self.0.lock();
            state.busy -= 1;
            if state.busy > 0 {
                return;
            }
            std::mem::take(&mut state.settling)
        };
        settled.into_iter().for_each(Waker::wake);
    }
}

impl TestClock {
    /// The time of a new clock: 2030-01-01T00:00:00Z.
    pub const BEGIN: Timestamp = Timestamp::from_micros(1_893_456_000_000_000);

    /// A clock at [`TestClock::BEGIN`].
    pub fn new() -> Self {
        let time = ClockState { now: Self::BEGIN, sleepers: BTreeMap::new(), arrived: 0 };
        Self { time: Arc::new(Mutex::new(time)), work: Arc::default() }
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.time.lock().now
    }

    /// Advances the clock by `duration`, and wakes the sleepers that are due.
    ///
    /// # Panics
    ///
    /// When `duration` is a text that is not a duration.
    #[track_caller]
    pub fn advance(&self, duration: impl IntoDuration) {
        let duration = duration.into_duration().unwrap_or_else(|error| panic!("{error}"));
        self.move_to(|now| now.plus(duration));
    }

    /// Advances the clock to `moment`, and wakes the sleepers that are due. A time in the past changes nothing.
    pub fn advance_to(&self, moment: Timestamp) {
        self.move_to(|now| now.max(moment));
    }

    /// Waits until no work is in progress, without moving the clock.
    ///
    /// # Panics
    ///
    /// When work is still in progress after a minute of real time.
    pub async fn settle(&self) {
        Settle { clock: self, watched: None }.await;
    }

    /// Waits until no work is in progress, advances the clock to the first sleeper, and repeats this until no work is
    /// in progress and there are no sleepers.
    ///
    /// # Panics
    ///
    /// As [`TestClock::settle`] does.
    pub async fn run_until_idle(&self) {
        self.run_until(Timestamp::NEVER).await;
    }

    /// As [`TestClock::run_until_idle`], but never advances beyond `moment`, and ends at it
    /// (unless it is [`Timestamp::NEVER`]).
    ///
    /// # Panics
    ///
    /// As [`TestClock::settle`] does.
    pub async fn run_until(&self, moment: Timestamp) {
        loop {
            self.settle().await;
            match self.next_sleeper() {
                Some(next) if next <= moment => self.advance_to(next),
                _ => break,
            }
        }
        if moment != Timestamp::NEVER {
            self.advance_to(moment);
        }
    }

    /// The time at which the first sleeper wakes.
    pub fn next_sleeper(&self) -> Option<Timestamp> {
        self.time.lock().sleepers.keys().next().map(|(at, _)| *at)
    }

    /// The number of pieces of work in progress.
    pub fn busy_count(&self) -> usize {
        self.work.0.lock().busy
    }

    fn move_to(&self, moment: impl FnOnce(Timestamp) -> Timestamp) {
        let wakers: Vec<Waker> = {
            let mut time = self.time.lock();
            time.now = moment(time.now);
            let now = time.now;
            let later = time.sleepers.split_off(&(now, u64::MAX));
            let woken = std::mem::replace(&mut time.sleepers, later).into_values();
            woken.filter_map(|sleeper| self.wake_sleeper(&mut sleeper.lock())).collect()
        };
        // After the lock is released, because a woken sleeper may read the clock at once.
        wakers.into_iter().for_each(Waker::wake);
    }

    fn wake_sleeper(&self, sleeper: &mut Sleeper) -> Option<Waker> {
        sleeper.woken = Some(Busy::counted(self.work.clone()));
        sleeper.waker.take()
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.now()
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        Box::pin(Sleep { clock: self.clone(), at, registration: None })
    }

    fn busy(&self) -> Busy {
        Busy::counted(self.work.clone())
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

/// Sleeps until a time; see [`Clock::sleep_until`].
struct Sleep {
    clock: TestClock,
    at: Timestamp,
    registration: Option<(u64, Arc<Mutex<Sleeper>>)>,
}

impl Future for Sleep {
    type Output = Busy;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Busy> {
        if self.at == Timestamp::NEVER {
            return Poll::Pending;
        }
        let clock = self.clock.clone();
        let mut time = clock.time.lock();
        if time.now >= self.at {
            let woken = self.registration.take().and_then(|(_, sleeper)| sleeper.lock().woken.take());
            return Poll::Ready(woken.unwrap_or_else(|| clock.busy()));
        }
        match &self.registration {
            Some((_, sleeper)) => sleeper.lock().waker = Some(cx.waker().clone()),
            None => {
                let arrived = time.arrived;
                let sleeper = Sleeper { waker: Some(cx.waker().clone()), woken: None };
                let sleeper = Arc::new(Mutex::new(sleeper));
                time.arrived += 1;
                time.sleepers.insert((self.at, arrived), sleeper.clone());
                self.registration = Some((arrived, sleeper));
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((arrived, _)) = &self.registration {
            self.clock.time.lock().sleepers.remove(&(self.at, *arrived));
        }
    }
}

struct Settle<'a> {
    clock: &'a TestClock,
    watched: Option<Arc<WatchedWait>>,
}

impl Future for Settle<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut work = self.clock.work.0.lock();
            if work.busy == 0 {
                return Poll::Ready(());
            }
            work.settling.push(cx.waker().clone());
        }
        let watched = self.watched.get_or_insert_with(WatchedWait::begin);
        assert!(
            !watched.is_overdue(cx.waker()),
            "after {TIMEOUT_SECONDS} s of real time {} pieces of work are still in progress at {}, next sleeper: {:?}; \
             a step, a claim or a commit hangs, or a `Busy` is not dropped",
            self.clock.busy_count(),
            self.clock.now(),
            self.clock.next_sleeper().map(|at| at.to_string()),
        );
        Poll::Pending
    }
}
