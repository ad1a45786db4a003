//! A world that loses answers, refuses, or takes its time, as a test says.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use outlast::core::turn::BasedOn;
use outlast::core::world::Answers;
use outlast::core::{
    Beat, Busy, ClaimRequest, ClaimedHistory, Clock, Committed, Counts, Delivered, Description, Ended,
    HeartbeatDetails, HeldRun, Join, Message, NewMessage, Page, Pruned, Report, RunId, RunQuery, RunView,
    Sent, SessionId, Start, Started, Timestamp, Turn, TurnRecord, Work, WorkerView, World, WorldError,
};
use outlast_testkit::TestClock;
use parking_lot::Mutex;
use tokio::sync::watch;

/// A method of the world that can be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    Start,
    Send,
    Claim,
    Commit,
    Held,
    Inbox,
    Leave,
    Takeover,
    Beat,
    Join,
    Run,
    Ended,
    Histories,
}

enum Fault {
    /// Does it, then says that it is not available.
    LoseAnswer,
    /// Does nothing, and says that it is not available.
    Refuse,
    /// As the other two, but only the turns are answered so, and not the call as a whole.
    AnswerEach { error: WorldError, is_done: bool },
    /// Does something else first.
    Before(Pin<Box<dyn Future<Output = ()> + Send>>),
}

struct Plan {
    call: Call,
    skip: usize,
    concerns: fn(&[Turn]) -> bool,
    fault: Fault,
}

#[derive(Default)]
struct State {
    plans: Vec<Plan>,
    sizes: BTreeMap<Call, Vec<usize>>,
    fenced: usize,
    is_down: bool,
    unreadable: BTreeSet<RunId>,
}

/// What is planned to go wrong, and what was called. Clones are handles on the same plan.
#[derive(Clone)]
pub(super) struct Faults {
    state: Arc<Mutex<State>>,
    clock: Arc<Skewed>,
}

impl Faults {
    /// Does the call after `skip` others, and loses its answer. A claim that brings nothing does not count.
    pub(super) fn lose_answer(&self, call: Call, skip: usize) {
        self.plan(call, skip, |_| true, Fault::LoseAnswer);
    }

    /// Answers the call after `skip` others with `Unavailable`, and does nothing.
    pub(super) fn refuse(&self, call: Call, skip: usize) {
        self.plan(call, skip, |_| true, Fault::Refuse);
    }

    /// The history of this run cannot be read from now on.
    pub(super) fn make_unreadable(&self, run: RunId) {
        self.state.lock().unreadable.insert(run);
    }

    fn is_unreadable(&self, run: RunId) -> bool {
        self.state.lock().unreadable.contains(&run)
    }

    /// What a claim brings of runs that cannot be read.
    fn spoil(&self, mut work: Work) -> Work {
        for claimed in work.claimed.iter_mut().filter(|claimed| self.is_unreadable(claimed.run)) {
            claimed.history = ClaimedHistory::Unreadable("event 0 makes no sense".into());
            claimed.inbox.clear();
        }
        work
    }

    /// From now on every call that can be disturbed is refused, or none any more.
    pub(super) fn set_down(&self, is_down: bool) {
        self.state.lock().is_down = is_down;
    }

    /// Does the next commit or not, and answers each of its turns with the error.
    pub(super) fn answer_each_turn(&self, error: WorldError, is_done: bool) {
        self.plan(Call::Commit, 0, |_| true, Fault::AnswerEach { error, is_done });
    }

    /// Does `first` just before the next commit with a turn that fires a timer.
    pub(super) fn before_a_timer_fires(&self, first: impl Future<Output = ()> + Send + 'static) {
        let fires = |turns: &[Turn]| turns.iter().any(|turn| turn.fired_until.is_some());
        self.plan(Call::Commit, 0, fires, Fault::Before(Box::pin(first)));
    }

    /// Keeps the next call from happening until the gate is opened.
    pub(super) fn hold(&self, call: Call) -> Gate {
        let gate = Gate::default();
        let held = gate.clone();
        self.plan(call, 0, |_| true, Fault::Before(Box::pin(async move { held.pass().await })));
        gate
    }

    /// Keeps the commit of the parts of a turn from happening, after so many others that were parts and not the
    /// last ones.
    pub(super) fn hold_part(&self, skip: usize) -> Gate {
        let gate = Gate::default();
        let held = gate.clone();
        self.plan(
            Call::Commit,
            skip,
            follows_a_part,
            Fault::Before(Box::pin(async move { held.pass().await })),
        );
        gate
    }

    /// Answers the part of a turn after so many others with the error, and does not commit it.
    pub(super) fn refuse_part(&self, skip: usize, error: WorldError) {
        self.plan(Call::Commit, skip, follows_a_part, Fault::AnswerEach { error, is_done: false });
    }

    /// How often it was called.
    pub(super) fn count(&self, call: Call) -> usize {
        self.sizes(call).len()
    }

    /// How many elements each call had.
    pub(super) fn sizes(&self, call: Call) -> Vec<usize> {
        self.state.lock().sizes.get(&call).cloned().unwrap_or_default()
    }

    /// How many turns were refused because they came from a session that does not hold the run.
    pub(super) fn fenced(&self) -> usize {
        self.state.lock().fenced
    }

    /// How many faults have not happened yet.
    pub(super) fn left(&self) -> usize {
        self.state.lock().plans.len()
    }

    /// Puts the clock that workers and clients see back by so many seconds.
    pub(super) fn set_clock_back(&self, seconds: i64) {
        self.clock.set_back(seconds);
    }

    fn plan(&self, call: Call, skip: usize, concerns: fn(&[Turn]) -> bool, fault: Fault) {
        self.state.lock().plans.push(Plan { call, skip, concerns, fault });
    }

    fn next(&self, call: Call, size: usize, turns: &[Turn]) -> Option<Fault> {
        let mut state = self.state.lock();
        state.sizes.entry(call).or_default().push(size);
        if state.is_down {
            return Some(Fault::Refuse);
        }
        let concerns = |plan: &Plan| plan.call == call && (plan.concerns)(turns);
        let place = state.plans.iter().position(concerns)?;
        let plan = &mut state.plans[place];
        if plan.skip > 0 {
            plan.skip -= 1;
            return None;
        }
        Some(state.plans.remove(place).fault)
    }

    /// Calls, with what is planned for it.
    async fn call<T>(
        &self,
        call: Call,
        size: usize,
        calling: impl Future<Output = Result<T, WorldError>>,
    ) -> Result<T, WorldError> {
        answer(self.next(call, size, &[]), calling).await
    }
}

async fn answer<T>(
    fault: Option<Fault>,
    calling: impl Future<Output = Result<T, WorldError>>,
) -> Result<T, WorldError> {
    match fault {
        None => calling.await,
        Some(Fault::Refuse | Fault::AnswerEach { .. }) => Err(unavailable()),
        Some(Fault::LoseAnswer) => calling.await.and(Err(unavailable())),
        Some(Fault::Before(first)) => {
            first.await;
            calling.await
        }
    }
}

fn unavailable() -> WorldError {
    WorldError::Unavailable("the test lost the answer".into())
}

/// Whether a turn of the batch follows a part of a larger one.
fn follows_a_part(turns: &[Turn]) -> bool {
    turns.iter().any(|turn| matches!(turn.based_on, BasedOn::Turn(last) if last.is_continued()))
}

/// Where a call waits for the test.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(watch::Sender<(bool, bool)>);

impl Gate {
    /// Waits until the call is there.
    pub(super) async fn arrived(&self) {
        self.0.subscribe().wait_for(|(arrived, _)| *arrived).await.unwrap();
    }

    /// Lets the call happen.
    pub(super) fn open(&self) {
        self.0.send_modify(|(_, open)| *open = true);
    }

    async fn pass(&self) {
        self.0.send_modify(|(arrived, _)| *arrived = true);
        self.0.subscribe().wait_for(|(_, open)| *open).await.unwrap();
    }
}

/// The test's clock, perhaps put back.
#[derive(Debug)]
pub(super) struct Skewed {
    clock: TestClock,
    back: AtomicI64,
}

impl Skewed {
    pub(super) fn new(clock: TestClock) -> Arc<Self> {
        Arc::new(Self { clock, back: AtomicI64::new(0) })
    }

    /// Puts it back by so many seconds against the test's clock.
    pub(super) fn set_back(&self, seconds: i64) {
        self.back.store(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.now().as_micros() - self.back.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        let at = at.as_micros().saturating_add(self.back.load(Ordering::SeqCst));
        self.clock.sleep_until(Timestamp::from_micros(at))
    }

    fn busy(&self) -> Busy {
        Clock::busy(&self.clock)
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

/// A world that does what its [`Faults`] say, and otherwise what the one inside does.
pub(super) struct FaultyWorld {
    inner: Arc<dyn World>,
    faults: Faults,
}

impl FaultyWorld {
    pub(super) fn around(inner: Arc<dyn World>, clock: TestClock) -> (Arc<dyn World>, Faults) {
        let faults = Faults { state: Arc::default(), clock: Skewed::new(clock) };
        (Arc::new(Self { inner, faults: faults.clone() }), faults)
    }
}

impl std::fmt::Debug for FaultyWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyWorld({:?})", self.inner)
    }
}

#[async_trait]
impl World for FaultyWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        self.faults.call(Call::Start, starts.len(), self.inner.start(starts)).await
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        self.faults.call(Call::Run, 1, self.inner.run(run)).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        self.inner.runs(query).await
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        self.inner.counts().await
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        if self.faults.is_unreadable(run) {
            return Err(WorldError::Corrupt(format!("event 0 of run {run} makes no sense")));
        }
        self.faults.call(Call::Ended, 1, self.inner.ended(run, until)).await
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        if self.faults.is_unreadable(run) {
            return Err(WorldError::Corrupt(format!("event 0 of run {run} makes no sense")));
        }
        self.inner.history(run, from, limit).await
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        self.faults.call(Call::Histories, runs.len(), self.inner.histories(runs)).await
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        self.faults.call(Call::Send, messages.len(), self.inner.send(messages)).await
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        self.faults.call(Call::Inbox, 1, self.inner.inbox(run, after)).await
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        self.faults.call(Call::Join, 1, self.inner.join(join)).await
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        self.faults.call(Call::Beat, details.len(), self.inner.beat(session, report, details)).await
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        self.faults.call(Call::Held, 1, self.inner.held(session)).await
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        self.faults.call(Call::Leave, 1, self.inner.leave(session)).await
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        self.faults.call(Call::Takeover, 1, self.inner.takeover(session)).await
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        match self.faults.next(Call::Claim, request.limit, &[]) {
            None => self.inner.claim(session, request).await.map(|work| self.faults.spoil(work)),
            Some(Fault::Refuse | Fault::AnswerEach { .. }) => Err(unavailable()),
            Some(Fault::Before(first)) => {
                first.await;
                self.inner.claim(session, request).await
            }
            Some(Fault::LoseAnswer) => {
                let work = self.inner.claim(session, request).await?;
                if work.claimed.is_empty() {
                    self.faults.lose_answer(Call::Claim, 0);
                    return Ok(work);
                }
                Err(unavailable())
            }
        }
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        let (inner, faults, on_the_wire) = (self.inner.clone(), self.faults.clone(), turns.to_vec());
        let commit = async move {
            let answers = inner.commit(session, &on_the_wire).await;
            let is_fenced = |answer: &&Result<_, _>| matches!(answer, Err(WorldError::Fenced(_)));
            faults.state.lock().fenced += answers.iter().flatten().filter(is_fenced).count();
            answers
        };
        match self.faults.next(Call::Commit, turns.len(), turns) {
            Some(Fault::Before(first)) => {
                // What is on the wire arrives, though whoever sent it is gone.
                let arrives = tokio::spawn(async move {
                    first.await;
                    commit.await
                });
                arrives.await.unwrap()
            }
            Some(Fault::AnswerEach { error, is_done }) => {
                if is_done {
                    commit.await?;
                }
                Ok(vec![Err(error); turns.len()])
            }
            fault => answer(fault, commit).await,
        }
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        self.inner.workers().await
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        self.inner.resume(run).await
    }

    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        self.inner.deliver(session).await
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        self.inner.prune(before, after, limit).await
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        self.inner.changed(epoch, until).await
    }

    fn run_id(&self, key: Option<&str>, bits: u128) -> RunId {
        self.inner.run_id(key, bits)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        let clock = self.inner.clock();
        if clock.is_virtual() { self.faults.clock.clone() } else { clock }
    }

    fn describe(&self) -> Description {
        self.inner.describe()
    }
}
