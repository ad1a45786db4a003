//! The contract between the engine and the worlds in which runs are stored.

mod wrapper;

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use crate::change_signal::RunWatch;
use crate::error::WorldError;
use crate::event::{Ended, TurnRecord};
use crate::forked::Fork;
use crate::id::{MessageId, RunId, SessionId};
use crate::marks::{MarkCounts, Marks};
use crate::message::{Message, NewMessage, Sent};
use crate::queue::QueueView;
use crate::record::{NewRecord, RecordQuery, StoredRecord};
use crate::reply::StoredReply;
use crate::report::Report;
use crate::retried::Reopen;
use crate::run::{Counts, FailureQuery, FlagCounts, Page, Pruned, RunQuery, RunView, Start, Started};
use crate::stream::{StateView, StreamPage, StreamView, StreamWrite, StreamWritten};
use crate::time::{Busy, Clock, Timestamp};
use crate::token::{TokenHash, TokenView};
use crate::turn::{Committed, HeldRun, Turn};
use crate::work::{Beat, ClaimRequest, HeartbeatDetails, Join, Work, WorkerView};

pub use wrapper::{WorldMethod, WorldWrapper};

/// One result per element of a batch, or an error of the whole batch.
pub type Answers<T> = Result<Vec<Result<T, WorldError>>, WorldError>;

/// The storage of runs: history, inbox and ownership, which change atomically.
///
/// A world stores, it does not decide: it never looks into a payload or computes a retry, and what a commit
/// or a takeover does to a run's row is computed by [`state`](crate::state). The conformance suite in
/// `outlast-conformance` is the final word on what each method does.
///
/// Every acknowledged change survives `kill -9` of the process, as far as [`World::describe`] promises. A method that
/// returns [`WorldError::Unavailable`] may or may not have taken effect; every method can be repeated with the same
/// ids. After [`WorldError::Gone`] a worker stops, so a world returns it only if no later call can succeed. Batches are
/// limited by [`limits`](crate::limits); an element that is refused does not affect the others.
///
/// Futures of a world may be dropped before they complete; the call may then take effect or not. `beat` must work
/// outside of any runtime, because workers call it on a thread of its own.
///
/// Calling a world is stable, implementing one is not: before 1.0, any release may add methods to this trait, or change
/// what an implementation has to do. Such a release has a new minor version, and its changelog says what implementations
/// have to change. A world that only passes its calls to another implements [`WorldWrapper`] instead.
///
/// A world is [`Any`], so that a transaction of the caller can check whether it belongs to the same database.
#[async_trait]
pub trait World: Any + Send + Sync + std::fmt::Debug {
    // --- runs ---

    /// Starts runs. Each start is atomic: the run's row, its first turn (made by
    /// [`Start::first_turn`]) and its key.
    ///
    /// Repeating a start with the same run id returns the first result. A start with a known key returns the run of
    /// that key when workflow and digest are the same. If the key was used longer ago than the start's window, it
    /// names the new run from then on; so does the key of a run that has ended, if the start's policy is
    /// [`KeyPolicy::WhileRunning`](crate::KeyPolicy::WhileRunning), and any run with
    /// [`KeyPolicy::Replace`](crate::KeyPolicy::Replace): a run that has not ended is sent
    /// [a cancel](crate::Start::cancel_of_replaced) in the same change.
    ///
    /// The run gets the rules of the start, or lower ones if a joined session does not know those or cannot read the
    /// format that goes with them.
    ///
    /// A start with `not_before` is ready at that time; before, only a message that needs no code makes it ready.
    ///
    /// Refuses with `Conflict` when the key names a run of another workflow or input, `Limit` when
    /// the name, queue, key or tags are too long or many, `Invalid` when the queue has no name, there is no
    /// such priority or the deadline comes before the run may begin.
    async fn start(&self, starts: Vec<Start>) -> Answers<Started>;

    /// Starts a run, or finds the run that the key of the start names, and sends it a message: one atomic change. The run
    /// of `message` is ignored; it goes to the run that the answer names.
    ///
    /// Refuses as [`start`](Self::start) and [`send`](Self::send), and with `Invalid` when the message is sent to a token. If
    /// the message is refused, no run is started.
    async fn start_and_send(&self, start: Start, message: NewMessage) -> Result<(Started, Sent), WorldError>;

    /// The current state of the run. Refuses with `NotFound`.
    async fn run(&self, run: RunId) -> Result<RunView, WorldError>;

    /// The current states of at most [`RUNS_BY_ID_MAX`](crate::limits::RUNS_BY_ID_MAX) runs, in the order in which they
    /// are given; runs that do not exist are left out. Refuses with `Limit`.
    async fn runs_by_id(&self, runs: &[RunId]) -> Result<Vec<RunView>, WorldError>;

    /// A page of runs, ordered by id, so that equal times and new rows do not affect paging. It says whether there may
    /// be more, in both directions. The work is bounded even if few or no runs match: the page is then short, and the
    /// next page continues after the last run that was examined.
    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError>;

    /// The number of runs in each status, including those without runs. The numbers are maintained, so that the cost
    /// does not grow with the runs.
    async fn counts(&self) -> Result<Counts, WorldError>;

    /// The number of runs with each mark, including marks without runs. The cost grows only with the number of runs
    /// that have marks.
    async fn mark_counts(&self) -> Result<MarkCounts, WorldError>;

    /// The number of runs with each flag, counted up to [`FLAG_COUNT_MAX`](crate::limits::FLAG_COUNT_MAX).
    async fn flag_counts(&self) -> Result<FlagCounts, WorldError>;

    /// Failed runs, ordered by the time of their end and their id, the last first. The cost grows only with the number
    /// of runs in the result.
    async fn failures(&self, query: FailureQuery) -> Result<Vec<RunView>, WorldError>;

    /// Waits until the run has ended or the clock reaches `until`, without polling per caller. Returns `None` when
    /// `until` came first. Refuses with `NotFound`.
    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError>;

    // --- history ---

    /// The turns from the one that contains event number `from` on, in order, at most `limit`
    /// (and at most [`HISTORY_TURNS_READ_MAX`](crate::limits::HISTORY_TURNS_READ_MAX)). Turns
    /// without events are not in the history. Refuses with `NotFound`.
    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError>;

    /// The number of events in the history of a run, which is the number of its next event. It costs one lookup,
    /// however long the history is. Refuses with `NotFound`.
    async fn event_count(&self, run: RunId) -> Result<u64, WorldError>;

    /// The histories of at most [`HISTORIES_READ_MAX`](crate::limits::HISTORIES_READ_MAX) runs, in the order of the
    /// runs, each from [`replay_from`](crate::HolderColumns::replay_from) on: what a replay needs. A history that cannot be read is an error of its run alone.
    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>>;

    // --- inbox ---

    /// Appends messages to inboxes, and makes runs without a holder ready: one atomic change per message. Messages of
    /// one call to one run keep their order. Returns the position of each message, and whether the run was already
    /// asked to stop.
    ///
    /// Repeating a message with the same id returns the first result, even if the run has ended since.
    ///
    /// A message that needs a higher [format](crate::format) than its run has raises that of the run.
    ///
    /// Refuses with `NotFound`, `Conflict` when the run has ended or the worker that holds it cannot read the message
    /// (what a turn's outbox sends is not refused for that: the run goes to a worker that can when it is let go of),
    /// `Limit` when the inbox is full (not for messages [exempt](crate::MessageBody::is_exempt_from_limit) from it) or
    /// a hook's payload would be one too many that nobody has taken.
    ///
    /// A [pause](crate::MessageBody::Pause) sets the mark of a paused run, unless it was asked to stop; a
    /// [resume](crate::MessageBody::Resume) and a cancel clear it, in the change that accepts the message. A run that
    /// is paused and has no holder is ready at its deadline and when it can be ended without its code, and at no other
    /// time; when the pause ends, it is ready at once, or when it may begin. `Conflict` also when a run that was asked
    /// to stop is to be paused.
    ///
    /// A payload that is sent to a token is accepted only if the run holds that token in the directory; otherwise
    /// `Conflict`. This is decided in the change that accepts the message.
    ///
    /// A stuck run keeps its messages and stays stuck. A message by which a run [can be
    /// ended](crate::EndableWithoutCode::can_end) without its code makes it ready for every worker, even if the run is
    /// stuck and whichever builds failed; so does such a message that arrived before the run got stuck.
    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent>;

    /// The messages after position `after`, in order, at most [`INBOX_READ_MAX`](crate::limits::INBOX_READ_MAX).
    /// Refuses with `NotFound`.
    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError>;

    /// The reply of a run to a message; `None` while there is none. Replies are stored for at least
    /// [`REPLY_KEPT`](crate::limits::REPLY_KEPT), unless the run is deleted. Refuses with `NotFound` when there is no such
    /// run.
    async fn reply(&self, run: RunId, message: MessageId) -> Result<Option<StoredReply>, WorldError>;

    // --- tokens ---

    /// Looks a token up in the directory, without waking its run; `None` if no run has taken it, or the run has closed it.
    ///
    /// The token of a run that has ended stays in the directory until another run takes it, or the run is deleted: it is
    /// not open. So does a token that was closed and is [kept](crate::NewToken::keep_for), until its time is over.
    ///
    /// Tokens are taken and freed by [outboxes](crate::turn::Outbox). Of two runs that take the same token, one gets it, and
    /// the other receives [`Refused`](crate::MessageBody::Refused). A token is taken until its run closes it or ends, and
    /// then for as long as it is kept, also if the run is deleted.
    async fn token(&self, hash: TokenHash) -> Result<Option<TokenView>, WorldError>;

    // --- work ---

    /// Opens a session. Repeating it changes nothing. No run is written: a stuck run is ready for every build that
    /// has not failed to continue it, joined before or after.
    ///
    /// Refuses with `Limit` when the queues are too many or their names too long, `Invalid` when one has none.
    async fn join(&self, join: Join) -> Result<(), WorldError>;

    /// Renews the session, and stores the report of its worker for [`World::workers`]. Also stores the heartbeat
    /// details of attempts of runs that the session holds; those of other runs are ignored, except that details of
    /// ended runs may be deleted. Refuses with `Fenced` when the session has ended.
    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError>;

    /// The runs that the session holds, in order of their ids. It takes no lock, so the result may be outdated.
    /// Refuses with `Fenced`.
    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError>;

    /// Ends the session: the runs it still holds are ready for others. Repeating it changes nothing.
    async fn leave(&self, session: SessionId) -> Result<(), WorldError>;

    /// Ends every other session whose worker is lost (its lock is free) or that has expired, makes their runs ready
    /// and counts the crash with [`Released`](crate::Released). Returns the number of these runs. The session is
    /// fenced first and its runs are released afterwards; if there are many, in several changes.
    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError>;

    /// Assigns ready runs to the session, the lowest [rank](crate::queue::rank) first, at equal ranks the lowest id,
    /// and returns the unread messages of the runs that it holds. Atomic per run. A run that cannot be read is claimed
    /// with the error as its history; it never fails the claim.
    ///
    /// A run is ready when it has no holder, has not ended, and has unread messages, is due, new or stuck. Only runs
    /// whose queue, code and format the request has are assigned. Runs that need no code and overdue runs need only
    /// the format: the former are ranked as with priority 0, the latter come after all others, the longest overdue
    /// first. Runs of the higher crash classes are assigned according to [`SuspectRoom`](crate::SuspectRoom). For
    /// [`PREFERENCE`](crate::limits::PREFERENCE) a woken run is assigned only to the session that last held it, while
    /// that session is joined. A run is not assigned to a build that [failed](crate::FailedBuilds) to continue it,
    /// unless it was resumed or can be ended without code. A claimed run keeps the reason why it was stuck until it
    /// progresses.
    ///
    /// Refuses with `Fenced` when the session has ended.
    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError>;

    /// Commits turns, each all or nothing: events, the row of [`RowChange`](crate::RowChange), counts, and the
    /// turn's [outbox](crate::turn::Outbox). The outbox of a stuck turn is ignored.
    ///
    /// A turn is accepted only from the session that holds its run, and only if the turn that it was computed from is
    /// still the last. Repeating a committed turn that is still the last of its run returns the same result. A turn
    /// [from a start](crate::turn::BasedOn::Start) also does what `start` does: the session then holds the run, or
    /// nothing was written and the result names the existing run. A run that waits or is released with unread messages
    /// is ready immediately.
    ///
    /// A turn whose events need a higher [format](crate::format) than the run has raises that of the run.
    ///
    /// Refuses with `Fenced`; with `Conflict` when `fired_until` passes over an unread message, or a
    /// start's key is another run's.
    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed>;

    /// The joined workers, in order of their sessions.
    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError>;

    /// The queues that have runs which are ready, will be at a known time, or are held; by name, at most
    /// [`QUEUES_LISTED_MAX`](crate::limits::QUEUES_LISTED_MAX). A run that every worker may claim, because it can be ended
    /// without its code, counts as ready in its own queue.
    ///
    /// The cost does not grow with the number of runs: it reads indexes only, and counts up to limits.
    async fn queues(&self) -> Result<Vec<QueueView>, WorldError>;

    /// Makes a run without a holder ready for every build, including those that failed to continue it. A paused run
    /// stays paused. Refuses with `NotFound`, `Conflict` when it has ended or a session holds it.
    async fn resume(&self, run: RunId) -> Result<(), WorldError>;

    /// Reopens a run that has failed or was cancelled: one atomic change. The run is `pending` and ready at once, with the
    /// message of the retry in its inbox; it has no end, no failure, no holder and no waits, its deadline is that of the
    /// request, and it was not asked to stop, neither by read nor by unread messages. Its history, key, tags, streams and
    /// unread messages stay. The row is computed by [`reopened`](crate::state::reopened). Returns the position of the
    /// message.
    ///
    /// Repeating it with the same message returns the first result, whatever has become of the run since.
    ///
    /// Refuses with `NotFound`; `Conflict` when the run has neither failed nor was cancelled, was compensated, has outbox
    /// entries that are not applied, or its history has another number of events than the request was computed from;
    /// `Invalid` when the deadline has passed.
    async fn reopen(&self, reopen: Reopen) -> Result<Sent, WorldError>;

    /// Starts a run with the events of another one before a cut: one atomic change. The run is `pending` and ready at once,
    /// with the row of its start, the columns of the fork, the turns, and the messages in its inbox. The
    /// turns are those of the other run in the ranges, with their numbers, times, ids and builds, and the rewritten
    /// ones, in the order of their numbers. The last turn of the row is the last of the rewritten ones. Its format is at least that of the other run, and that of its rewritten turns. Neither row nor history of the
    /// other run changes, and none of the two depends on the other afterwards.
    ///
    /// Repeating it with the same run id returns the first result, also if the other run was deleted since.
    ///
    /// Refuses with `NotFound` when the other run does not exist; `Conflict` when it does not have the turns any more
    /// that are to be copied; `Invalid` when the fork contradicts itself or has too many messages; and as
    /// [`start`](Self::start) an invalid start. A refused fork has changed nothing. Its messages are not refused: it has
    /// few, and keeps no payloads.
    async fn fork(&self, fork: Fork) -> Result<Started, WorldError>;

    /// Who keeps a turn of the run from being written now, and since when, for a person. `None` when nobody does, or
    /// the world cannot tell.
    async fn blocked_by(&self, run: RunId) -> Result<Option<String>, WorldError> {
        let _ = run;
        Ok(None)
    }

    // --- streams ---

    /// Writes chunks of steps to streams of the runs that the session holds. Atomic per write.
    ///
    /// A chunk is identified by its attempt and its ordinal, so repeating a write changes nothing. When the first write
    /// of a newer attempt of an operation arrives, the entry [`Restarted`](crate::EntryBody::Restarted) is appended, in
    /// the same change, to each stream to which an older attempt of the operation has written; a stream that the step
    /// had closed is open again. Chunks for a closed stream, and those beyond
    /// [`STREAM_CHUNKS_MAX`](crate::limits::STREAM_CHUNKS_MAX), are counted and not stored.
    ///
    /// It has its own path to the storage: commits do not wait for it longer than for a plain commit.
    ///
    /// Refuses with `Fenced` when the session does not hold the run, the attempt is not of this session, or a newer
    /// attempt of the operation has written; `Limit` when the run has [`STREAMS_MAX`](crate::limits::STREAMS_MAX)
    /// streams or the call is too large, `Invalid` when earlier chunks of the attempt are missing.
    async fn write_chunks(&self, session: SessionId, writes: Vec<StreamWrite>) -> Answers<StreamWritten>;

    /// The entries of a stream from index `from` on, in order, at most `limit` (and at most
    /// [`CHUNKS_READ_MAX`](crate::limits::CHUNKS_READ_MAX)). A negative `from` counts from the end; an index outside of
    /// the stream means the nearest one. A stream that does not exist has no entries. All values are those of one
    /// moment. Refuses with `NotFound` when there is no such run.
    async fn chunks(
        &self,
        run: RunId,
        stream: &str,
        from: i64,
        limit: usize,
    ) -> Result<StreamPage, WorldError>;

    /// The streams of a run, ordered by name. Refuses with `NotFound`.
    async fn streams(&self, run: RunId) -> Result<Vec<StreamView>, WorldError>;

    /// The state that a run has published last. Refuses with `NotFound`.
    async fn published(&self, run: RunId) -> Result<StateView, WorldError>;

    /// Watches a run from now on: the watch reports when a stream or the published state of the run may have changed,
    /// or the run has ended. It is a hint, which may be missing if another process makes the change.
    fn watch(&self, run: RunId) -> RunWatch;

    // --- records ---

    /// Stores records of a space, and replaces those that exist: all of them or none.
    ///
    /// Refuses with `Limit` when a text or the batch is too large, or the space would have more than
    /// [`RECORDS_MAX`](crate::limits::RECORDS_MAX) records; `Invalid` when a space or an id is empty, an id is given twice,
    /// or a text contains NUL.
    async fn put_records(&self, space: &str, records: Vec<NewRecord>) -> Result<(), WorldError>;

    /// Stores a record unless the space has one with its id. Returns whether it was stored. Refuses as
    /// [`put_records`](Self::put_records).
    async fn put_record_if_absent(&self, space: &str, record: NewRecord) -> Result<bool, WorldError>;

    /// A record; `None` if there is none.
    async fn record(&self, space: &str, id: &str) -> Result<Option<StoredRecord>, WorldError>;

    /// A page of the records of a space.
    async fn records(&self, query: RecordQuery) -> Result<Vec<StoredRecord>, WorldError>;

    /// Deletes records of a space, and returns how many of them existed. Refuses with `Limit` when they are more than
    /// [`RECORDS_BATCH_MAX`](crate::limits::RECORDS_BATCH_MAX).
    async fn delete_records(&self, space: &str, ids: &[String]) -> Result<u64, WorldError>;

    // --- wake-up ---

    /// Completes when a run may have become ready since `epoch` (of the last claim), or when the clock reaches
    /// `until`. It is a hint: only the next claim shows whether one is ready. The caller holds the returned [`Busy`]
    /// during the work that follows.
    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy;

    // --- upkeep ---

    /// Applies outbox entries of any run that were committed and not applied yet. A world that applies them with the
    /// commit does nothing.
    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        let _ = session;
        Ok(Delivered::default())
    }

    /// Puts a run into quarantine, or releases it. Returns the marks that it had before. Repeating it changes nothing.
    /// Refuses with `NotFound`.
    async fn quarantine(&self, run: RunId, change: QuarantineChange) -> Result<Marks, WorldError>;

    /// Deletes the turns of a run whose first events are in `range`, except those in `kept`. The caller knows from a
    /// committed cut that no replay needs them. Repeating it changes nothing, and neither does a run that does not exist.
    /// The numbers of other events do not change: [`World::history`] returns the turns that are left.
    async fn delete_turns(&self, run: RunId, range: Range<u64>, kept: &[u64]) -> Result<(), WorldError>;

    /// Deletes a run that has ended, with everything that [`prune`](Self::prune) deletes. Refuses with `NotFound`, and
    /// with `Conflict` when it has not ended, is in quarantine, or has outbox entries that are not applied.
    async fn delete(&self, run: RunId) -> Result<(), WorldError>;

    /// Deletes runs that ended before a time, with their histories, inboxes, tags, streams and states: of the runs after
    /// `after`, in order of their ids, at most `limit` (and at most [`PRUNE_RUNS_MAX`](crate::limits::PRUNE_RUNS_MAX))
    /// are examined. Runs in quarantine are left. The keys of deleted runs can be used again. Repeat the call with
    /// `next` of the result until that is `None`. Atomic per call, and bounded.
    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError>;

    /// The id of a run to start with this key, from random bits. Pure. A partitioned world chooses the partition of
    /// the key; others return the bits.
    fn run_id(&self, key: Option<&str>, bits: u128) -> RunId {
        let _ = key;
        RunId::from_bits(bits)
    }

    /// The clock of the world, which all workers and clients use.
    fn clock(&self) -> Arc<dyn Clock>;

    /// The properties and guarantees of this world.
    fn describe(&self) -> Description;

    /// The world that gets the calls, if this one only passes them on. Transactions of steps are those of the innermost
    /// world; see [`innermost`].
    fn inner_world(&self) -> Option<&dyn World> {
        None
    }
}

/// The world that stores the runs: `world` itself, or the last one to which wrappers pass their calls.
pub fn innermost(mut world: &dyn World) -> &dyn World {
    while let Some(inner) = world.inner_world() {
        world = inner;
    }
    world
}

/// How the quarantine of a run changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarantineChange {
    /// The run is put into quarantine.
    Begin,
    /// The run is released.
    End,
}

/// The properties and guarantees of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The kind of world: `memory`, `sqlite`.
    pub kind: &'static str,
    /// Its location, without secrets.
    pub place: String,
    /// What an acknowledged change survives.
    pub durability: String,
    /// How changes by other processes are noticed.
    pub hints: String,
    /// The number of concurrent commits of one session. With 1 its batches are largest; with 2 the session prepares a
    /// batch while the world writes the one before.
    pub commit_concurrency: usize,
    /// When it applies the outbox of a turn.
    pub effects: Effects,
}

impl Description {
    /// The description of a world that promises nothing, writes sequentially, and applies outboxes with their turns. The
    /// world sets what is different.
    pub fn new(kind: &'static str, place: impl Into<String>) -> Self {
        Self {
            kind,
            place: place.into(),
            durability: String::new(),
            hints: String::new(),
            commit_concurrency: 1,
            effects: Effects::Inline,
        }
    }
}

/// When a world applies the outbox of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// In the same transaction as the turn.
    Inline,
    /// After the commit has returned, in order, by [`World::deliver`] or automatically.
    Deferred,
}

/// The result of [`World::deliver`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// The number of entries that were applied.
    pub applied: u64,
    /// A lower bound of the number of entries that are left.
    pub left: u64,
}
