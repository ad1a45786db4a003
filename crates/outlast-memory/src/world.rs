//! The world: one lock around the state, a change signal for workers, a list of those who wait for ends.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use outlast_core::limits::HOOK_BUFFER_MAX;
use outlast_core::refusal::{check_histories, check_starts};
use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ChangeSignal, ClaimRequest, Clock, Committed, Counts, Delivered, Description, Ended,
    HeartbeatDetails, HeldRun, Join, Message, NewMessage, Page, Pruned, Report, RunId, RunQuery, RunView,
    Sent, SessionId, Start, Started, Timestamp, Turn, TurnRecord, Waiters, Work, WorkerView, World,
    WorldError,
};
use parking_lot::Mutex;

use crate::state::{Effects, State};

/// A world inside this process. It ends with it.
#[derive(Debug)]
pub struct MemoryWorld {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    change_signal: ChangeSignal,
    waiters: Arc<Waiters>,
}

impl MemoryWorld {
    /// A world without runs, on this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            change_signal: ChangeSignal::new(clock.clone()),
            clock,
            state: Mutex::default(),
            waiters: Arc::default(),
        }
    }

    /// The same world, but what turns do to other runs is queued, in order per run, and done by
    /// [`World::deliver`]. Tests run on it to prove that nothing depends on such effects being immediate.
    #[must_use]
    pub fn with_deferred_effects(self) -> Self {
        self.state.lock().outboxes.are_deferred = true;
        self
    }

    /// Refuses payloads for hooks when a run has so many that nobody has taken, instead of
    /// [`HOOK_BUFFER_MAX`]. A test aid: with the usual limit a test that reaches it is slow.
    ///
    /// # Panics
    ///
    /// When `limit` is larger than [`HOOK_BUFFER_MAX`].
    pub fn limit_hook_payloads(&self, limit: usize) {
        assert!(limit <= HOOK_BUFFER_MAX, "the limit cannot be raised");
        self.state.lock().hook_room_withheld = (HOOK_BUFFER_MAX - limit) as u64;
    }

    /// Makes the session's worker look gone, as if its process had been killed: the next takeover
    /// takes its runs. A test aid; nothing else in this world knows of processes.
    pub fn kill(&self, session: SessionId) {
        self.state.lock().kill(session);
    }

    /// Changes the state, then tells those whom it concerns.
    fn change<T>(&self, change: impl FnOnce(&mut State, Timestamp, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let answer = {
            let mut state = self.state.lock();
            // The clock is read under the lock, so that what is written later has a later time.
            change(&mut state, self.clock.now(), &mut effects)
        };
        for ended in effects.ended {
            self.waiters.tell(ended.run, || Some(ended));
        }
        if effects.ring {
            self.change_signal.notify();
        }
        answer
    }
}

#[async_trait]
impl World for MemoryWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        check_starts(starts.len())?;
        Ok(self.change(|state, now, effects| {
            starts.into_iter().map(|start| state.start(start, now, effects)).collect()
        }))
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        self.state.lock().view(run)
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        Ok(self.state.lock().page(&query))
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        Ok(self.state.lock().counts.clone())
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        let end = {
            let state = self.state.lock();
            if let Some(ended) = state.ended(run)? {
                return Ok(Some(ended));
            }
            // Registered before the lock is let go, so that no end slips through.
            self.waiters.wait(run)
        };
        Ok(first(end, self.clock.sleep_until(until)).await.ok())
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        self.state.lock().history(run, from, limit)
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        check_histories(runs.len())?;
        let state = self.state.lock();
        Ok(runs.iter().map(|run| state.whole_history(*run)).collect())
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        Ok(self.change(|state, now, effects| {
            messages.into_iter().map(|message| state.send_by_client(message, now, effects)).collect()
        }))
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        Ok(self.state.lock().get(run)?.inbox_after(after))
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        self.change(|state, now, _| state.join(join, now))
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        self.change(|state, now, _| state.beat(session, report, details, now))
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        self.state.lock().held(session)
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        self.change(|state, now, effects| state.leave(session, now, effects));
        Ok(())
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        self.change(|state, now, effects| state.takeover(session, now, effects))
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        self.change(|state, now, _| {
            // Before anything is looked at: what rings later was perhaps not seen.
            let epoch = self.change_signal.epoch();
            state.claim(session, &request, now, epoch)
        })
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        self.change(|state, now, effects| state.commit(session, turns, now, effects))
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        Ok(self.state.lock().workers())
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        self.change(|state, now, effects| state.resume(run, now, effects))
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        match first(self.change_signal.changed_since(epoch), self.clock.sleep_until(until)).await {
            Ok(busy) | Err(busy) => busy,
        }
    }

    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        self.change(|state, now, effects| {
            state.check_session(session)?;
            Ok(state.deliver(now, effects))
        })
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        Ok(self.state.lock().prune(before, after, limit))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn describe(&self) -> Description {
        Description {
            kind: "memory",
            place: "this process".into(),
            durability: "nothing: what is acknowledged is lost when this process ends".into(),
            hints: "there are no other processes".into(),
            lanes: 1,
            effects: if self.state.lock().outboxes.are_deferred {
                outlast_core::Effects::Deferred
            } else {
                outlast_core::Effects::Inline
            },
        }
    }
}

/// What `wanted` gives, or `Err` with what `limit` gives if that completes first.
async fn first<A, B>(wanted: impl Future<Output = A>, limit: impl Future<Output = B>) -> Result<A, B> {
    let (mut wanted, mut limit) = (pin!(wanted), pin!(limit));
    poll_fn(|cx| {
        if let Poll::Ready(wanted) = wanted.as_mut().poll(cx) {
            return Poll::Ready(Ok(wanted));
        }
        limit.as_mut().poll(cx).map(Err)
    })
    .await
}
