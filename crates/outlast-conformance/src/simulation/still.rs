//! A real world inside a simulation: time stands still, and nobody else does anything, while it is called. So
//! it is as quick as the one in memory, as far as the simulation can tell, and as repeatable.

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

use super::clock::SimClock;
use outlast_testkit::TestClock;

/// The simulation's clock as a world with threads of its own sees it: they are told what it shows.
#[derive(Clone, Debug)]
pub(super) struct ShownClock {
    clock: SimClock,
    shown: Arc<AtomicI64>,
}

impl ShownClock {
    pub(super) fn new(clock: &SimClock) -> Self {
        let shown = Arc::new(AtomicI64::new(TestClock::BEGIN.as_micros()));
        Self { clock: clock.clone(), shown }
    }

    fn show(&self) -> Timestamp {
        let now = self.clock.now();
        self.shown.store(now.as_micros(), Ordering::SeqCst);
        now
    }
}

impl Clock for ShownClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.shown.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        self.clock.sleep_until(at)
    }

    fn busy(&self) -> Busy {
        Busy::uncounted()
    }

    /// The world has no clock but this, and asks nobody by itself.
    fn is_virtual(&self) -> bool {
        true
    }
}

/// A world that answers before any time has passed.
#[derive(Debug)]
pub(super) struct Still {
    world: Arc<dyn World>,
    clock: ShownClock,
    waiters: Arc<Waiters>,
}

impl Still {
    pub(super) fn new(world: Arc<dyn World>, clock: ShownClock) -> Self {
        Self { world, clock, waiters: Arc::default() }
    }

    fn ask<T>(&self, call: impl Future<Output = T>) -> T {
        self.clock.show();
        block_on(call)
    }

    /// As [`Still::ask`], for calls with which runs may end.
    fn change<T>(&self, call: impl Future<Output = T>) -> T {
        let answer = self.ask(call);
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
        self.ask(self.world.ended(run, self.clock.show()))
    }
}

/// Waits on this thread, whatever the runtime around it may think of that.
fn block_on<T>(call: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    // The runtime must not ask it to let others go first: they cannot.
    let mut call = pin!(tokio::task::unconstrained(call));
    loop {
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[async_trait]
impl World for Still {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        self.change(self.world.start(starts))
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        self.ask(self.world.run(run))
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        self.ask(self.world.runs(query))
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        self.ask(self.world.counts())
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        let told = self.waiters.wait(run);
        if let Some(ended) = self.ended_by_now(run)? {
            return Ok(Some(ended));
        }
        tokio::select! {
            biased;
            ended = told => Ok(Some(ended)),
            _ = self.clock.sleep_until(until) => Ok(None),
        }
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        self.ask(self.world.history(run, from, limit))
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        self.ask(self.world.histories(runs))
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        self.change(self.world.send(messages))
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        self.ask(self.world.inbox(run, after))
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        self.ask(self.world.join(join))
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        self.ask(self.world.beat(session, report, details))
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        self.ask(self.world.held(session))
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        self.ask(self.world.leave(session))
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        self.ask(self.world.takeover(session))
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        self.change(self.world.claim(session, request))
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        self.change(self.world.commit(session, turns))
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        self.ask(self.world.workers())
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        self.ask(self.world.resume(run))
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        // Nobody is asked for that: it is a change signal of this process.
        self.world.changed(epoch, until).await
    }

    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        self.change(self.world.deliver(session))
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        self.ask(self.world.prune(before, after, limit))
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
