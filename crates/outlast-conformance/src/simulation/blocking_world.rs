//! A wrapper that makes a real world usable in a simulation: each call blocks the only thread, so simulated time stands
//! still and no other task runs meanwhile. To the simulation the world is as fast as the one in memory.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use outlast_core::{
    Busy, Clock, Ended, RunId, Timestamp, Waiters, World, WorldError, WorldMethod, WorldWrapper,
};
use outlast_testkit::TestClock;

use super::clock::SimulationClock;

/// The simulation's clock for a world with threads of its own: they read the time that the simulation has stored last.
#[derive(Clone, Debug)]
pub(super) struct SharedClock {
    clock: SimulationClock,
    now_micros: Arc<AtomicI64>,
}

impl SharedClock {
    pub(super) fn new(clock: &SimulationClock) -> Self {
        let now_micros = Arc::new(AtomicI64::new(TestClock::BEGIN.as_micros()));
        Self { clock: clock.clone(), now_micros }
    }

    fn update(&self) -> Timestamp {
        let now = self.clock.now();
        self.now_micros.store(now.as_micros(), Ordering::SeqCst);
        now
    }
}

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now_micros.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        self.clock.sleep_until(at)
    }

    fn busy(&self) -> Busy {
        Busy::uncounted()
    }

    /// Virtual, so that the world uses no other clock and polls nothing by itself.
    fn is_virtual(&self) -> bool {
        true
    }
}

/// A world whose calls take no simulated time.
#[derive(Debug)]
pub(super) struct BlockingWorld {
    world: Arc<dyn World>,
    clock: SharedClock,
    waiters: Arc<Waiters>,
}

impl BlockingWorld {
    pub(super) fn new(world: Arc<dyn World>, clock: SharedClock) -> Self {
        Self { world, clock, waiters: Arc::default() }
    }

    fn block_on<T>(&self, call: impl Future<Output = T>) -> T {
        self.clock.update();
        block_on(call)
    }

    /// Notifies those that wait for the end of a run that has ended.
    fn notify_waiters(&self) {
        let mut awaited = self.waiters.runs();
        awaited.sort_unstable();
        for run in awaited {
            if let Ok(Some(ended)) = self.ended_by_now(run) {
                self.waiters.tell(run, || Some(ended));
            }
        }
    }

    fn ended_by_now(&self, run: RunId) -> Result<Option<Ended>, WorldError> {
        self.block_on(self.world.ended(run, self.clock.update()))
    }
}

/// Waits for a future on this thread, also inside a runtime.
fn block_on<T>(call: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    // Without tokio's cooperative budget: other tasks cannot run meanwhile.
    let mut call = pin!(tokio::task::unconstrained(call));
    loop {
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Whether a call of this method may end runs.
fn may_end_runs(method: WorldMethod) -> bool {
    use WorldMethod::{Claim, Commit, Deliver, Send, Start};
    matches!(method, Start | Send | Claim | Commit | Deliver)
}

impl WorldWrapper for BlockingWorld {
    fn inner(&self) -> &dyn World {
        &*self.world
    }

    async fn call<T: Send>(
        &self,
        method: WorldMethod,
        call: impl Future<Output = Result<T, WorldError>> + Send,
    ) -> Result<T, WorldError> {
        let answer = self.block_on(call);
        if may_end_runs(method) {
            self.notify_waiters();
        }
        answer
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        let ended_later = self.waiters.wait(run);
        if let Some(ended) = self.ended_by_now(run)? {
            return Ok(Some(ended));
        }
        tokio::select! {
            biased;
            ended = ended_later => Ok(Some(ended)),
            _ = self.clock.sleep_until(until) => Ok(None),
        }
    }

    // `changed` does not block: it only waits for a change signal of this process.

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }
}
