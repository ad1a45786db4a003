//! The world of one process: passes calls to the inner world, with faults.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ClaimRequest, Clock, Committed, Counts, Delivered, Ended, Fork, HeartbeatDetails, HeldRun,
    Join, Message, MessageId, NewMessage, Page, Pruned, Reopen, Report, RunId, RunQuery, RunView, Sent,
    SessionId, Start, Started, StoredReply, StreamWrite, StreamWritten, Timestamp, TokenHash, TokenView,
    Turn, TurnRecord, Work, WorkerView, World, WorldError, WorldWrapper,
};

use super::clock::sleep;
use super::environment::Environment;
use super::faults::{Call, Fault};
use super::node::Node;

/// The world of one process.
pub(super) struct SimulatedWorld {
    env: Arc<Environment>,
    node: Arc<Node>,
}

impl SimulatedWorld {
    pub(super) fn new(env: &Arc<Environment>, node: &Arc<Node>) -> Arc<Self> {
        Arc::new(Self { env: env.clone(), node: node.clone() })
    }

    /// Makes a call, with the faults that are planned for it.
    async fn call_with_faults<T, F>(
        &self,
        call: Call,
        arrive: impl Fn() -> F + Send + 'static,
    ) -> Result<T, WorldError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, WorldError>> + Send + 'static,
    {
        self.node.wait_until_running().await;
        let Some(plan) = self.env.plan(&self.node, call) else { return std::future::pending().await };
        if self.node.is_disconnected() || plan.fault == Fault::Refuse {
            sleep(plan.before).await;
            self.node.wait_until_running().await;
            self.env.log(&self.node.name, format_args!("{call:?} not executed"));
            return Err(unavailable());
        }
        if plan.fault == Fault::CrashBefore {
            return self.crash(call, "before").await;
        }
        if let Some(later) = plan.duplicate {
            let (duplicate, env, name) = (arrive(), self.env.clone(), self.node.name.clone());
            tokio::spawn(async move {
                sleep(later).await;
                env.log(&name, format_args!("{call:?} arrives again"));
                drop(duplicate.await);
            });
        }
        let arriving = arrive();
        let travelling = async move {
            sleep(plan.before).await;
            arriving.await
        };
        let answer = if plan.outlives_caller {
            match tokio::spawn(travelling).await {
                Ok(answer) => answer,
                Err(_) => return std::future::pending().await,
            }
        } else {
            travelling.await
        };
        if plan.fault == Fault::CrashAfter {
            return self.crash(call, "after").await;
        }
        sleep(plan.after).await;
        self.node.wait_until_running().await;
        if plan.fault == Fault::Lose {
            self.env.log(&self.node.name, format_args!("{call:?} executed, answer lost"));
            return Err(unavailable());
        }
        answer
    }

    async fn crash<T>(&self, call: Call, when: &str) -> T {
        if !self.node.is_dead() {
            self.env.log(&self.node.name, format_args!("crashes {when} {call:?}"));
        }
        self.node.kill();
        std::future::pending().await
    }

    async fn read<T, F>(&self, ask: impl Fn(Arc<dyn World>) -> F + Send + 'static) -> Result<T, WorldError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, WorldError>> + Send + 'static,
    {
        let inner: Arc<dyn World> = self.env.inner.clone();
        self.call_with_faults(Call::Read, move || ask(inner.clone())).await
    }

    fn parts(&self) -> (Arc<Environment>, Arc<Node>) {
        (self.env.clone(), self.node.clone())
    }
}

fn unavailable() -> WorldError {
    WorldError::Unavailable("lost by the simulation".into())
}

impl fmt::Debug for SimulatedWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimWorld({:?})", self.node)
    }
}

impl WorldWrapper for SimulatedWorld {
    fn inner(&self) -> &dyn World {
        &*self.env.inner
    }

    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        let (env, node) = self.parts();
        self.call_with_faults(Call::Start, move || env.clone().start(node.clone(), starts.clone())).await
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        self.read(move |world| async move { world.run(run).await }).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        self.read(move |world| {
            let query = query.clone();
            async move { world.runs(query).await }
        })
        .await
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        self.read(|world| async move { world.counts().await }).await
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        self.read(move |world| async move { world.ended(run, until).await }).await
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        self.read(move |world| async move { world.history(run, from, limit).await }).await
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        let runs = runs.to_vec();
        self.read(move |world| {
            let runs = runs.clone();
            async move { world.histories(&runs).await }
        })
        .await
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        let (env, node) = self.parts();
        self.call_with_faults(Call::Send, move || env.clone().send(node.clone(), messages.clone())).await
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        self.read(move |world| async move { world.inbox(run, after).await }).await
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        let (env, node) = self.parts();
        self.call_with_faults(Call::Join, move || env.clone().join(node.clone(), join.clone())).await
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        let (inner, report, details) = (self.env.inner.clone(), report.clone(), details.to_vec());
        self.call_with_faults(Call::Beat, move || {
            let (inner, report, details) = (inner.clone(), report.clone(), details.clone());
            async move { inner.beat(session, &report, &details).await }
        })
        .await
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        let inner = self.env.inner.clone();
        self.call_with_faults(Call::Held, move || {
            let inner = inner.clone();
            async move { inner.held(session).await }
        })
        .await
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        let (env, node) = self.parts();
        self.call_with_faults(Call::Leave, move || env.clone().leave(node.clone(), session)).await
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        let (env, node) = self.parts();
        self.call_with_faults(Call::Takeover, move || env.clone().takeover(node.clone(), session)).await
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        let (env, node) = self.parts();
        self.call_with_faults(Call::Claim, move || env.clone().claim(node.clone(), session, request.clone()))
            .await
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        let ((env, node), sent) = (self.parts(), turns.to_vec());
        let answers = self
            .call_with_faults(Call::Commit, move || env.clone().commit(node.clone(), session, sent.clone()))
            .await;
        let done = turns.iter().zip(answers.iter().flatten()).filter(|(_, answer)| answer.is_ok());
        let (elapsed, name) = (self.env.clock.elapsed(), &self.node.name);
        self.env
            .observer
            .lock()
            .commit_answered_at
            .extend(done.map(|(turn, _)| ((turn.id, name.clone()), elapsed)));
        answers
    }

    async fn reopen(&self, reopen: Reopen) -> Result<Sent, WorldError> {
        let (env, node) = self.parts();
        self.call_with_faults(Call::Reopen, move || env.clone().reopen(node.clone(), reopen.clone())).await
    }

    async fn fork(&self, fork: Fork) -> Result<Started, WorldError> {
        let (env, node) = self.parts();
        self.call_with_faults(Call::Fork, move || env.clone().fork(node.clone(), fork.clone())).await
    }

    async fn token(&self, hash: TokenHash) -> Result<Option<TokenView>, WorldError> {
        self.read(move |world| async move { world.token(hash).await }).await
    }

    async fn reply(&self, run: RunId, message: MessageId) -> Result<Option<StoredReply>, WorldError> {
        self.read(move |world| async move { world.reply(run, message).await }).await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        self.read(|world| async move { world.workers().await }).await
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        self.read(move |world| async move { world.resume(run).await }).await
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        let missed_hints = self.env.profile.missed_hints;
        let misses_hint = !self.env.is_calm() && self.env.random(|rng| rng.u32(0..10_000) < missed_hints);
        let busy = if misses_hint {
            self.env.clock.sleep_until(until).await
        } else {
            self.env.inner.changed(epoch, until).await
        };
        self.node.wait_until_running().await;
        busy
    }

    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        let (env, node) = self.parts();
        self.call_with_faults(Call::Read, move || env.clone().deliver(node.clone(), session)).await
    }

    async fn write_chunks(&self, session: SessionId, writes: Vec<StreamWrite>) -> Answers<StreamWritten> {
        let inner = self.env.inner.clone();
        self.call_with_faults(Call::WriteChunks, move || {
            let (inner, writes) = (inner.clone(), writes.clone());
            async move { inner.write_chunks(session, writes).await }
        })
        .await
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        self.read(move |world| async move { world.prune(before, after, limit).await }).await
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.env.clock.clone())
    }
}
