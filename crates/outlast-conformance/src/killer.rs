//! A world that kills its own process at a chosen point.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ClaimRequest, Clock, Committed, Counts, Delivered, Description, Ended, HeartbeatDetails,
    HeldRun, Join, Message, NewMessage, Page, Pruned, Report, RunId, RunQuery, RunView, Sent, SessionId,
    Start, Started, Timestamp, Turn, TurnRecord, Work, WorkerView, World, WorldError,
};
use rustix::process::{Signal, getpid, kill_process};

/// A world that counts its commit points, and kills its own process with SIGKILL at one of them.
///
/// Every call that may write has two points: just before it, when nothing is written, and just after its answer, when
/// everything is written and the caller has not got the answer. These calls are `start`, `send`, `join`, `claim`,
/// `commit`, `leave`, `takeover`, `resume`, `deliver` and `prune`. A claim without a run has only the first point. A
/// beat has none, because its time does not depend on the program.
///
/// So a program that is killed once at each point and run again each time has survived a crash between any two writes.
#[derive(Debug)]
pub struct KillerWorld {
    inner: Arc<dyn World>,
    passed: AtomicU64,
    kill_point: u64,
    taken_over: AtomicU64,
}

impl KillerWorld {
    /// A world that only counts its points.
    pub fn counting(inner: Arc<dyn World>) -> Self {
        Self::killed_at(inner, u64::MAX)
    }

    /// A world that kills its process at this point, counted from 1.
    pub fn killed_at(inner: Arc<dyn World>, point: u64) -> Self {
        Self { inner, passed: AtomicU64::new(0), kill_point: point, taken_over: AtomicU64::new(0) }
    }

    /// The number of points so far.
    pub fn points(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    /// The number of runs that were taken over from ended sessions.
    pub fn taken_over(&self) -> u64 {
        self.taken_over.load(Ordering::SeqCst)
    }

    /// Makes a call with a point before and after it.
    async fn between_points<T>(&self, call: impl Future<Output = T>) -> T {
        self.point();
        let answer = call.await;
        self.point();
        answer
    }

    fn point(&self) {
        if self.passed.fetch_add(1, Ordering::SeqCst) + 1 == self.kill_point {
            // The signal reaches this thread before the call returns to it.
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
            unreachable!("a killed process continued");
        }
    }
}

#[async_trait]
impl World for KillerWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        self.between_points(self.inner.start(starts)).await
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        self.inner.run(run).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        self.inner.runs(query).await
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        self.inner.counts().await
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        self.inner.ended(run, until).await
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        self.inner.history(run, from, limit).await
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        self.inner.histories(runs).await
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        self.between_points(self.inner.send(messages)).await
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        self.inner.inbox(run, after).await
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        self.between_points(self.inner.join(join)).await
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        self.inner.beat(session, report, details).await
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        self.inner.held(session).await
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        self.between_points(self.inner.leave(session)).await
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        self.point();
        let answer = self.inner.takeover(session).await;
        self.taken_over.fetch_add(*answer.as_ref().unwrap_or(&0), Ordering::SeqCst);
        self.point();
        answer
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        self.point();
        let answer = self.inner.claim(session, request).await;
        if answer.as_ref().is_ok_and(|work| !work.claimed.is_empty()) {
            self.point();
        }
        answer
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        self.between_points(self.inner.commit(session, turns)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        self.inner.workers().await
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        self.between_points(self.inner.resume(run)).await
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        self.inner.changed(epoch, until).await
    }

    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        self.between_points(self.inner.deliver(session)).await
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        self.between_points(self.inner.prune(before, after, limit)).await
    }

    fn run_id(&self, key: Option<&str>, bits: u128) -> RunId {
        self.inner.run_id(key, bits)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }

    fn describe(&self) -> Description {
        self.inner.describe()
    }
}
