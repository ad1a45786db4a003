//! Group commit: turns that arrive while commits are in progress form the next batch.
//!
//! There is no committer task and no timer. A run's task that finds fewer commits in progress than the world supports
//! becomes a *leader*: it commits its turn at once, together with all waiting turns. The other tasks wait for the
//! answer. So an idle worker needs two thread hops for a commit, and a busy one commits large batches.
//!
//! `queue.rs` chooses the turns of a batch; `blocked.rs` retries turns that other transactions block.

mod queue;

mod blocked;

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use outlast_core::turn::BasedOn;
use outlast_core::{Committed, RunId, SessionId, Turn, World, WorldError};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::blocked::{BlockedGroup, SeparateRetry, written_runs};
use self::queue::{Batch, CommitQueue, contended_run};
use super::metrics::Meter;
use super::outage::{Call, Outage};
use super::settings::Settings;
use crate::clock::{monotonic, pause};

/// The result of the commit of one turn.
type CommitAnswer = Result<Committed, WorldError>;

/// The maximum number of batches that one task commits in a row, if the world responds without waiting.
const INSTANT_BATCHES_MAX: usize = 16;

/// The first and the longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The pause at which a start is given up.
const START_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Commits the turns of all runs of a session.
#[derive(Debug)]
pub(super) struct Committer {
    world: Arc<dyn World>,
    session: SessionId,
    runtime: Handle,
    meter: Arc<Meter>,
    outage: Arc<Outage>,
    /// The maximum number of concurrent commits.
    commit_concurrency: usize,
    queue: Mutex<CommitQueue>,
}

/// The result of one turn of a batch.
#[derive(Debug)]
enum TurnResult {
    Answered(CommitAnswer),
    /// Another transaction has locked a row that the turn changes.
    Blocked(Box<Turn>),
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
        settings: &Settings,
    ) -> Self {
        let commit_concurrency = world.describe().commit_concurrency;
        let (meter, outage) = (settings.meter.clone(), settings.outage.clone());
        Self { world, session, runtime, meter, outage, commit_concurrency, queue: Mutex::default() }
    }

    /// Commits a turn. While the world is not available, the call is repeated with the same turn id. Only a start is
    /// given up after some tries: its caller decides what to do, and must not wait until a full disk has space again.
    ///
    /// The turn is queued at once, and not when the future is polled, so that no run's task keeps a copy of it.
    pub(super) fn commit(self: &Arc<Self>, turn: Turn) -> impl Future<Output = CommitAnswer> + Send + use<> {
        let (answer, wait) = oneshot::channel();
        let is_leader = {
            let mut queue = self.queue.lock();
            queue.put(turn, answer);
            let is_leader = queue.leaders < self.commit_concurrency && queue.has_turns();
            queue.leaders += usize::from(is_leader);
            is_leader
        };
        let leader = is_leader.then(|| Leader(self.clone()));
        async move {
            if let Some(leader) = leader {
                Box::pin(leader.lead()).await;
            }
            wait.await.unwrap_or_else(|_| Err(WorldError::Fenced("the worker stopped".into())))
        }
    }

    /// Commits the turns of a batch. Returns a final result for each turn, or that it is blocked.
    async fn commit_batch(&self, turns: Vec<Turn>) -> Vec<TurnResult> {
        let results = self.commit_once(&turns).await;
        let is_final =
            |result: &CommitAnswer| result.as_ref().err().is_none_or(|error| !error.is_transient());
        if results.len() == turns.len() && results.iter().all(is_final) {
            self.outage.answered(Call::Commit);
            return results.into_iter().map(TurnResult::Answered).collect();
        }
        // Boxed because it is rare and large, and would enlarge the state of every commit.
        Box::pin(self.repeat_until_answered(turns, results)).await
    }

    /// Calls the world once. Returns a result for each turn.
    async fn commit_once(&self, turns: &[Turn]) -> Vec<CommitAnswer> {
        let began = monotonic();
        let results = match self.world.commit(self.session, turns).await {
            Ok(results) => results,
            Err(error) => vec![Err(error); turns.len()],
        };
        self.meter.committed(turns.len(), monotonic().saturating_sub(began));
        self.meter.turns.add(results.iter().filter(|result| result.is_ok()).count() as u64);
        results
    }

    /// Repeats the commit of turns whose result is a temporary error, until every turn has a final result or is
    /// blocked. `results` are those of the first call.
    async fn repeat_until_answered(
        &self,
        turns: Vec<Turn>,
        mut results: Vec<CommitAnswer>,
    ) -> Vec<TurnResult> {
        let mut answers: Vec<Option<TurnResult>> = turns.iter().map(|_| None).collect();
        // The turns that are not answered, and their indexes in `answers`.
        let mut left = turns;
        let mut indexes: Vec<usize> = (0..left.len()).collect();
        let mut wait = PAUSE_MIN;
        loop {
            let (mut again, mut again_indexes) = (Vec::new(), Vec::new());
            let mut outage_error = None;
            for ((turn, index), result) in left.into_iter().zip(indexes).zip(results) {
                let is_blocked = matches!(result, Err(WorldError::Blocked(_)));
                let failed = result.as_ref().err().filter(|error| error.is_transient() && !is_blocked);
                outage_error = failed.cloned().or(outage_error);
                let is_given_up = wait >= START_PAUSE_MAX && matches!(turn.based_on, BasedOn::Start(_));
                match result {
                    Err(WorldError::Blocked(_)) => answers[index] = Some(TurnResult::Blocked(Box::new(turn))),
                    Err(error) if error.is_transient() && !is_given_up => {
                        again.push(turn);
                        again_indexes.push(index);
                    }
                    result => answers[index] = Some(TurnResult::Answered(result)),
                }
            }
            match outage_error {
                Some(error) => self.outage.failed(Call::Commit, &error),
                None => self.outage.answered(Call::Commit),
            }
            if again.is_empty() {
                let error = || WorldError::Corrupt("the world returned too few results".into());
                let missing = || TurnResult::Answered(Err(error()));
                return answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect();
            }
            (left, indexes) = (again, again_indexes);
            pause(wait).await;
            wait = (wait * 2).min(PAUSE_MAX);
            results = self.commit_once(&left).await;
        }
    }
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
        // Only worlds with several concurrent commits report blocked turns.
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
        let mut blocked = Vec::new();
        for (answer, result) in answers.into_iter().zip(results) {
            match result {
                // The receiver may be gone; the turn is committed anyway.
                TurnResult::Answered(result) => drop(answer.send(result)),
                TurnResult::Blocked(turn) => blocked.push((*turn, answer)),
            }
        }
        for group in BlockedGroup::by_run(blocked, &written) {
            // Before the batch ends: otherwise another leader could take turns that contend for the same run.
            let separate_retry = group.is_run_locked.then(|| SeparateRetry::begin(self.0.clone(), group.run));
            self.0.runtime.spawn(self.0.clone().commit_blocked(group, separate_retry));
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
    let mut wait = PAUSE_MIN;
    loop {
        match call().await {
            Err(error) if error.is_transient() => {
                outage.failed(Call::Read, &error);
                pause(wait).await;
                wait = (wait * 2).min(PAUSE_MAX);
            }
            result => {
                if wait > PAUSE_MIN {
                    outage.answered(Call::Read);
                }
                return result;
            }
        }
    }
}
