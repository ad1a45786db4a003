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
/// Every call that may write has two points: just before it, when nothing is written, and just after
/// its answer came, when all is written and the caller has not seen it. These calls are `start`, `send`,
/// `join`, `claim`, `commit`, `leave`, `takeover`, `resume`, `deliver` and `prune`. A claim that brings no run has only the
/// first. A beat has none: it comes by time, not by what the program does.
///
/// So a program that is run once per point, killed there and run again, has survived a crash between
/// any two things it wrote.
#[derive(Debug)]
pub struct KillerWorld {
    inner: Arc<dyn World>,
    passed: AtomicU64,
    deadly: u64,
    taken_over: AtomicU64,
}

impl KillerWorld {
    /// A world that only counts.
    pub fn harmless(inner: Arc<dyn World>) -> Self {
        Self::deadly_at(inner, u64::MAX)
    }

    /// A world that kills its process at this point, counted from 1.
    pub fn deadly_at(inner: Arc<dyn World>, point: u64) -> Self {
        Self { inner, passed: AtomicU64::new(0), deadly: point, taken_over: AtomicU64::new(0) }
    }

    /// How many points were passed.
    pub fn points(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    /// How many runs were taken over from sessions whose workers are gone.
    pub fn taken_over(&self) -> u64 {
        self.taken_over.load(Ordering::SeqCst)
    }

    fn point(&self) {
        if self.passed.fetch_add(1, Ordering::SeqCst) + 1 == self.deadly {
            // The signal reaches this thread before the call returns to it.
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
            unreachable!("a killed process went on");
        }
    }
}

#[async_trait]
impl World for KillerWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        self.point();
        let answer = self.inner.start(starts).await;
        self.point();
        answer
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
        self.point();
        let answer = self.inner.send(messages).await;
        self.point();
        answer
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        self.inner.inbox(run, after).await
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        self.point();
        let answer = self.inner.join(join).await;
        self.point();
        answer
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
        self.point();
        let answer = self.inner.leave(session).await;
        self.point();
        answer
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
        self.point();
        let answer = self.inner.commit(session, turns).await;
        self.point();
        answer
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        self.inner.workers().await
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        self.point();
        let answer = self.inner.resume(run).await;
        self.point();
        answer
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        self.inner.changed(epoch, until).await
    }

    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        self.point();
        let answer = self.inner.deliver(session).await;
        self.point();
        answer
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        self.point();
        let answer = self.inner.prune(before, after, limit).await;
        self.point();
        answer
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
