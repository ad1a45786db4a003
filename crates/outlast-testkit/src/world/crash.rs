//! Crashes of the worker of a test world, at chosen points.
//!
//! The worker uses the world through a [`CrashingWorld`]. At a planned point that world stops answering the worker's
//! session, as if the process was gone, and asks the test world for a replacement. The replacement ends the session of
//! the crashed worker, whose runs are then ready again. No virtual time passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast::StepHandle;
use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ClaimRequest, Clock, Committed, Event, HeartbeatDetails, OpNumber, Report, RunId, SessionId,
    Turn, Work, World, WorldError, WorldWrapper,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The number of events that the description of a commit shows.
const EVENTS_SHOWN_MAX: usize = 8;

/// A point at which [`TestWorld::crash_worker`](crate::TestWorld::crash_worker) crashes the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashPoint {
    place: Place,
    /// How often the point is passed before the crash.
    skip: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    BeforeCommit,
    AfterCommit,
    /// The durable names of the step.
    AfterEffect(Vec<&'static str>),
}

impl CrashPoint {
    /// Just before a commit: nothing of the turn is written. Its decisions are made again, and outcomes of attempts
    /// that it contains are lost, so these attempts are repeated.
    pub fn before_commit() -> Self {
        Self { place: Place::BeforeCommit, skip: 0 }
    }

    /// Just after a commit: the whole turn is written, and the worker has not started anything that follows from it.
    pub fn after_commit() -> Self {
        Self { place: Place::AfterCommit, skip: 0 }
    }

    /// After an attempt at this step has ended, before its outcome is recorded. The effect has happened and nobody
    /// knows: the step is attempted again, with the same key.
    pub fn after_effect_of<H: StepHandle<M>, M>(step: H) -> Self {
        let names = std::iter::once(step.name()).chain(step.was().iter().copied()).collect();
        Self { place: Place::AfterEffect(names), skip: 0 }
    }

    /// The same point when it is reached for the `n`-th time, counted from 1 and from the call of `crash_worker`.
    ///
    /// # Panics
    ///
    /// If `n` is 0.
    #[must_use]
    #[track_caller]
    pub fn nth(self, n: usize) -> Self {
        assert!(n > 0, "points are counted from 1");
        Self { skip: n - 1, ..self }
    }
}

/// The planned crashes of the workers of one test world.
#[derive(Debug)]
pub(super) struct Crashes {
    clock: Arc<dyn Clock>,
    state: Mutex<CrashState>,
    requests: Sender<Busy>,
}

#[derive(Debug, Default)]
struct CrashState {
    planned: Vec<CrashPoint>,
    /// The session of the worker that has crashed and is not replaced yet.
    crashed: Option<SessionId>,
    count: usize,
    /// The events of the commit at which the last crash happened.
    commit: Option<String>,
    /// The steps that are announced, by run and operation.
    steps: BTreeMap<(RunId, OpNumber), Arc<str>>,
}

impl Crashes {
    /// Without planned crashes. The receiver gets a request for each worker that must be replaced; the clock is busy
    /// until the request is dropped.
    pub(super) fn new(clock: Arc<dyn Clock>) -> (Arc<Self>, Receiver<Busy>) {
        // There is at most one crashed worker that is not replaced.
        let (requests, received) = channel(1);
        (Arc::new(Self { clock, state: Mutex::default(), requests }), received)
    }

    pub(super) fn plan(&self, point: CrashPoint) {
        self.state.lock().planned.push(point);
    }

    pub(super) fn count(&self) -> usize {
        self.state.lock().count
    }

    /// The number of crashes that were planned and have not happened.
    pub(super) fn planned(&self) -> usize {
        self.state.lock().planned.len()
    }

    /// The events of the commit at which the last crash happened, if it happened at a commit.
    pub(super) fn crashed_commit(&self) -> Option<String> {
        self.state.lock().commit.clone()
    }

    /// Crashes the worker with this session now.
    pub(super) fn crash(&self, session: SessionId) {
        let mut state = self.state.lock();
        if state.crashed.replace(session).is_none() {
            state.count += 1;
            // If the test world is gone, so is the worker.
            let _ = self.requests.try_send(self.clock.busy());
        }
    }

    /// The crashed worker is replaced.
    pub(super) fn replaced(&self) {
        self.state.lock().crashed = None;
    }

    /// The point that a commit of these turns reaches, if a crash is planned there.
    fn take_reached(&self, turns: &[Turn]) -> Option<Place> {
        let mut state = self.state.lock();
        let CrashState { planned, steps, .. } = &mut *state;
        let is_reached = |place: &Place| match place {
            Place::BeforeCommit | Place::AfterCommit => true,
            Place::AfterEffect(names) => has_outcome_of(turns, names, steps),
        };
        let mut reached = None;
        for (index, point) in planned.iter_mut().enumerate().filter(|(_, point)| is_reached(&point.place)) {
            match point.skip.checked_sub(1) {
                Some(left) => point.skip = left,
                None => reached = reached.or(Some(index)),
            }
        }
        let place = planned.remove(reached?).place;
        state.commit = Some(describe(turns));
        Some(place)
    }

    /// Remembers the names of the steps that these turns announce.
    fn committed(&self, turns: &[Turn]) {
        let mut state = self.state.lock();
        for turn in turns {
            for event in &turn.events {
                match event {
                    Event::StepStarted { op, name, .. } => {
                        state.steps.insert((turn.run, *op), name.clone());
                    }
                    // A compensation gets the name of its step with its registration.
                    Event::CompensationRegistered(registered) => {
                        state.steps.insert((turn.run, registered.op), registered.step.clone());
                    }
                    Event::CompensationStarted { op, of, .. } => {
                        if let Some(name) = state.steps.get(&(turn.run, *of)).cloned() {
                            state.steps.insert((turn.run, *op), name);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Completes at once if the worker of this session is alive, otherwise never.
    async fn if_alive(&self, session: SessionId) {
        if self.state.lock().crashed == Some(session) {
            std::future::pending::<()>().await;
        }
    }
}

/// The events of a commit, as text.
fn describe(turns: &[Turn]) -> String {
    let mut events = turns.iter().flat_map(|turn| &turn.events);
    let shown = events.by_ref().take(EVENTS_SHOWN_MAX).map(|event| match event.op() {
        Some(op) => format!("{} {op}", event.kind()),
        None => event.kind().to_owned(),
    });
    let mut shown: Vec<_> = shown.collect();
    match events.count() {
        0 if shown.is_empty() => return "without events".to_owned(),
        0 => {}
        more => shown.push(format!("{more} more")),
    }
    shown.join(", ")
}

/// Whether one of the turns records the end of an attempt at the step.
fn has_outcome_of(
    turns: &[Turn],
    names: &[&'static str],
    steps: &BTreeMap<(RunId, OpNumber), Arc<str>>,
) -> bool {
    let is_outcome = |run: RunId, event: &Event| match event {
        Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } | Event::StepRetried { op, .. } => {
            steps.get(&(run, *op)).is_some_and(|name| names.contains(&&**name))
        }
        _ => false,
    };
    turns.iter().any(|turn| turn.events.iter().any(|event| is_outcome(turn.run, event)))
}

/// A world that crashes the worker that uses it.
#[derive(Debug)]
pub(super) struct CrashingWorld {
    pub(super) inner: Arc<dyn World>,
    pub(super) crashes: Arc<Crashes>,
}

impl WorldWrapper for CrashingWorld {
    fn inner(&self) -> &dyn World {
        &*self.inner
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        self.crashes.if_alive(session).await;
        let reached = self.crashes.take_reached(turns);
        if matches!(reached, Some(Place::BeforeCommit | Place::AfterEffect(_))) {
            self.crashes.crash(session);
            self.crashes.if_alive(session).await;
        }
        let answers = self.inner.commit(session, turns).await;
        self.crashes.committed(turns);
        if reached.is_some() {
            self.crashes.crash(session);
            self.crashes.if_alive(session).await;
        }
        answers
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        self.crashes.if_alive(session).await;
        self.inner.claim(session, request).await
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        self.crashes.if_alive(session).await;
        self.inner.leave(session).await
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        self.crashes.if_alive(session).await;
        self.inner.beat(session, report, details).await
    }
}
