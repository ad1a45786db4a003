//! A wrapper that makes a real world usable in a simulation: each call blocks the only thread, so simulated time stands
//! still and no other task runs meanwhile. To the simulation the world is as fast as the one in memory.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use async_trait::async_trait;
use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ClaimRequest, Clock, Committed, Counts, Delivered, Description, Ended, HeartbeatDetails,
    HeldRun, Join, Message, NewMessage, Page, Pruned, Report, RunId, RunQuery, RunView, Sent, SessionId,
    Start, Started, Timestamp, Turn, TurnRecord, Waiters, Work, WorkerView, World, WorldError,
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

    fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.clock.update();
        block_on(call)
    }

    /// As [`BlockingWorld::call`], for calls that may end runs: notifies those that wait for an end.
    fn call_and_notify<T>(&self, call: impl Future<Output = T>) -> T {
        let answer = self.call(call);
        let mut awaited = self.waiters.runs();
        awaited.sort_unstable();
        for run in awaited {
            if let Ok(Some(ended)) = self.ended_by_now(run) {
                self.waiters.tell(run, || Some(ended));
            }
        }
        answer
    }

    fn ended_by_now(&self, run: RunId) -> Result<Option<Ended>, WorldError> {
        self.call(self.world.ended(run, self.clock.update()))
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

#[async_trait]
impl World for BlockingWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        self.call_and_notify(self.world.start(starts))
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        self.call(self.world.run(run))
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        self.call(self.world.runs(query))
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        self.call(self.world.counts())
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

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        self.call(self.world.history(run, from, limit))
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        self.call(self.world.histories(runs))
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        self.call_and_notify(self.world.send(messages))
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        self.call(self.world.inbox(run, after))
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        self.call(self.world.join(join))
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        self.call(self.world.beat(session, report, details))
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        self.call(self.world.held(session))
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        self.call(self.world.leave(session))
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        self.call(self.world.takeover(session))
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        self.call_and_notify(self.world.claim(session, request))
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        self.call_and_notify(self.world.commit(session, turns))
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        self.call(self.world.workers())
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        self.call(self.world.resume(run))
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        // Not blocking: it only waits for a change signal of this process.
        self.world.changed(epoch, until).await
    }

    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        self.call_and_notify(self.world.deliver(session))
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        self.call(self.world.prune(before, after, limit))
    }

    fn run_id(&self, key: Option<&str>, bits: u128) -> RunId {
        self.world.run_id(key, bits)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    fn describe(&self) -> Description {
        self.world.describe()
    }
}
