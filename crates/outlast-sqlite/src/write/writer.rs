//! The writer thread, and its group commit.
//!
//! The thread blocks until the first request arrives, adds all other requests that are in the queue, applies them in
//! one transaction, and answers them after the COMMIT. While the COMMIT waits for the disk, the requests of the next
//! transaction queue up. There is no timer. If SQLite refuses a transaction, each element is applied in a transaction
//! of its own, so that only the one that SQLite refuses gets the error. A request that has waited for the write lock of
//! another process for the lock timeout fails, and the requests that arrived after it keep waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outlast_core::limits::{BATCH_TURNS_MAX, STREAM_WRITE_BYTES_MAX};
use outlast_core::{Busy, ChangeSignal, Clock, RecentlyStarted, RunWatchers, Waiters, WorldError};
use rusqlite::{Connection, Error};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use crate::connection::error::{Refusal, from_sqlite, is_busy, world_closed};
use crate::connection::fair_lock::FairLock;
use crate::connection::opened_file::OpenedFile;
use crate::connection::thread::{OwnedThread, monotonic_now};
use crate::notifications::change_watcher::Changes;
use crate::notifications::hint_socket::HintSender;
use crate::read::id_clock_skew::IdClockSkew;
use crate::sessions::session_locks::SessionLocks;
use crate::write::lease_cache::LeaseCache;
use crate::write::tx::{AfterCommit, Tx};

/// The number of elements in one transaction, or their weight. With more, the first ones would wait too long.
const TRANSACTION_ELEMENTS_MAX: usize = 4 * BATCH_TURNS_MAX;

/// Bytes of chunks that weigh as much as one element: [`STREAM_WRITE_BYTES_MAX`] fill a transaction.
const CHUNK_BYTES_PER_ELEMENT: usize = STREAM_WRITE_BYTES_MAX / TRANSACTION_ELEMENTS_MAX;

/// The same while other processes wait to write.
const CONTENDED_ELEMENTS_MAX: usize = BATCH_TURNS_MAX / 2;

/// The number of requests that may wait for the thread. Further callers wait until there is room, without blocking their
/// threads.
const REQUESTS_MAX: usize = 4_096;

/// The number of times that the thread checks the queue before it blocks: some tens of microseconds.
const SPINS_BEFORE_SLEEP: usize = 200;

/// Passes requests to the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    // Declared first, so that the channel is closed before the thread is joined.
    requests: Sender<Box<dyn WriteRequest>>,
    _thread: OwnedThread,
}

/// The state of the writer thread.
pub(crate) struct WriterThread {
    pub(crate) file: Arc<OpenedFile>,
    pub(crate) connection: Connection,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) locks: Arc<SessionLocks>,
    pub(crate) change_signal: Arc<ChangeSignal>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) recently_started: Arc<RecentlyStarted>,
    pub(crate) watchers: Arc<RunWatchers>,
    pub(crate) hint_sender: Option<Arc<HintSender>>,
    pub(crate) fair_lock: FairLock,
    /// How long a request waits for the write lock.
    pub(crate) lock_timeout: Duration,
    pub(crate) lease_cache: LeaseCache,
    pub(crate) id_skew: IdClockSkew,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(writer: WriterThread) -> Result<Self, WorldError> {
        let (requests, mut received) = channel(REQUESTS_MAX);
        let thread = OwnedThread::spawn("outlast-writer", move || writer.run(&mut received))?;
        Ok(Self { requests, _thread: thread })
    }

    /// Applies each element, and returns the result of each after the commit.
    pub(crate) async fn write<E, A>(
        &self,
        elements: Vec<E>,
        apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
    ) -> Result<Vec<Result<A, WorldError>>, WorldError>
    where
        E: Send + 'static,
        A: Send + 'static,
    {
        let weight = elements.len();
        self.write_weighted(elements, weight, apply).await.map(|(answers, _)| answers)
    }

    /// As [`write`](Self::write), and returns the elements too, so that the caller can use their memory again.
    pub(crate) async fn write_returning<E, A>(
        &self,
        elements: Vec<E>,
        apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
    ) -> Result<WriteReply<E, A>, WorldError>
    where
        E: Send + 'static,
        A: Send + 'static,
    {
        let weight = elements.len();
        self.write_weighted(elements, weight, apply).await
    }

    /// As [`write`](Self::write), for elements with this many bytes of chunks: a transaction contains about
    /// [`STREAM_WRITE_BYTES_MAX`] of them.
    pub(crate) async fn write_chunks<E, A>(
        &self,
        elements: Vec<E>,
        bytes: usize,
        apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
    ) -> Result<Vec<Result<A, WorldError>>, WorldError>
    where
        E: Send + 'static,
        A: Send + 'static,
    {
        let weight = weight_of_chunks(elements.len(), bytes);
        self.write_weighted(elements, weight, apply).await.map(|(answers, _)| answers)
    }

    async fn write_weighted<E, A>(
        &self,
        elements: Vec<E>,
        weight: usize,
        apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
    ) -> Result<WriteReply<E, A>, WorldError>
    where
        E: Send + 'static,
        A: Send + 'static,
    {
        if elements.is_empty() {
            return Ok((Vec::new(), elements));
        }
        let (reply, answer) = oneshot::channel();
        let answers = elements.iter().map(|_| None).collect();
        let request = WriteBatch { elements, weight, apply, answers, reply, queued_at: monotonic_now() };
        self.requests.send(Box::new(request)).await.map_err(|_| world_closed())?;
        // The elements come back with the answers, so that the caller's thread frees their memory instead of the
        // writer.
        answer.await.map_err(|_| world_closed())
    }

    /// Applies one element, and returns its result after the commit.
    pub(crate) async fn write_one<E, A>(
        &self,
        element: E,
        apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
    ) -> Result<A, WorldError>
    where
        E: Send + 'static,
        A: Send + 'static,
    {
        self.write(vec![element], apply).await?.pop().ok_or_else(world_closed)?
    }
}

/// A [`WriteBatch`] without its type parameters.
trait WriteRequest: Send {
    /// The number of elements.
    fn len(&self) -> usize;
    /// How much of a transaction it takes: the number of elements, or more.
    fn weight(&self) -> usize;
    /// Whether the caller's future was dropped.
    fn is_abandoned(&self) -> bool;
    /// When the caller queued it.
    fn queued_at(&self) -> Instant;
    /// Applies one element, and stores its answer. Only an error of SQLite is returned.
    fn apply(&mut self, index: usize, tx: &mut Tx<'_>) -> Result<(), Error>;
    /// Stores an error as the answer to one element.
    fn fail(&mut self, index: usize, error: WorldError);
    /// Sends the answers to the caller.
    fn answer(self: Box<Self>);
}

/// The elements of one call, and the answers to them.
struct WriteBatch<E, A> {
    elements: Vec<E>,
    weight: usize,
    apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
    answers: Vec<Option<Result<A, WorldError>>>,
    reply: oneshot::Sender<WriteReply<E, A>>,
    queued_at: Instant,
}

/// The answers, and the elements that they belong to.
pub(crate) type WriteReply<E, A> = (Vec<Result<A, WorldError>>, Vec<E>);

impl<E: Send, A: Send> WriteRequest for WriteBatch<E, A> {
    fn len(&self) -> usize {
        self.elements.len()
    }

    fn weight(&self) -> usize {
        self.weight
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn queued_at(&self) -> Instant {
        self.queued_at
    }

    fn apply(&mut self, index: usize, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.answers[index] = Some(match (self.apply)(tx, &self.elements[index]) {
            Ok(answer) => Ok(answer),
            Err(Refusal::World(error)) => Err(error),
            Err(Refusal::Sqlite(error)) => return Err(error),
        });
        Ok(())
    }

    fn fail(&mut self, index: usize, error: WorldError) {
        self.answers[index] = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        let answers = self.answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(world_closed())));
        // Sending fails if the caller's future was dropped.
        let _ = self.reply.send((answers.collect(), self.elements));
    }
}

/// Why a transaction was not committed.
enum TransactionError {
    /// It did not begin, because other processes were writing.
    NotBegun(Error),
    /// SQLite refused a statement or the commit, and the transaction was rolled back.
    RolledBack(Error),
}

impl WriterThread {
    /// Writes batches of requests until the channel is closed.
    fn run(mut self, received: &mut Receiver<Box<dyn WriteRequest>>) {
        while let Some(first) = next_request(received) {
            let limit =
                if self.fair_lock.is_contended() { CONTENDED_ELEMENTS_MAX } else { TRANSACTION_ELEMENTS_MAX };
            let mut batch = batch_of(first, received, limit);
            batch.retain(|request| !request.is_abandoned());
            // A virtual clock must not advance until the change signal of this batch has fired.
            let busy = self.clock.busy();
            self.write(batch, busy);
        }
    }

    /// Writes a batch in one transaction, or each element in its own if SQLite refuses that; then answers the requests.
    fn write(&mut self, mut batch: Vec<Box<dyn WriteRequest>>, busy: Busy) {
        while !batch.is_empty() {
            if let Err(error) = self.file.check_stopped() {
                return answer_all(batch, &error);
            }
            let wait_max = self.lock_wait_left(batch.iter().map(|request| request.queued_at()));
            let written = self.transaction(wait_max, |tx| {
                batch
                    .iter_mut()
                    .try_for_each(|request| (0..request.len()).try_for_each(|index| request.apply(index, tx)))
            });
            let after_commits = match written {
                Ok(after_commit) => vec![after_commit],
                Err(TransactionError::NotBegun(error)) => {
                    batch = self.answer_expired(batch, &error);
                    continue;
                }
                Err(TransactionError::RolledBack(_)) => self.write_singly(&mut batch),
            };
            return match self.file.check() {
                Ok(()) => self.publish(after_commits, batch, busy),
                // The commit is in a file that is not at its path any more.
                Err(error) => answer_all(batch, &error),
            };
        }
    }

    /// How long the first of these requests may still wait for the write lock.
    fn lock_wait_left(&self, queued_at: impl Iterator<Item = Instant>) -> Duration {
        let waited = queued_at.min().map(|first| first.elapsed());
        self.lock_timeout.saturating_sub(waited.unwrap_or_default())
    }

    /// Answers requests of a transaction that did not begin: all of them, or, if other processes hold the write lock,
    /// those that have waited for the lock timeout. Returns the others.
    fn answer_expired(&self, batch: Vec<Box<dyn WriteRequest>>, error: &Error) -> Vec<Box<dyn WriteRequest>> {
        let (expired, mut left): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|request| !is_busy(error) || request.queued_at().elapsed() >= self.lock_timeout);
        answer_all(expired, &self.fair_lock.not_begun_error(error));
        left.retain(|request| !request.is_abandoned());
        left
    }

    /// Writes each element in a transaction of its own.
    fn write_singly(&mut self, batch: &mut [Box<dyn WriteRequest>]) -> Vec<AfterCommit> {
        let mut after_commits = Vec::new();
        for request in batch {
            for index in 0..request.len() {
                let wait_max = self.lock_wait_left(std::iter::once(request.queued_at()));
                match self.transaction(wait_max, |tx| request.apply(index, tx)) {
                    Ok(after_commit) => after_commits.push(after_commit),
                    Err(TransactionError::NotBegun(error)) => {
                        request.fail(index, self.fair_lock.not_begun_error(&error));
                    }
                    Err(TransactionError::RolledBack(error)) => {
                        request.fail(index, from_sqlite(&error, self.file.path()));
                    }
                }
            }
        }
        after_commits
    }

    /// Runs one transaction, after it has waited for the write lock for at most `wait_max`.
    fn transaction(
        &mut self,
        wait_max: Duration,
        mut changes: impl FnMut(&mut Tx<'_>) -> Result<(), Error>,
    ) -> Result<AfterCommit, TransactionError> {
        let connection = &self.connection;
        self.fair_lock
            .begin(wait_max, || execute(connection, "BEGIN IMMEDIATE"))
            .map_err(TransactionError::NotBegun)?;
        let mut tx =
            Tx::new(connection, self.clock.now(), &self.locks, &mut self.lease_cache, &mut self.id_skew);
        let written = changes(&mut tx)
            .and_then(|()| tx.finish())
            .and_then(|after_commit| execute(connection, "COMMIT").map(|()| after_commit));
        written.map_err(|error| {
            self.lease_cache.clear();
            self.id_skew.clear();
            if !connection.is_autocommit() {
                // This fails only if SQLite has already rolled back by itself.
                let _ = execute(connection, "ROLLBACK");
            }
            TransactionError::RolledBack(error)
        })
    }

    /// Notifies workers and other processes of the changes, then answers the requests. In this order, so that a caller
    /// that has its answer can rely on the notification.
    fn publish(&self, after_commits: Vec<AfterCommit>, batch: Vec<Box<dyn WriteRequest>>, busy: Busy) {
        let mut changes = Changes::NONE;
        if after_commits.iter().any(|after_commit| after_commit.wakes_workers) {
            changes |= Changes::WORK;
            self.change_signal.notify();
        }
        let has_ends = after_commits.iter().any(|after_commit| !after_commit.ended_runs.is_empty());
        if has_ends {
            changes |= Changes::ENDS;
        }
        if after_commits.iter().any(|after_commit| !after_commit.written_runs.is_empty()) {
            changes |= Changes::STREAMS;
        }
        if let Some(hint_sender) = &self.hint_sender {
            hint_sender.send(changes);
        }
        for (session, _lock) in after_commits.iter().flat_map(|after_commit| &after_commit.ended_sessions) {
            self.locks.release(*session);
        }
        if !self.watchers.is_empty() {
            for after_commit in &after_commits {
                let ended = after_commit.ended_runs.iter().map(|ended| &ended.run);
                after_commit.written_runs.iter().chain(ended).for_each(|run| self.watchers.notify(*run));
            }
        }
        // A caller that gets its answer keeps the clock busy itself. Keep it busy here only if waiters still have to be
        // notified of ends.
        let _busy = has_ends.then_some(busy);
        for request in batch {
            request.answer();
        }
        for ended in after_commits.into_iter().flat_map(|after_commit| after_commit.ended_runs) {
            self.recently_started.remove(ended.run);
            self.waiters.tell(ended.run, || Some(ended.clone()));
        }
    }
}

/// Answers every element of the requests with an error.
fn answer_all(requests: Vec<Box<dyn WriteRequest>>, error: &WorldError) {
    for mut request in requests {
        (0..request.len()).for_each(|index| request.fail(index, error.clone()));
        request.answer();
    }
}

/// The weight of elements with this many bytes of chunks.
fn weight_of_chunks(elements: usize, bytes: usize) -> usize {
    elements.max(bytes / CHUNK_BYTES_PER_ELEMENT)
}

/// The requests of one transaction: this one, and others that wait, until their weight has reached the limit.
fn batch_of(
    first: Box<dyn WriteRequest>,
    received: &mut Receiver<Box<dyn WriteRequest>>,
    limit: usize,
) -> Vec<Box<dyn WriteRequest>> {
    let mut weight = first.weight();
    let mut batch = vec![first];
    while weight < limit
        && let Ok(next) = received.try_recv()
    {
        weight += next.weight();
        batch.push(next);
    }
    batch
}

/// The next request; `None` if the channel is closed. A caller that was just answered often sends its next request
/// immediately. So check the queue some times before blocking: waking the thread costs more than writing a turn.
fn next_request(received: &mut Receiver<Box<dyn WriteRequest>>) -> Option<Box<dyn WriteRequest>> {
    for _ in 0..SPINS_BEFORE_SLEEP {
        if let Ok(request) = received.try_recv() {
            return Some(request);
        }
        std::thread::yield_now();
    }
    received.blocking_recv()
}

fn execute(connection: &Connection, sql: &str) -> Result<(), Error> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request with this many elements and bytes of chunks.
    fn request(elements: usize, bytes: usize) -> Box<dyn WriteRequest> {
        Box::new(WriteBatch::<(), ()> {
            elements: vec![(); elements],
            weight: weight_of_chunks(elements, bytes),
            apply: |_, ()| Ok(()),
            answers: vec![None; elements],
            reply: oneshot::channel().0,
            queued_at: monotonic_now(),
        })
    }

    /// The number of requests in each transaction, if these wait together.
    fn transactions(requests: impl IntoIterator<Item = (usize, usize)>) -> Vec<usize> {
        let (sender, mut received) = channel(REQUESTS_MAX);
        requests.into_iter().for_each(|(elements, bytes)| drop(sender.try_send(request(elements, bytes))));
        drop(sender);
        let mut batches = Vec::new();
        while let Ok(first) = received.try_recv() {
            batches.push(batch_of(first, &mut received, TRANSACTION_ELEMENTS_MAX).len());
        }
        batches
    }

    #[test]
    fn a_transaction_has_at_most_a_number_of_elements() {
        let all = transactions(std::iter::repeat_n((BATCH_TURNS_MAX, 0), 9));
        assert_eq!(all, [4, 4, 1]);
    }

    #[test]
    fn a_transaction_has_about_a_mebibyte_of_chunks() {
        assert_eq!(transactions(std::iter::repeat_n((1, STREAM_WRITE_BYTES_MAX), 3)), [1, 1, 1]);
        assert_eq!(transactions(std::iter::repeat_n((1, STREAM_WRITE_BYTES_MAX / 4), 9)), [4, 4, 1]);
        let mixed = [(1, STREAM_WRITE_BYTES_MAX), (1, 0), (1, 0), (1, STREAM_WRITE_BYTES_MAX), (1, 0)];
        assert_eq!(transactions(mixed), [1, 3, 1], "other writes wait for one of them");
    }
}
