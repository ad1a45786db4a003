//! [`SqliteWorld`]: the `World` contract, method by method.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use outlast_core::limits::HISTORY_TURNS_READ_MAX;
use outlast_core::record::{check_record_batch, check_records};
use outlast_core::refusal::{
    check_batch, check_histories, check_join, check_runs_by_id, check_starts, no_run, session_gone,
};
use outlast_core::stream::check_writes;
use outlast_core::time::event_or_time;
use outlast_core::turn::{BasedOn, HeldRun};
use outlast_core::world::Answers;
use outlast_core::{
    Beat, Busy, ChangeSignal, ClaimRequest, Clock, Committed, Counts, Description, Ended, FailureQuery,
    FlagCounts, Fork, HeartbeatDetails, Join, MarkCounts, Marks, Message, MessageId, NewMessage, NewRecord,
    OutcomeSlot, Page, Pruned, QuarantineChange, QueueView, RecentlyStarted, RecordQuery, Reopen, Report,
    RunId, RunQuery, RunView, RunWatch, RunWatchers, Sent, SessionId, Start, Started, StateView,
    StoredRecord, StoredReply, StreamPage, StreamView, StreamWrite, StreamWritten, Timestamp, TokenHash,
    TokenView, Transacted, Turn, TurnRecord, Waiters, Work, WorkerView, World, WorldError,
};

use crate::connection::clock::WorldClock;
use crate::connection::fair_lock::FairLock;
use crate::connection::file;
use crate::connection::file::ConnectionSettings;
use crate::connection::opened_file::{InodeId, OpenedFile};
use crate::notifications::change_watcher::{ChangeSubscribers, ChangeWatcher};
use crate::notifications::tx_watcher::{AwaitedWrite, TxWatcher};
use crate::options::{Durability, SqliteOptions, SqliteUrl};
use crate::read::failures::failures;
use crate::read::history::{consumed, history_containing, inbox, replayed_history};
use crate::read::id_clock_skew::IdClockSkew;
use crate::read::page::page;
use crate::read::queues::queues;
use crate::read::readers::ReaderPool;
use crate::read::run_ends::EndLookup;
use crate::read::{records, streams, views};
use crate::schema::migrate::LivenessCheck;
use crate::schema::sql;
use crate::sessions::claim::{Claim, claim};
use crate::sessions::heartbeat::EncodedHeartbeat;
use crate::sessions::session;
use crate::sessions::session_locks::SessionLocks;
use crate::write::commit::commit;
use crate::write::delete_turns::delete_turns;
use crate::write::fork::{EncodedFork, fork as write_fork};
use crate::write::lease_cache::LeaseCache;
use crate::write::message::EncodedMessage;
use crate::write::prune::{DeleteProgress, Prune, delete, prune, prune_leftovers};
use crate::write::quarantine::quarantine;
use crate::write::records::{self as write_records, SpaceRecords};
use crate::write::reopen::{EncodedReopen, reopen as write_reopen};
use crate::write::send::send_by_client;
use crate::write::start::{EncodedStart, start, start_and_send};
use crate::write::streams::{EncodedStreamWrite, write_chunks};
use crate::write::tokens;
use crate::write::transactions::{StepTransactions, StepWork};
use crate::write::turn::{COMMIT_CONCURRENCY, EncodedTurn, SpareBatches};
#[cfg(feature = "test-support")]
use crate::write::tx::Tx;
use crate::write::writer::{Writer, WriterThread};

/// A world in one SQLite file.
///
/// Several processes can open the same file. If a worker dies, the others detect it immediately. Dropping the world
/// ends its threads, and frees the locks of sessions that have not left.
#[derive(Debug)]
pub struct SqliteWorld {
    // The order of the fields is the order in which they are dropped: threads end before what they use.
    step_transactions: StepTransactions,
    writer: Writer,
    spare_batches: SpareBatches,
    change_watcher: ChangeWatcher,
    readers: ReaderPool,
    end_lookup: EndLookup,
    tx_watcher: TxWatcher,
    locks: Arc<SessionLocks>,
    change_signal: Arc<ChangeSignal>,
    waiters: Arc<Waiters>,
    recently_started: Arc<RecentlyStarted>,
    watchers: Arc<RunWatchers>,
    clock: Arc<dyn Clock>,
    file: Arc<OpenedFile>,
    sync: Durability,
}

impl SqliteWorld {
    /// Opens the file of a path or of a URL such as `sqlite:shop.db?sync=normal`, and creates it if it does not exist.
    ///
    /// If the file is moved, replaced or removed while the world is open, the call that notices it and every later one
    /// fail with [`WorldError::Gone`]; a change is not acknowledged unless it is in the file at the path.
    ///
    /// # Errors
    ///
    /// [`WorldError::Invalid`] if the URL is invalid, the folder does not exist, or this user may not write the file or
    /// its folder; [`WorldError::Conflict`] if the file belongs to another program, has a schema that this build cannot
    /// use, or has to be migrated to one that joined workers cannot use; [`WorldError::Corrupt`] if it is not an SQLite
    /// file, or is missing or empty while its write-ahead log is not; [`WorldError::Unavailable`] if it cannot be used
    /// now.
    pub fn open(url: &str, options: SqliteOptions) -> Result<Self, WorldError> {
        let url = SqliteUrl::parse(url)?;
        // The process may change its working directory later.
        let path = std::path::absolute(&url.path).unwrap_or(url.path);
        let (sync, clock) = (url.sync.unwrap_or(options.sync), options.clock);
        let lock_timeout = url.lock_timeout.unwrap_or(options.lock_timeout);
        let settings = ConnectionSettings { path: path.clone(), sync, statements: options.statements };
        let locks = Arc::new(SessionLocks::for_database(&path, clock.is_virtual()));
        let liveness = LivenessCheck { locks: &locks, now: clock.now() };
        let before = InodeId::at(&path).unwrap_or(None);
        let connection = file::open(&settings, Some(liveness))?;
        let file = Arc::new(OpenedFile::opened_at(&path, before)?);
        let clock = WorldClock::continue_from_file(clock, &connection, &path)?;
        let subscribers = ChangeSubscribers::new(&clock);
        let ChangeSubscribers { change_signal, waiters, recently_started, watchers } = subscribers.clone();
        let change_watcher = match clock.is_virtual() {
            true => ChangeWatcher::disabled(),
            false => ChangeWatcher::start(&settings, url.hint_mode, file.clone(), subscribers)?,
        };
        let readers = ReaderPool::start(&settings, file.clone())?;
        let (hint_sender, fair_lock) = (change_watcher.hint_sender(), FairLock::for_database(&path));
        let tx_watcher = TxWatcher::new(settings.clone(), change_signal.clone(), hint_sender.clone());
        let writer = Writer::start(WriterThread {
            file: file.clone(),
            connection,
            clock: clock.clone(),
            locks: locks.clone(),
            change_signal: change_signal.clone(),
            waiters: waiters.clone(),
            recently_started: recently_started.clone(),
            watchers: watchers.clone(),
            hint_sender,
            fair_lock,
            lock_timeout,
            lease_cache: LeaseCache::default(),
            id_skew: IdClockSkew::default(),
        })?;
        // The readers may have opened another file than the writer.
        file.check()?;
        Ok(Self {
            step_transactions: StepTransactions::new(&settings, &file, &clock, &locks, lock_timeout),
            writer,
            spare_batches: SpareBatches::default(),
            change_watcher,
            readers,
            end_lookup: EndLookup::new(file.clone()),
            tx_watcher,
            locks,
            change_signal,
            waiters,
            recently_started,
            watchers,
            clock,
            file,
            sync,
        })
    }

    /// Simulates that the process of the session's worker was killed: its lock is free, so the next takeover releases its
    /// runs. For tests.
    #[cfg(feature = "test-support")]
    pub fn kill(&self, session: SessionId) {
        self.locks.abandon(session);
    }

    /// Copies the world, while it is in use, to a file that must not exist; see [`backup`](crate::backup()).
    ///
    /// # Errors
    ///
    /// As [`backup`](crate::backup()).
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), WorldError> {
        self.file.check()?;
        crate::backup(self.file.path(), to.as_ref(), self.clock.clone()).await
    }

    /// Reads how a run ended, if it has.
    async fn find_end(&self, run: RunId) -> Result<Option<Ended>, WorldError> {
        let _busy = self.clock.busy();
        self.end_lookup.find(&self.readers, run).await
    }

    /// Executes the code of an attempt at a transactional step, and records its outcome in the same transaction: the
    /// effect and the outcome are durable together or not at all. The code runs on a thread of the world, while no other
    /// process writes to the file; other steps may share the transaction.
    ///
    /// Dropping the future does not stop the transaction.
    pub async fn transact(&self, slot: OutcomeSlot, work: StepWork) -> Transacted {
        self.step_transactions.transact(slot, work).await
    }

    /// The file.
    pub(crate) fn file(&self) -> &OpenedFile {
        &self.file
    }

    /// Notifies workers when the transaction of a caller commits that writes this.
    pub(crate) fn watch_commit(&self, write: AwaitedWrite) {
        self.tx_watcher.watch(write);
    }

    /// Limits the file to `pages` pages, or to its current size if that is larger; `None` removes the limit. For tests:
    /// it simulates a full disk.
    #[cfg(feature = "test-support")]
    pub async fn limit_pages(&self, pages: Option<u32>) -> Result<(), WorldError> {
        let limit = |tx: &mut Tx<'_>, pages: &u32| {
            tx.connection.pragma_update_and_check(None, "max_page_count", *pages, |_| Ok(()))?;
            Ok(())
        };
        self.writer.write_one(pages.unwrap_or(u32::MAX - 1), limit).await
    }
}

impl Drop for SqliteWorld {
    fn drop(&mut self) {
        self.tx_watcher.close();
    }
}

#[async_trait]
impl World for SqliteWorld {
    async fn start(&self, starts: Vec<Start>) -> Answers<Started> {
        let _busy = self.clock.busy();
        check_starts(starts.len())?;
        self.writer.write(starts.into_iter().map(EncodedStart::encode).collect(), start).await
    }

    async fn start_and_send(&self, start: Start, message: NewMessage) -> Result<(Started, Sent), WorldError> {
        let _busy = self.clock.busy();
        let encoded = (EncodedStart::encode(start), EncodedMessage::encode(message)?);
        self.writer.write_one(encoded, start_and_send).await
    }

    async fn run(&self, run: RunId) -> Result<RunView, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(move |snapshot| views::run(snapshot, run)).await
    }

    async fn runs_by_id(&self, runs: &[RunId]) -> Result<Vec<RunView>, WorldError> {
        let _busy = self.clock.busy();
        check_runs_by_id(runs.len())?;
        let runs = runs.to_vec();
        self.readers.read(move |snapshot| views::runs_by_id(snapshot, &runs)).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(move |snapshot| page(snapshot, &query)).await
    }

    async fn counts(&self) -> Result<Counts, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(views::counts).await
    }

    async fn mark_counts(&self) -> Result<MarkCounts, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(views::mark_counts).await
    }

    async fn flag_counts(&self) -> Result<FlagCounts, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(views::flag_counts).await
    }

    async fn failures(&self, query: FailureQuery) -> Result<Vec<RunView>, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(move |snapshot| failures(snapshot, &query)).await
    }

    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError> {
        let _listener = self.change_watcher.listen();
        let end = self.waiters.wait(run);
        let is_recent = self.recently_started.contains(run);
        if !is_recent {
            let found = self.find_end(run).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let end_or_stop = end_unless_stopped(end, self.file.wait_until_stopped());
        match event_or_time(end_or_stop, self.clock.sleep_until(until)).await {
            Ok(ended) => ended.map(Some),
            // The notification of the end may be lost.
            Err(_) if is_recent => self.find_end(run).await,
            Err(_) => Ok(None),
        }
    }

    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        let _busy = self.clock.busy();
        let limit = limit.min(HISTORY_TURNS_READ_MAX) as i64;
        let read = self.readers.read(move |snapshot| {
            consumed(snapshot, run)?.ok_or_else(|| no_run(run))?;
            Ok(history_containing(snapshot, run, from, limit)?)
        });
        read.await
    }

    async fn event_count(&self, run: RunId) -> Result<u64, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(move |snapshot| views::event_count(snapshot, run)).await
    }

    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>> {
        let _busy = self.clock.busy();
        check_histories(runs.len())?;
        let (runs, path) = (runs.to_vec(), self.file.path().to_owned());
        let read = self
            .readers
            .read(move |snapshot| runs.iter().map(|run| replayed_history(snapshot, *run, &path)).collect());
        read.await
    }

    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent> {
        let _busy = self.clock.busy();
        let encoded: Result<Vec<_>, _> = messages.into_iter().map(EncodedMessage::encode).collect();
        self.writer.write(encoded?, send_by_client).await
    }

    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
        let _busy = self.clock.busy();
        let read = self.readers.read(move |snapshot| {
            let consumed = consumed(snapshot, run)?.ok_or_else(|| no_run(run))?;
            // Consumed messages have no bodies any more; the history contains them.
            Ok(inbox(snapshot, run, after.max(consumed))?)
        });
        read.await
    }

    async fn reply(&self, run: RunId, message: MessageId) -> Result<Option<StoredReply>, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(move |snapshot| tokens::reply(snapshot, run, message)).await
    }

    async fn token(&self, hash: TokenHash) -> Result<Option<TokenView>, WorldError> {
        let _busy = self.clock.busy();
        let now = self.clock.now();
        self.readers.read(move |snapshot| tokens::token(snapshot, hash, now)).await
    }

    async fn join(&self, join: Join) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        check_join(&join)?;
        self.locks.acquire(join.session)?;
        self.writer.write_one(join, session::join).await?;
        let locks = self.locks.clone();
        let remove_stale_files = move |connection: &_| {
            locks.remove_stale_files(&session::sessions(connection)?);
            Ok(())
        };
        self.readers.read_statement(remove_stale_files).await
    }

    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError> {
        let _busy = self.clock.busy();
        let details = details.iter().map(EncodedHeartbeat::encode).collect();
        let beat = session::EncodedBeat { session, report: report.to_json(), details };
        self.writer.write_one(beat, session::beat).await
    }

    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        let _busy = self.clock.busy();
        let read = self.readers.read(move |snapshot| {
            if !snapshot.prepare_cached(sql::SESSION_FOREIGN_WRITES)?.exists([session.to_string()])? {
                return Err(session_gone(session).into());
            }
            let held = session::held(snapshot, session)?.into_iter().map(|held| held.into_held(session));
            Ok(held.collect())
        });
        read.await
    }

    async fn leave(&self, session: SessionId) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        self.writer.write_one(session, session::leave).await
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        let _busy = self.clock.busy();
        let (locks, now) = (self.locks.clone(), self.clock.now());
        let check = move |connection: &_| session::has_dead_sessions(connection, &locks, session, now);
        if !self.readers.read_statement(check).await? {
            return Ok(0);
        }
        self.writer.write_one(session, session::takeover).await
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        let _busy = self.clock.busy();
        // Read the epoch before the search, so that a change during the search has a later epoch.
        let epoch = self.change_signal.epoch();
        let now = self.clock.now();
        let new_claim = Arc::new(Claim { session, request });
        let for_reader = new_claim.clone();
        let found = self.readers.read(move |snapshot| for_reader.answer_without_write(snapshot, now)).await?;
        if let Some(result) = found {
            return Ok(result.into_work(epoch));
        }
        let result = self.writer.write_one(new_claim, |tx, new_claim| claim(tx, new_claim)).await?;
        Ok(result.into_work(epoch))
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        let _busy = self.clock.busy();
        check_batch(turns.len())?;
        let mut encoded = self.spare_batches.take(turns.len());
        encoded.extend(turns.iter().map(|turn| EncodedTurn::encode(session, turn)));
        let starts =
            || turns.iter().enumerate().filter(|(_, turn)| matches!(turn.based_on, BasedOn::Start(_)));
        self.recently_started.add(starts().map(|(_, turn)| turn.run));
        let written = self.writer.write_returning(encoded, commit).await;
        let answers = written.map(|(answers, encoded)| {
            self.spare_batches.put(encoded);
            answers
        });
        for (index, turn) in starts() {
            let answer = answers.as_ref().ok().and_then(|answers| answers.get(index));
            if !matches!(answer, Some(Ok(Committed::Done))) {
                self.recently_started.remove(turn.run);
            }
        }
        answers
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(views::workers).await
    }

    async fn queues(&self) -> Result<Vec<QueueView>, WorldError> {
        let _busy = self.clock.busy();
        let now = self.clock.now();
        self.readers.read(move |snapshot| queues(snapshot, now)).await
    }

    async fn put_records(&self, space: &str, records: Vec<NewRecord>) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        check_records(space, &records)?;
        self.writer.write_one(SpaceRecords { space: space.to_owned(), records }, write_records::put).await
    }

    async fn put_record_if_absent(&self, space: &str, record: NewRecord) -> Result<bool, WorldError> {
        let _busy = self.clock.busy();
        let records = vec![record];
        check_records(space, &records)?;
        let record = SpaceRecords { space: space.to_owned(), records };
        self.writer.write_one(record, write_records::put_if_absent).await
    }

    async fn record(&self, space: &str, id: &str) -> Result<Option<StoredRecord>, WorldError> {
        let _busy = self.clock.busy();
        let (space, id) = (space.to_owned(), id.to_owned());
        self.readers.read(move |snapshot| records::record(snapshot, &space, &id)).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Vec<StoredRecord>, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(move |snapshot| records::records(snapshot, &query)).await
    }

    async fn delete_records(&self, space: &str, ids: &[String]) -> Result<u64, WorldError> {
        let _busy = self.clock.busy();
        check_record_batch(ids.len())?;
        self.writer.write_one((space.to_owned(), ids.to_vec()), write_records::delete).await
    }

    async fn resume(&self, run: RunId) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        self.writer.write_one(run, session::resume).await
    }

    async fn reopen(&self, reopen: Reopen) -> Result<Sent, WorldError> {
        let _busy = self.clock.busy();
        self.writer.write_one(EncodedReopen::encode(reopen)?, write_reopen).await
    }

    async fn fork(&self, fork: Fork) -> Result<Started, WorldError> {
        let _busy = self.clock.busy();
        self.writer.write_one(EncodedFork::encode(fork)?, write_fork).await
    }

    async fn write_chunks(&self, session: SessionId, writes: Vec<StreamWrite>) -> Answers<StreamWritten> {
        let _busy = self.clock.busy();
        check_writes(&writes)?;
        let bytes = writes.iter().map(StreamWrite::bytes).sum();
        let encoded = writes.into_iter().map(|write| EncodedStreamWrite::encode(session, write));
        self.writer.write_chunks(encoded.collect(), bytes, write_chunks).await
    }

    async fn chunks(
        &self,
        run: RunId,
        stream: &str,
        from: i64,
        limit: usize,
    ) -> Result<StreamPage, WorldError> {
        let _busy = self.clock.busy();
        let stream = stream.to_owned();
        self.readers.read(move |snapshot| streams::chunks(snapshot, run, &stream, from, limit)).await
    }

    async fn streams(&self, run: RunId) -> Result<Vec<StreamView>, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(move |snapshot| streams::streams(snapshot, run)).await
    }

    async fn published(&self, run: RunId) -> Result<StateView, WorldError> {
        let _busy = self.clock.busy();
        self.readers.read(move |snapshot| streams::published(snapshot, run)).await
    }

    fn watch(&self, run: RunId) -> RunWatch {
        self.watchers.watch(run).keeping(self.change_watcher.listen_owned())
    }

    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy {
        let _listener = self.change_watcher.listen();
        match event_or_time(self.change_signal.changed_since(epoch), self.clock.sleep_until(until)).await {
            Ok(busy) | Err(busy) => busy,
        }
    }

    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError> {
        let _busy = self.clock.busy();
        let call = Prune { before, after, limit, now: self.clock.now() };
        let found = self.readers.read(move |snapshot| call.answer_without_write(snapshot)).await?;
        if let Some(nothing) = found {
            return Ok(nothing);
        }
        let (pruned, mut progress) = self.writer.write_one(call, prune).await?;
        while progress == DeleteProgress::Partial {
            progress = self.writer.write_one((), prune_leftovers).await?;
        }
        Ok(pruned)
    }

    async fn delete_turns(&self, run: RunId, range: Range<u64>, kept: &[u64]) -> Result<(), WorldError> {
        let kept = kept.to_vec();
        self.writer.write_one((run, range, kept), delete_turns).await
    }

    async fn quarantine(&self, run: RunId, change: QuarantineChange) -> Result<Marks, WorldError> {
        let _busy = self.clock.busy();
        self.writer.write_one((run, change), quarantine).await
    }

    async fn delete(&self, run: RunId) -> Result<(), WorldError> {
        let _busy = self.clock.busy();
        let mut progress = self.writer.write_one(run, delete).await?;
        while progress == DeleteProgress::Partial {
            progress = self.writer.write_one((), prune_leftovers).await?;
        }
        Ok(())
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn describe(&self) -> Description {
        let durability = match self.sync {
            Durability::Full => "survives the death of the process and a power failure",
            Durability::Normal => {
                "survives the death of the process; a power failure may lose the most recent commits"
            }
        };
        let mut description = Description::new("sqlite", self.file.path().display().to_string());
        description.durability = durability.into();
        description.hints = self.change_watcher.description().into();
        description.commit_concurrency = COMMIT_CONCURRENCY;
        description
    }
}

/// Waits for the end of a run, or for the error that stops the file. If both are ready, the end is returned.
async fn end_unless_stopped(
    end: impl Future<Output = Ended>,
    stop: impl Future<Output = WorldError>,
) -> Result<Ended, WorldError> {
    let (mut end, mut stop) = (pin!(end), pin!(stop));
    poll_fn(|cx| {
        if let Poll::Ready(ended) = end.as_mut().poll(cx) {
            return Poll::Ready(Ok(ended));
        }
        stop.as_mut().poll(cx).map(Err)
    })
    .await
}
