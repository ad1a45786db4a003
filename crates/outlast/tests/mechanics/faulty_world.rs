//! A world whose calls fail, lose their answers or are delayed, as a test plans.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

pub(super) use outlast::core::WorldMethod as Call;
use outlast::core::turn::BasedOn;
use outlast::core::world::Answers;
use outlast::core::{
    Beat, Busy, ClaimRequest, ClaimedHistory, Clock, Committed, Ended, HeartbeatDetails, NewMessage, Report,
    RunId, Sent, SessionId, Start, Started, Timestamp, Turn, TurnRecord, Work, World, WorldError,
    WorldWrapper,
};
use outlast_testkit::TestClock;
use parking_lot::Mutex;
use tokio::sync::watch;

enum Fault {
    /// Executes the call, and returns `Unavailable`.
    LoseAnswer,
    /// Returns `Unavailable` without executing the call.
    Refuse,
    /// Returns the error without executing the call.
    Fail(WorldError),
    /// As the other two, but each turn is answered with the error, not the call as a whole.
    AnswerEach { error: WorldError, is_done: bool },
    /// Executes the call, and answers the elements from this position on with `Unavailable`.
    LoseAnswersFrom(usize),
    /// Executes a future before the call.
    Before(Pin<Box<dyn Future<Output = ()> + Send>>),
}

struct FaultPlan {
    call: Call,
    skip: usize,
    concerns: fn(&[Turn]) -> bool,
    fault: Fault,
}

#[derive(Default)]
struct FaultState {
    plans: Vec<FaultPlan>,
    sizes: BTreeMap<Call, Vec<usize>>,
    fenced: usize,
    /// The number of runs that claims have returned.
    claimed: usize,
    is_unavailable: bool,
    /// The error of all calls, if the storage is gone.
    gone: Option<WorldError>,
    unreadable: BTreeSet<RunId>,
    /// The runs whose turns are refused, with the errors.
    refused: BTreeMap<RunId, WorldError>,
}

/// The planned faults, and the calls so far. Clones share the same state.
#[derive(Clone)]
pub(super) struct Faults {
    state: Arc<Mutex<FaultState>>,
    /// The number of turns that were refused, by their runs.
    refused_turns: watch::Sender<BTreeMap<RunId, usize>>,
    clock: Arc<SkewedClock>,
}

impl Faults {
    /// Executes the call after `skip` others, and loses its answer. An empty claim does not count.
    pub(super) fn lose_answer(&self, call: Call, skip: usize) {
        self.plan(call, skip, |_| true, Fault::LoseAnswer);
    }

    /// Executes the next call, and loses the answers to its elements from this position on.
    pub(super) fn lose_answers_from(&self, call: Call, position: usize) {
        self.plan(call, 0, |_| true, Fault::LoseAnswersFrom(position));
    }

    /// Answers the call after `skip` others with `Unavailable`, without executing it.
    pub(super) fn refuse(&self, call: Call, skip: usize) {
        self.plan(call, skip, |_| true, Fault::Refuse);
    }

    /// Makes the history of this run unreadable.
    pub(super) fn make_unreadable(&self, run: RunId) {
        self.state.lock().unreadable.insert(run);
    }

    fn is_unreadable(&self, run: RunId) -> bool {
        self.state.lock().unreadable.contains(&run)
    }

    /// Replaces the histories of unreadable runs in a claim, and counts its runs.
    fn hide_unreadable(&self, mut work: Work) -> Work {
        self.state.lock().claimed += work.claimed.len();
        for claimed in work.claimed.iter_mut().filter(|claimed| self.is_unreadable(claimed.run)) {
            claimed.history = ClaimedHistory::Unreadable("event 0 makes no sense".into());
            claimed.inbox.clear();
        }
        work
    }

    /// From now on all calls that faults can affect are refused, or none.
    pub(super) fn set_unavailable(&self, is_unavailable: bool) {
        self.state.lock().is_unavailable = is_unavailable;
    }

    /// From now on all calls that faults can affect return the error, or none.
    pub(super) fn set_gone(&self, error: Option<WorldError>) {
        self.state.lock().gone = error;
    }

    /// Answers the next call with the error, without executing it.
    pub(super) fn fail(&self, call: Call, error: WorldError) {
        self.plan(call, 0, |_| true, Fault::Fail(error));
    }

    /// From now on the turns of this run are refused with the error. Those of other runs in the same call are not.
    pub(super) fn refuse_turns_of(&self, run: RunId, error: WorldError) {
        self.state.lock().refused.insert(run, error);
    }

    /// From now on the turns of this run are accepted.
    pub(super) fn accept_turns_of(&self, run: RunId) {
        self.state.lock().refused.remove(&run);
    }

    /// Waits until this many turns of the run were refused.
    pub(super) async fn wait_for_refused_turns(&self, run: RunId, count: usize) {
        let is_there = |refused: &BTreeMap<_, usize>| refused.get(&run).is_some_and(|turns| *turns >= count);
        self.refused_turns.subscribe().wait_for(is_there).await.unwrap();
    }

    /// Commits the turns that are not refused.
    async fn commit_accepted(
        &self,
        inner: &dyn World,
        session: SessionId,
        turns: &[Turn],
    ) -> Answers<Committed> {
        let refused = self.state.lock().refused.clone();
        let accepted: Vec<_> =
            turns.iter().filter(|turn| !refused.contains_key(&turn.run)).cloned().collect();
        let mut answers = inner.commit(session, &accepted).await?.into_iter();
        let answer = |turn: &Turn| match refused.get(&turn.run) {
            Some(error) => {
                self.refused_turns.send_modify(|refused| *refused.entry(turn.run).or_default() += 1);
                Some(Err(error.clone()))
            }
            None => answers.next(),
        };
        Ok(turns.iter().filter_map(answer).collect())
    }

    /// Executes the next commit or not, and answers each of its turns with the error.
    pub(super) fn answer_each_turn(&self, error: WorldError, is_done: bool) {
        self.plan(Call::Commit, 0, |_| true, Fault::AnswerEach { error, is_done });
    }

    /// Executes `first` just before a commit, after `skip` others.
    pub(super) fn before_commit(&self, skip: usize, first: impl Future<Output = ()> + Send + 'static) {
        self.plan(Call::Commit, skip, |_| true, Fault::Before(Box::pin(first)));
    }

    /// Executes `first` just before the next commit with a turn that fires a timer.
    pub(super) fn before_a_timer_fires(&self, first: impl Future<Output = ()> + Send + 'static) {
        let fires = |turns: &[Turn]| turns.iter().any(|turn| turn.fired_until.is_some());
        self.plan(Call::Commit, 0, fires, Fault::Before(Box::pin(first)));
    }

    /// Delays the next call until the gate is opened.
    pub(super) fn hold(&self, call: Call) -> Gate {
        let gate = Gate::default();
        let held = gate.clone();
        self.plan(call, 0, |_| true, Fault::Before(Box::pin(async move { held.wait_until_open().await })));
        gate
    }

    /// Delays the commit of a part of a turn, after `skip` commits of other parts.
    pub(super) fn hold_part(&self, skip: usize) -> Gate {
        let gate = Gate::default();
        let held = gate.clone();
        self.plan(
            Call::Commit,
            skip,
            follows_a_part,
            Fault::Before(Box::pin(async move { held.wait_until_open().await })),
        );
        gate
    }

    /// Answers a part of a turn with the error without committing it, after `skip` other parts.
    pub(super) fn refuse_part(&self, skip: usize, error: WorldError) {
        self.plan(Call::Commit, skip, follows_a_part, Fault::AnswerEach { error, is_done: false });
    }

    /// The number of calls.
    pub(super) fn count(&self, call: Call) -> usize {
        self.sizes(call).len()
    }

    /// The number of all calls.
    pub(super) fn total(&self) -> usize {
        self.state.lock().sizes.values().map(Vec::len).sum()
    }

    /// The number of elements of each call.
    pub(super) fn sizes(&self, call: Call) -> Vec<usize> {
        self.state.lock().sizes.get(&call).cloned().unwrap_or_default()
    }

    /// The number of runs that claims have returned.
    pub(super) fn claimed(&self) -> usize {
        self.state.lock().claimed
    }

    /// The number of turns that were refused because their session does not hold the run.
    pub(super) fn fenced(&self) -> usize {
        self.state.lock().fenced
    }

    /// The number of planned faults that have not happened yet.
    pub(super) fn left(&self) -> usize {
        self.state.lock().plans.len()
    }

    /// Moves the clock of workers and clients back by this many seconds.
    pub(super) fn set_clock_back(&self, seconds: i64) {
        self.clock.set_back(seconds);
    }

    /// Panics in the next call, without executing it.
    pub(super) fn panic_in(&self, call: Call) {
        let panicking = async move { panic!("the test panics in {call:?}") };
        self.plan(call, 0, |_| true, Fault::Before(Box::pin(panicking)));
    }

    fn plan(&self, call: Call, skip: usize, concerns: fn(&[Turn]) -> bool, fault: Fault) {
        self.state.lock().plans.push(FaultPlan { call, skip, concerns, fault });
    }

    fn next(&self, call: Call, size: usize, turns: &[Turn]) -> Option<Fault> {
        let mut state = self.state.lock();
        state.sizes.entry(call).or_default().push(size);
        if let Some(error) = &state.gone {
            return Some(Fault::Fail(error.clone()));
        }
        if state.is_unavailable {
            return Some(Fault::Refuse);
        }
        let concerns = |plan: &FaultPlan| plan.call == call && (plan.concerns)(turns);
        let index = state.plans.iter().position(concerns)?;
        let plan = &mut state.plans[index];
        if plan.skip > 0 {
            plan.skip -= 1;
            return None;
        }
        Some(state.plans.remove(index).fault)
    }

    /// Executes a call with the fault that is planned for it.
    async fn call<T>(
        &self,
        call: Call,
        size: usize,
        calling: impl Future<Output = Result<T, WorldError>>,
    ) -> Result<T, WorldError> {
        answer(self.next(call, size, &[]), calling).await
    }

    /// As [`call`](Self::call), for a call that has one answer per element.
    async fn call_each<T>(
        &self,
        call: Call,
        size: usize,
        calling: impl Future<Output = Answers<T>>,
    ) -> Answers<T> {
        match self.next(call, size, &[]) {
            Some(Fault::LoseAnswersFrom(position)) => {
                let mut answers = calling.await?;
                answers.iter_mut().skip(position).for_each(|answer| *answer = Err(unavailable()));
                Ok(answers)
            }
            fault => answer(fault, calling).await,
        }
    }
}

async fn answer<T>(
    fault: Option<Fault>,
    calling: impl Future<Output = Result<T, WorldError>>,
) -> Result<T, WorldError> {
    match fault {
        None => calling.await,
        Some(Fault::Refuse | Fault::AnswerEach { .. }) => Err(unavailable()),
        Some(Fault::Fail(error)) => Err(error),
        Some(Fault::LoseAnswer | Fault::LoseAnswersFrom(_)) => calling.await.and(Err(unavailable())),
        Some(Fault::Before(first)) => {
            first.await;
            calling.await
        }
    }
}

fn unavailable() -> WorldError {
    WorldError::Unavailable("the test lost the answer".into())
}

/// Whether a turn of the batch follows a part of a larger turn.
fn follows_a_part(turns: &[Turn]) -> bool {
    turns.iter().any(|turn| matches!(turn.based_on, BasedOn::Turn(last) if last.is_continued()))
}

/// A gate at which a call waits for the test.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(watch::Sender<(bool, bool)>);

impl Gate {
    /// Waits until the call is at the gate.
    pub(super) async fn wait_for_call(&self) {
        self.0.subscribe().wait_for(|(arrived, _)| *arrived).await.unwrap();
    }

    /// Opens the gate.
    pub(super) fn open(&self) {
        self.0.send_modify(|(_, open)| *open = true);
    }

    async fn wait_until_open(&self) {
        self.0.send_modify(|(arrived, _)| *arrived = true);
        self.0.subscribe().wait_for(|(_, open)| *open).await.unwrap();
    }
}

/// The test's clock, perhaps moved back.
#[derive(Debug)]
pub(super) struct SkewedClock {
    clock: TestClock,
    back: AtomicI64,
}

impl SkewedClock {
    pub(super) fn new(clock: TestClock) -> Arc<Self> {
        Arc::new(Self { clock, back: AtomicI64::new(0) })
    }

    /// Moves it back by this many seconds, relative to the test's clock.
    pub(super) fn set_back(&self, seconds: i64) {
        self.back.store(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for SkewedClock {
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

/// A world that passes its calls to the inner one, with faults.
pub(super) struct FaultyWorld {
    inner: Arc<dyn World>,
    faults: Faults,
}

impl FaultyWorld {
    pub(super) fn wrap(inner: Arc<dyn World>, clock: TestClock) -> (Arc<dyn World>, Faults) {
        let faults = Faults {
            state: Arc::default(),
            refused_turns: watch::Sender::default(),
            clock: SkewedClock::new(clock),
        };
        (Arc::new(Self { inner, faults: faults.clone() }), faults)
    }
}

impl std::fmt::Debug for FaultyWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyWorld({:?})", self.inner)
    }
}

/// Whether faults can affect this method.
fn can_fail(method: Call) -> bool {
    !matches!(method, Call::BlockedBy | Call::Deliver)
}

impl WorldWrapper for FaultyWorld {
    fn inner(&self) -> &dyn World {
        &*self.inner
    }

    async fn call<T: Send>(
        &self,
        method: Call,
        call: impl Future<Output = Result<T, WorldError>> + Send,
    ) -> Result<T, WorldError> {
        if can_fail(method) { self.faults.call(method, 1, call).await } else { call.await }
    }

    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        self.faults.call_each(Call::Start, starts.len(), self.inner.start(starts)).await
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        if self.faults.is_unreadable(run) {
            return Err(WorldError::corrupt(format!("event 0 of run {run} makes no sense")));
        }
        self.call(Call::Ended, self.inner.ended(run, until)).await
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        if self.faults.is_unreadable(run) {
            return Err(WorldError::corrupt(format!("event 0 of run {run} makes no sense")));
        }
        self.call(Call::History, self.inner.history(run, from, limit)).await
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        self.faults.call(Call::Histories, runs.len(), self.inner.histories(runs)).await
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        self.faults.call_each(Call::Send, messages.len(), self.inner.send(messages)).await
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        self.faults.call(Call::Beat, details.len(), self.inner.beat(session, report, details)).await
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        match self.faults.next(Call::Claim, request.limit, &[]) {
            None => self.inner.claim(session, request).await.map(|work| self.faults.hide_unreadable(work)),
            Some(Fault::Refuse | Fault::AnswerEach { .. }) => Err(unavailable()),
            Some(Fault::Fail(error)) => Err(error),
            Some(Fault::Before(first)) => {
                first.await;
                self.inner.claim(session, request).await
            }
            Some(Fault::LoseAnswer | Fault::LoseAnswersFrom(_)) => {
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
            let answers = faults.commit_accepted(&*inner, session, &on_the_wire).await;
            let is_fenced = |answer: &&Result<_, _>| matches!(answer, Err(WorldError::Fenced(_)));
            faults.state.lock().fenced += answers.iter().flatten().filter(is_fenced).count();
            answers
        };
        match self.faults.next(Call::Commit, turns.len(), turns) {
            Some(Fault::Before(first)) => {
                // A call that was sent arrives even if its caller was dropped.
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

    fn clock(&self) -> Arc<dyn Clock> {
        let clock = self.inner.clock();
        if clock.is_virtual() { self.faults.clock.clone() } else { clock }
    }
}
