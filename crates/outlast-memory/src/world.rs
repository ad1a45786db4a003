//! [`MemoryWorld`]: one lock around the state, a change signal for workers, and the callers that wait for ends.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
#[cfg(feature = "test-support")]
use outlast_core::limits::HOOK_BUFFER_MAX;
use outlast_core::record::{check_record_batch, check_records};
use outlast_core::refusal::{check_histories, check_runs_by_id, check_starts};
use outlast_core::stream::check_writes;
use outlast_core::time::event_or_time;
use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ChangeSignal, ClaimRequest, Clock, Committed, Counts, Delivered, Description, Effects, Ended,
    FailureQuery, FlagCounts, Fork, HeartbeatDetails, HeldRun, Join, MarkCounts, Marks, Message, MessageId,
    NewMessage, NewRecord, Page, Pruned, QuarantineChange, QueueView, RecordQuery, Reopen, Report, RunId,
    RunQuery, RunView, RunWatch, RunWatchers, Sent, SessionId, Start, Started, StateView, StoredRecord,
    StoredReply, StreamPage, StreamView, StreamWrite, StreamWritten, Timestamp, TokenHash, TokenView, Turn,
    TurnRecord, Waiters, Work, WorkerView, World, WorldError, complete_counts,
};
use parking_lot::Mutex;

use crate::state::{Notifications, State};

/// A world in the memory of this process. Its runs are lost when the process ends.
#[derive(Debug)]
pub struct MemoryWorld {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    change_signal: ChangeSignal,
    waiters: Arc<Waiters>,
    watchers: Arc<RunWatchers>,
}

impl MemoryWorld {
    /// A world without runs, with this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            change_signal: ChangeSignal::new(clock.clone()),
            watchers: Arc::new(RunWatchers::new(clock.clone())),
            clock,
            state: Mutex::default(),
            waiters: Arc::default(),
        }
    }

    /// Queues the effects of turns on other runs, in order per run, until [`World::deliver`] applies them. Tests use it
    /// to prove that nothing depends on immediate effects.
    #[cfg(feature = "test-support")]
    #[must_use]
    pub fn with_deferred_effects(self) -> Self {
        self.state.lock().outboxes.are_deferred = true;
        self
    }

    /// Replaces the limit [`HOOK_BUFFER_MAX`] for payloads of a run that no hook has taken by a lower one. For tests: a
    /// test that reaches the usual limit is slow.
    ///
    /// # Panics
    ///
    /// If `limit` is larger than [`HOOK_BUFFER_MAX`].
    #[cfg(feature = "test-support")]
    pub fn limit_hook_payloads(&self, limit: usize) {
        assert!(limit <= HOOK_BUFFER_MAX, "the limit cannot be raised");
        self.state.lock().hook_limit_reduction = (HOOK_BUFFER_MAX - limit) as u64;
    }

    /// Simulates that the process of the session's worker was killed: the next takeover releases its runs. For tests;
    /// this world has no other notion of processes.
    #[cfg(feature = "test-support")]
    pub fn kill(&self, session: SessionId) {
        self.state.lock().kill(session);
    }

    /// Changes the state, then notifies workers and waiters.
    fn change<T>(&self, change: impl FnOnce(&mut State, Timestamp, &mut Notifications) -> T) -> T {
        let mut notifications = Notifications::default();
        let answer = {
            let mut state = self.state.lock();
            // Read the clock under the lock, so that a later change does not get an earlier time.
            change(&mut state, self.clock.now(), &mut notifications)
        };
        let changed = notifications.ended.iter().map(|ended| ended.run).chain(notifications.written);
        changed.for_each(|run| self.watchers.notify(run));
        for ended in notifications.ended {
            self.waiters.tell(ended.run, || Some(ended));
        }
        if notifications.wakes_workers {
            self.change_signal.notify();
        }
        answer
    }
}

#[async_trait]
impl World for MemoryWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        check_starts(starts.len())?;
        Ok(self.change(|state, now, notifications| {
            starts.into_iter().map(|start| state.start(start, now, notifications)).collect()
        }))
    }

    async fn start_and_send(&self, start: Start, message: NewMessage) -> Result<(Started, Sent), WorldError> {
        self.change(|state, now, notifications| state.start_and_send(start, message, now, notifications))
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        self.state.lock().view(run)
    }

    async fn runs_by_id(&self, runs: &[RunId]) -> Result<Vec<RunView>, WorldError> {
        check_runs_by_id(runs.len())?;
        let state = self.state.lock();
        Ok(runs.iter().filter_map(|run| state.view(*run).ok()).collect())
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        Ok(self.state.lock().page(&query))
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        Ok(complete_counts(self.state.lock().counts.clone()))
    }

    async fn mark_counts(&self) -> Result<MarkCounts, WorldError> {
        Ok(self.state.lock().mark_counts())
    }

    async fn flag_counts(&self) -> Result<FlagCounts, WorldError> {
        Ok(self.state.lock().flag_counts())
    }

    async fn failures(&self, query: FailureQuery) -> Result<Vec<RunView>, WorldError> {
        Ok(self.state.lock().failures(&query))
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        let end = {
            let state = self.state.lock();
            if let Some(ended) = state.ended(run)? {
                return Ok(Some(ended));
            }
            // Register before the lock is released, so that no end is missed.
            self.waiters.wait(run)
        };
        Ok(event_or_time(end, self.clock.sleep_until(until)).await.ok())
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        self.state.lock().history(run, from, limit)
    }

    async fn event_count(&self, run: RunId) -> Result<u64, WorldError> {
        Ok(self.state.lock().get(run)?.seq)
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        check_histories(runs.len())?;
        let state = self.state.lock();
        Ok(runs.iter().map(|run| state.replayed_history(*run)).collect())
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        Ok(self.change(|state, now, notifications| {
            messages.into_iter().map(|message| state.send_by_client(message, now, notifications)).collect()
        }))
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        Ok(self.state.lock().get(run)?.inbox_after(after))
    }

    async fn reply(&self, run: RunId, message: MessageId) -> Result<Option<StoredReply>, WorldError> {
        let state = self.state.lock();
        state.get(run)?;
        Ok(state.replies.get(&(run, message)).cloned())
    }

    async fn token(&self, hash: TokenHash) -> Result<Option<TokenView>, WorldError> {
        Ok(self.state.lock().token(hash, self.clock.now()))
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
        self.change(|state, now, notifications| state.leave(session, now, notifications));
        Ok(())
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        self.change(|state, now, notifications| state.takeover(session, now, notifications))
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        self.change(|state, now, _| {
            // Read the epoch before the search, so that a change that the search may miss has a later epoch.
            let epoch = self.change_signal.epoch();
            state.claim(session, &request, now, epoch)
        })
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        self.change(|state, now, notifications| state.commit(session, turns, now, notifications))
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        Ok(self.state.lock().workers())
    }

    async fn queues(&self) -> Result<Vec<QueueView>, WorldError> {
        Ok(self.state.lock().queues(self.clock.now()))
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        self.change(|state, now, notifications| state.resume(run, now, notifications))
    }

    async fn reopen(&self, reopen: Reopen) -> Result<Sent, WorldError> {
        self.change(|state, now, notifications| state.reopen(reopen, now, notifications))
    }

    async fn fork(&self, fork: Fork) -> Result<Started, WorldError> {
        self.change(|state, now, notifications| state.fork(fork, now, notifications))
    }

    async fn write_chunks(&self, session: SessionId, writes: Vec<StreamWrite>) -> Answers<StreamWritten> {
        check_writes(&writes)?;
        self.change(|state, now, notifications| {
            state.check_session(session)?;
            let write = |write: &StreamWrite| state.write_chunks(session, write, now, notifications);
            Ok(writes.iter().map(write).collect())
        })
    }

    async fn chunks(
        &self,
        run: RunId,
        stream: &str,
        from: i64,
        limit: usize,
    ) -> Result<StreamPage, WorldError> {
        self.state.lock().chunks(run, stream, from, limit)
    }

    async fn streams(&self, run: RunId) -> Result<Vec<StreamView>, WorldError> {
        self.state.lock().streams(run)
    }

    async fn published(&self, run: RunId) -> Result<StateView, WorldError> {
        self.state.lock().published(run)
    }

    fn watch(&self, run: RunId) -> RunWatch {
        self.watchers.watch(run)
    }

    async fn put_records(&self, space: &str, records: Vec<NewRecord>) -> Result<(), WorldError> {
        check_records(space, &records)?;
        self.change(|state, now, _| state.records.put(space, records, now))
    }

    async fn put_record_if_absent(&self, space: &str, record: NewRecord) -> Result<bool, WorldError> {
        check_records(space, std::slice::from_ref(&record))?;
        self.change(|state, now, _| state.records.put_if_absent(space, record, now))
    }

    async fn record(&self, space: &str, id: &str) -> Result<Option<StoredRecord>, WorldError> {
        Ok(self.state.lock().records.get(space, id))
    }

    async fn records(&self, query: RecordQuery) -> Result<Vec<StoredRecord>, WorldError> {
        Ok(self.state.lock().records.page(&query))
    }

    async fn delete_records(&self, space: &str, ids: &[String]) -> Result<u64, WorldError> {
        check_record_batch(ids.len())?;
        Ok(self.state.lock().records.delete(space, ids))
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        match event_or_time(self.change_signal.changed_since(epoch), self.clock.sleep_until(until)).await {
            Ok(busy) | Err(busy) => busy,
        }
    }

    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        self.change(|state, now, notifications| {
            state.check_session(session)?;
            Ok(state.deliver(now, notifications))
        })
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        Ok(self.state.lock().prune(before, after, limit, self.clock.now()))
    }

    async fn delete_turns(&self, run: RunId, range: Range<u64>, kept: &[u64]) -> Result<(), WorldError> {
        self.state.lock().delete_turns(run, &range, kept);
        Ok(())
    }

    async fn quarantine(&self, run: RunId, change: QuarantineChange) -> Result<Marks, WorldError> {
        self.state.lock().quarantine(run, change)
    }

    async fn delete(&self, run: RunId) -> Result<(), WorldError> {
        self.state.lock().delete(run)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn describe(&self) -> Description {
        let mut description = Description::new("memory", "this process");
        description.durability = "none: all runs are lost when this process ends".into();
        description.hints = "there are no other processes".into();
        if self.state.lock().outboxes.are_deferred {
            description.effects = Effects::Deferred;
        }
        description
    }
}
