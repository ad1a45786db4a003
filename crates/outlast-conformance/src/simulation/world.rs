//! The world as one process sees it: the one inside, with faults on the way.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ClaimRequest, Clock, Committed, Counts, Delivered, Description, Ended, HeartbeatDetails,
    HeldRun, Join, Message, NewMessage, Page, Pruned, Report, RunId, RunQuery, RunView, Sent, SessionId,
    Start, Started, Timestamp, Turn, TurnRecord, Work, WorkerView, World, WorldError,
};

use super::clock::sleep;
use super::faults::{Call, Fault};
use super::node::Node;
use super::stage::Stage;

/// The world of one process.
pub(super) struct SimWorld {
    stage: Arc<Stage>,
    node: Arc<Node>,
}

impl SimWorld {
    pub(super) fn new(stage: &Arc<Stage>, node: &Arc<Node>) -> Arc<Self> {
        Arc::new(Self { stage: stage.clone(), node: node.clone() })
    }

    /// Calls, and lets go wrong what is planned to.
    async fn call<T, F>(&self, call: Call, arrive: impl Fn() -> F + Send + 'static) -> Result<T, WorldError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, WorldError>> + Send + 'static,
    {
        self.node.pass().await;
        let Some(plan) = self.stage.plan(&self.node, call) else { return std::future::pending().await };
        if self.node.is_cut_off() || plan.fault == Fault::Refuse {
            sleep(plan.before).await;
            self.node.pass().await;
            self.stage.note(&self.node.name, format_args!("{call:?} not done"));
            return Err(unavailable());
        }
        if plan.fault == Fault::CrashBefore {
            return self.crash(call, "before").await;
        }
        if let Some(later) = plan.again {
            let (again, stage, name) = (arrive(), self.stage.clone(), self.node.name.clone());
            tokio::spawn(async move {
                sleep(later).await;
                stage.note(&name, format_args!("{call:?} arrives again"));
                drop(again.await);
            });
        }
        let arriving = arrive();
        let travelling = async move {
            sleep(plan.before).await;
            arriving.await
        };
        let answer = if plan.is_on_the_wire {
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
        self.node.pass().await;
        if plan.fault == Fault::Lose {
            self.stage.note(&self.node.name, format_args!("{call:?} done, answer lost"));
            return Err(unavailable());
        }
        answer
    }

    async fn crash<T>(&self, call: Call, when: &str) -> T {
        if !self.node.is_dead() {
            self.stage.note(&self.node.name, format_args!("crashes {when} {call:?}"));
        }
        self.node.kill();
        std::future::pending().await
    }

    async fn read<T, F>(&self, ask: impl Fn(Arc<dyn World>) -> F + Send + 'static) -> Result<T, WorldError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, WorldError>> + Send + 'static,
    {
        let inner: Arc<dyn World> = self.stage.inner.clone();
        self.call(Call::Read, move || ask(inner.clone())).await
    }

    fn parts(&self) -> (Arc<Stage>, Arc<Node>) {
        (self.stage.clone(), self.node.clone())
    }
}

fn unavailable() -> WorldError {
    WorldError::Unavailable("the simulation lost it".into())
}

impl fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimWorld({:?})", self.node)
    }
}

#[async_trait]
impl World for SimWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        let (stage, node) = self.parts();
        self.call(Call::Start, move || stage.clone().start(node.clone(), starts.clone())).await
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
        let (stage, node) = self.parts();
        self.call(Call::Send, move || stage.clone().send(node.clone(), messages.clone())).await
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        self.read(move |world| async move { world.inbox(run, after).await }).await
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        let (stage, node) = self.parts();
        self.call(Call::Join, move || stage.clone().join(node.clone(), join.clone())).await
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        let (inner, report, details) = (self.stage.inner.clone(), report.clone(), details.to_vec());
        self.call(Call::Beat, move || {
            let (inner, report, details) = (inner.clone(), report.clone(), details.clone());
            async move { inner.beat(session, &report, &details).await }
        })
        .await
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        let inner = self.stage.inner.clone();
        self.call(Call::Held, move || {
            let inner = inner.clone();
            async move { inner.held(session).await }
        })
        .await
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        let (stage, node) = self.parts();
        self.call(Call::Leave, move || stage.clone().leave(node.clone(), session)).await
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        let (stage, node) = self.parts();
        self.call(Call::Takeover, move || stage.clone().takeover(node.clone(), session)).await
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        let (stage, node) = self.parts();
        self.call(Call::Claim, move || stage.clone().claim(node.clone(), session, request.clone())).await
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        let ((stage, node), sent) = (self.parts(), turns.to_vec());
        let answers =
            self.call(Call::Commit, move || stage.clone().commit(node.clone(), session, sent.clone())).await;
        let done = turns.iter().zip(answers.iter().flatten()).filter(|(_, answer)| answer.is_ok());
        let (elapsed, name) = (self.stage.clock.elapsed(), &self.node.name);
        self.stage.witness.lock().answered.extend(done.map(|(turn, _)| ((turn.id, name.clone()), elapsed)));
        answers
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        self.read(|world| async move { world.workers().await }).await
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        self.read(move |world| async move { world.resume(run).await }).await
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        let deaf = self.stage.profile.deaf;
        let is_deaf = !self.stage.is_calm() && self.stage.chance(|rng| rng.u32(0..10_000) < deaf);
        let busy = if is_deaf {
            self.stage.clock.sleep_until(until).await
        } else {
            self.stage.inner.changed(epoch, until).await
        };
        self.node.pass().await;
        busy
    }

    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        let (stage, node) = self.parts();
        self.call(Call::Read, move || stage.clone().deliver(node.clone(), session)).await
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        self.read(move |world| async move { world.prune(before, after, limit).await }).await
    }

    fn run_id(&self, key: Option<&str>, bits: u128) -> RunId {
        self.stage.inner.run_id(key, bits)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.stage.clock.clone())
    }

    fn describe(&self) -> Description {
        self.stage.inner.describe()
    }
}
