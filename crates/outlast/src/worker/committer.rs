//! Group commit: turns that arrive while commits are in progress form the next batch.
//!
//! There is no committer task and no timer. A run's task that finds fewer commits in progress than the world supports
//! becomes a *leader*: it commits its turn at once, together with all waiting turns. The other tasks wait for the
//! answer. So an idle worker needs two thread hops for a commit, and a busy one commits large batches.
//!
//! `queue.rs` chooses the turns of a batch; `blocked.rs` retries turns that other transactions block; `uncommitted.rs` has
//! the turns that are tried again.

mod queue;

mod blocked;

mod uncommitted;

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use outlast_core::{Backoff, Committed, RunId, SessionId, Turn, World, WorldError};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::blocked::{SeparateGroup, SeparateRetry, written_runs};
use self::queue::{Batch, CommitQueue, LARGE_BATCH, contended_run};
use self::uncommitted::UncommittedTurns;
use super::outage::{Call, Outage};
use super::settings::Settings;
use crate::clock::{monotonic, pause_before_retry};

/// The result of the commit of one turn.
type CommitAnswer = Result<Committed, WorldError>;

/// The maximum number of batches that one task commits in a row, if the world responds without waiting.
const INSTANT_BATCHES_MAX: usize = 16;

/// The pauses between two tries.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));

/// The number of pauses after which turns that the world refuses leave their batch: some tens of milliseconds.
const BATCH_PAUSES_MAX: u32 = 3;

/// The number of pauses outside of the batch after which a start is given up: about a tenth of a second.
const START_PAUSES_MAX: u32 = 5;

/// Commits the turns of all runs of a session.
#[derive(Debug)]
pub(super) struct Committer {
    world: Arc<dyn World>,
    session: SessionId,
    runtime: Handle,
    settings: Arc<Settings>,
    /// The maximum number of concurrent commits.
    commit_concurrency: usize,
    queue: Mutex<CommitQueue>,
    /// The session is lost: nothing is tried again.
    lost: CancellationToken,
    pub(super) uncommitted: UncommittedTurns,
}

/// The result of one turn of a batch.
#[derive(Debug)]
enum TurnResult {
    Answered(CommitAnswer),
    /// Another transaction has locked a row that the turn changes.
    Blocked(Box<Turn>),
    /// The world refuses the turn for a temporary reason.
    Refused(Box<Turn>),
}

/// A turn that waits for its commit, or is being committed.
pub(super) struct PendingCommit {
    /// Present if the task that awaits the answer commits the waiting turns.
    leader: Option<Leader>,
    answer: oneshot::Receiver<CommitAnswer>,
}

impl PendingCommit {
    /// Lets another task commit the waiting turns, if this one would. For a task that also polls code of the user: while
    /// that blocks its thread, the turns of all other runs would wait for their answers.
    pub(super) fn lead_elsewhere(&mut self) {
        if let Some(leader) = self.leader.take() {
            let runtime = leader.0.runtime.clone();
            runtime.spawn(leader.lead());
        }
    }

    /// Waits for the answer.
    pub(super) async fn answer(&mut self) -> CommitAnswer {
        if let Some(leader) = self.leader.take() {
            Box::pin(leader.lead()).await;
        }
        (&mut self.answer).await.unwrap_or_else(|_| Err(WorldError::Fenced("the worker stopped".into())))
    }
}

/// A batch is in progress until this is dropped.
struct BatchGuard<'a>(&'a Committer, u64);

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().batch_ended(self.1);
    }
}

impl Committer {
    pub(super) fn new(
        world: Arc<dyn World>,
        session: SessionId,
        runtime: Handle,
        settings: Arc<Settings>,
        lost: CancellationToken,
    ) -> Self {
        let commit_concurrency = world.describe().commit_concurrency;
        let (queue, uncommitted) = (Mutex::default(), UncommittedTurns::default());
        Self { world, session, runtime, settings, commit_concurrency, queue, lost, uncommitted }
    }

    /// Commits a turn. While the world is not available, the call is repeated with the same turn id. Only a start is
    /// given up after some tries: its caller decides what to do, and must not wait until a full disk has space again.
    ///
    /// The turn is queued at once, and not when the future is polled, so that no run's task keeps a copy of it.
    pub(super) fn commit(self: &Arc<Self>, turn: Turn) -> impl Future<Output = CommitAnswer> + Send + use<> {
        let mut pending = self.submit(turn);
        async move { pending.answer().await }
    }

    /// As [`commit`](Self::commit), but the answer is awaited with [`PendingCommit::answer`]: at once, because it may be
    /// the caller that commits the waiting turns.
    pub(super) fn submit(self: &Arc<Self>, turn: Turn) -> PendingCommit {
        let (answer, wait) = oneshot::channel();
        let is_leader = {
            let mut queue = self.queue.lock();
            queue.put(turn, answer);
            let is_leader = queue.leaders < self.commit_concurrency && queue.has_batch();
            queue.leaders += usize::from(is_leader);
            is_leader
        };
        PendingCommit { leader: is_leader.then(|| Leader(self.clone())), answer: wait }
    }

    /// Commits the turns of a batch. Returns a final result for each turn, or that it leaves the batch.
    async fn commit_batch(&self, mut turns: Vec<Turn>) -> Vec<TurnResult> {
        let began = monotonic();
        let (results, answered_at) = self.commit_once(&turns, began).await;
        if results.len() == turns.len() && results.iter().all(is_final) {
            self.settings.outage.answered_at(Call::Commit, answered_at);
            turns.clear();
            if turns.capacity() >= LARGE_BATCH {
                self.queue.lock().keep_memory(turns);
            }
            return results.into_iter().map(TurnResult::Answered).collect();
        }
        // Boxed because it is rare and large, and would enlarge the state of every commit.
        Box::pin(self.repeat_until_answered(turns, results, began)).await
    }

    /// Calls the world once, at the time `began`. Returns a result for each turn, and when the world responded.
    async fn commit_once(&self, turns: &[Turn], began: Duration) -> (Vec<CommitAnswer>, Duration) {
        let results = match self.world.commit(self.session, turns).await {
            Ok(results) => results,
            Err(error) => vec![Err(error); turns.len()],
        };
        self.stop_if_gone(&results);
        let meter = &self.settings.meter;
        let answered_at = monotonic();
        let took = answered_at.saturating_sub(began);
        let committed = results.iter().filter(|result| result.is_ok()).count() as u64;
        meter.committed(turns.len(), took);
        meter.turns.add(committed);
        let metrics = &self.settings.metrics;
        metrics.commit_time.time(took);
        metrics.commit_turns.count(turns.len() as u64);
        metrics.turns.add(committed);
        (results, answered_at)
    }

    /// Stops the worker if the storage of its world is gone.
    fn stop_if_gone(&self, results: &[CommitAnswer]) {
        let gone = results.iter().find_map(|result| result.as_ref().err().filter(|error| is_gone(error)));
        if let Some(error) = gone {
            self.settings.world_gone.record(error);
            self.lost.cancel();
        }
    }

    /// Repeats the commit of turns whose result is a temporary error, until every turn has a final result or leaves the
    /// batch. `results` are those of the first call, which began at `began`.
    ///
    /// A turn leaves the batch if it is blocked, if the world refuses it and accepts others, or if the world refuses it
    /// for some time: otherwise the turns of all other runs would wait for it.
    async fn repeat_until_answered(
        &self,
        turns: Vec<Turn>,
        mut results: Vec<CommitAnswer>,
        began: Duration,
    ) -> Vec<TurnResult> {
        let mut answers: Vec<Option<TurnResult>> = turns.iter().map(|_| None).collect();
        // The turns that are not answered, and their indexes in `answers`.
        let mut left = turns;
        let mut indexes: Vec<usize> = (0..left.len()).collect();
        let mut backoff = BACKOFF;
        loop {
            self.record_refusals(&left, &results, began);
            let leaves_batch = backoff.pauses() >= BATCH_PAUSES_MAX || results.iter().any(is_final);
            let (mut again, mut again_indexes) = (Vec::new(), Vec::new());
            for ((turn, index), result) in left.into_iter().zip(indexes).zip(results) {
                match result {
                    Err(WorldError::Blocked(_)) => answers[index] = Some(TurnResult::Blocked(Box::new(turn))),
                    result if is_final(&result) => answers[index] = Some(TurnResult::Answered(result)),
                    _ if leaves_batch => answers[index] = Some(TurnResult::Refused(Box::new(turn))),
                    _ => {
                        again.push(turn);
                        again_indexes.push(index);
                    }
                }
            }
            if again.is_empty() {
                let error = || WorldError::Corrupt("the world returned too few results".into());
                let missing = || TurnResult::Answered(Err(error()));
                return answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect();
            }
            (left, indexes) = (again, again_indexes);
            pause_before_retry(&mut backoff).await;
            (results, _) = self.commit_once(&left, monotonic()).await;
        }
    }

    /// Records and logs which turns the world refuses for a temporary reason. `began` is the time of the first try.
    ///
    /// That is an outage if several runs are affected, and no commit has succeeded since. Otherwise it is a problem of
    /// these runs: one run that the world refuses must not look like a world that comes and goes.
    fn record_refusals(&self, turns: &[Turn], results: &[CommitAnswer], began: Duration) {
        let Settings { outage, run_logs, .. } = &*self.settings;
        let (mut refused, mut last_error, mut is_any_answered) = (Vec::new(), None, false);
        for (turn, result) in turns.iter().zip(results) {
            match result {
                Err(WorldError::Blocked(_)) => {}
                Err(error) if error.is_transient() => {
                    self.uncommitted.refused(turn.run, error);
                    refused.push(turn.run);
                    last_error = Some(error);
                }
                result => {
                    self.uncommitted.answered(turn.run, result.is_ok());
                    is_any_answered = true;
                }
            }
        }
        let Some(error) = last_error else { return outage.answered(Call::Commit) };
        if is_any_answered {
            outage.answered(Call::Commit);
        }
        if self.uncommitted.count() > 1 && !outage.was_answered_since(Call::Commit, began) {
            outage.failed(Call::Commit, error);
        } else {
            refused.into_iter().for_each(|run| self.uncommitted.log(run, run_logs));
        }
    }
}

fn is_gone(error: &WorldError) -> bool {
    matches!(error, WorldError::Gone(_))
}

/// Whether the result is not a temporary error.
fn is_final(result: &CommitAnswer) -> bool {
    result.as_ref().err().is_none_or(|error| !error.is_transient())
}

/// The right and duty to commit the waiting turns. If its task ends early, another task continues.
struct Leader(Arc<Committer>);

impl Leader {
    /// Commits the waiting turns. If the world responds without waiting, this task also commits the turns that have
    /// arrived since: spawning another task would take longer.
    async fn lead(self) {
        for _ in 0..INSTANT_BATCHES_MAX {
            if !self.lead_once().await {
                return;
            }
        }
    }

    /// Commits one batch. Returns whether there was one and the world responded without waiting.
    async fn lead_once(&self) -> bool {
        let taken = self.0.queue.lock().take(self.0.commit_concurrency);
        let Some(Batch { number, turns, answers }) = taken else { return false };
        let batch = BatchGuard(&self.0, number);
        // With one commit at a time a world reports no blocked turns.
        let contended: Vec<RunId> = if self.0.commit_concurrency > 1 {
            turns.iter().map(contended_run).collect()
        } else {
            Vec::new()
        };
        let mut commit = pin!(self.0.commit_batch(turns));
        let (results, is_instant) = match futures_util::poll!(commit.as_mut()) {
            Poll::Ready(results) => (results, true),
            Poll::Pending => (commit.await, false),
        };
        let written = written_runs(&contended, &results);
        let (mut blocked, mut refused) = (Vec::new(), Vec::new());
        for (answer, result) in answers.into_iter().zip(results) {
            match result {
                // The receiver may be gone; the turn is committed anyway.
                TurnResult::Answered(result) => drop(answer.send(result)),
                TurnResult::Blocked(turn) => blocked.push((*turn, answer)),
                TurnResult::Refused(turn) => refused.push((*turn, answer)),
            }
        }
        for group in SeparateGroup::by_run(blocked, &written) {
            // Before the batch ends: otherwise another leader could take turns that contend for the same run.
            let separate_retry = group.is_run_locked.then(|| SeparateRetry::begin(self.0.clone(), group.run));
            self.0.runtime.spawn(self.0.clone().commit_separately(group, separate_retry));
        }
        if let Some(group) = SeparateGroup::of_refused(refused) {
            self.0.runtime.spawn(self.0.clone().commit_separately(group, None));
        }
        drop(batch);
        is_instant
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        if !queue.has_batch() {
            // Turns that wait for a batch in progress are committed by the leader of that batch.
            queue.leaders -= 1;
            return;
        }
        drop(queue);
        // The next leader is created inside of the task: a runtime that shuts down drops a new task at once, and a
        // leader in it would spawn another task, endlessly.
        let committer = self.0.clone();
        self.0.runtime.spawn(async move { Leader(committer).lead().await });
    }
}

/// Repeats a reading call while the world is not available: an outage pauses the work.
pub(super) async fn retry_while_unavailable<T, F>(
    outage: &Outage,
    mut call: impl FnMut() -> F,
) -> Result<T, WorldError>
where
    F: Future<Output = Result<T, WorldError>>,
{
    let mut backoff = BACKOFF;
    loop {
        match call().await {
            Err(error) if error.is_transient() => {
                outage.failed(Call::Read, &error);
                pause_before_retry(&mut backoff).await;
            }
            result => {
                if backoff.pauses() > 0 {
                    outage.answered(Call::Read);
                }
                return result;
            }
        }
    }
}
