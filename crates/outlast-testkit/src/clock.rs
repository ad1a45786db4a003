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
/// The clock knows who sleeps until when, and how many pieces of work are under way
/// ([`Clock::busy`]). So a test can wait until everything has come to rest, and jump to the next
/// moment at which something happens. Clones are handles on the same clock.
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
    time: Arc<Mutex<Time>>,
    work: Arc<Work>,
}

#[derive(Debug)]
struct Time {
    now: Timestamp,
    // By moment, then by order of arrival.
    sleepers: BTreeMap<(Timestamp, u64), Arc<Mutex<Sleeper>>>,
    arrived: u64,
}

#[derive(Debug, Default)]
struct Sleeper {
    waker: Option<Waker>,
    // Held from the move of the clock until the sleeper wakes, so that no gap shows in between.
    woken: Option<Busy>,
}

/// How much is under way, and who waits for that to be nothing. Apart from the time, because a
/// sleeper becomes busy while the time is locked.
#[derive(Debug, Default)]
struct Work(Mutex<WorkState>);

#[derive(Debug, Default)]
struct WorkState {
    busy: usize,
    settling: Vec<Waker>,
}

impl CountBusy for Work {
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
    /// The moment that a new clock shows: 2030-01-01T00:00:00Z.
    pub const BEGIN: Timestamp = Timestamp::from_micros(1_893_456_000_000_000);

    /// A clock that shows [`TestClock::BEGIN`].
    pub fn new() -> Self {
        let time = Time { now: Self::BEGIN, sleepers: BTreeMap::new(), arrived: 0 };
        Self { time: Arc::new(Mutex::new(time)), work: Arc::default() }
    }

    /// The moment now.
    pub fn now(&self) -> Timestamp {
        self.time.lock().now
    }

    /// Moves the clock on by `duration`, and wakes those whose moment has come.
    ///
    /// # Panics
    ///
    /// When `duration` is a text that is not a duration.
    #[track_caller]
    pub fn advance(&self, duration: impl IntoDuration) {
        let duration = duration.into_duration().unwrap_or_else(|error| panic!("{error}"));
        self.move_to(|now| now.plus(duration));
    }

    /// Moves the clock on to `moment`, and wakes those whose moment has come. A moment that has
    /// passed already changes nothing.
    pub fn advance_to(&self, moment: Timestamp) {
        self.move_to(|now| now.max(moment));
    }

    /// Waits until nobody is busy, without moving the clock.
    ///
    /// # Panics
    ///
    /// When somebody is still busy after a minute of real time.
    pub async fn settle(&self) {
        Settle { clock: self, watched: None }.await;
    }

    /// Lets everything happen that is going to happen: waits until nobody is busy, moves the clock to
    /// the first sleeper's moment, and so on until nobody is busy and nobody sleeps.
    ///
    /// # Panics
    ///
    /// As [`TestClock::settle`] does.
    pub async fn run_until_idle(&self) {
        self.run_until(Timestamp::NEVER).await;
    }

    /// As [`TestClock::run_until_idle`], but never moves past `moment`, and shows it in the end
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

    /// The moment at which the first sleeper wakes.
    pub fn next_sleeper(&self) -> Option<Timestamp> {
        self.time.lock().sleepers.keys().next().map(|(at, _)| *at)
    }

    /// How many pieces of work are under way.
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
            woken.filter_map(|sleeper| self.rouse(&mut sleeper.lock())).collect()
        };
        // Only now: whoever wakes may look at the clock at once.
        wakers.into_iter().for_each(Waker::wake);
    }

    fn rouse(&self, sleeper: &mut Sleeper) -> Option<Waker> {
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
        Box::pin(Sleep { clock: self.clone(), at, place: None })
    }

    fn busy(&self) -> Busy {
        Busy::counted(self.work.clone())
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

/// Sleeps until a moment; see [`Clock::sleep_until`].
struct Sleep {
    clock: TestClock,
    at: Timestamp,
    place: Option<(u64, Arc<Mutex<Sleeper>>)>,
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
            let woken = self.place.take().and_then(|(_, sleeper)| sleeper.lock().woken.take());
            return Poll::Ready(woken.unwrap_or_else(|| clock.busy()));
        }
        match &self.place {
            Some((_, sleeper)) => sleeper.lock().waker = Some(cx.waker().clone()),
            None => {
                let arrived = time.arrived;
                let sleeper = Sleeper { waker: Some(cx.waker().clone()), woken: None };
                let sleeper = Arc::new(Mutex::new(sleeper));
                time.arrived += 1;
                time.sleepers.insert((self.at, arrived), sleeper.clone());
                self.place = Some((arrived, sleeper));
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((arrived, _)) = &self.place {
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
            "after {TIMEOUT_SECONDS} s of real time {} pieces of work are still under way at {}, next sleeper: {:?}; \
             a step, a claim or a commit hangs, or someone keeps a `Busy`",
            self.clock.busy_count(),
            self.clock.now(),
            self.clock.next_sleeper().map(|at| at.to_string()),
        );
        Poll::Pending
    }
}
