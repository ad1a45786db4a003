//! The contract between the engine and the places where runs live.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::WorldError;
use crate::event::{Ended, TurnRecord};
use crate::id::{RunId, SessionId};
use crate::message::{Message, NewMessage, Sent};
use crate::report::Report;
use crate::run::{Counts, Page, Pruned, RunQuery, RunView, Start, Started};
use crate::time::{Busy, Clock, Timestamp};
use crate::turn::{Committed, HeldRun, Turn};
use crate::work::{Beat, ClaimRequest, HeartbeatDetails, Join, Work, WorkerView};

/// One answer per element of a batch, or an error that concerns all of it.
pub type Answers<T> = Result<Vec<Result<T, WorldError>>, WorldError>;

/// Where runs live: history, inbox and ownership, which change together or not at all.
///
/// A world stores, it does not decide: it never looks into a payload or computes a retry, and what a commit
/// or a takeover does to a run's row is computed by [`state`](crate::state). The conformance suite in
/// `outlast-conformance` is the final word on what each method does.
///
/// Every change that a method acknowledges survives `kill -9` of the process, as far as
/// [`World::describe`] promises. A method that answers [`WorldError::Unavailable`] may or may not have
/// done its work; all of them may be repeated with the same ids. Batches are limited by
/// [`limits`](crate::limits); an element that is refused leaves its neighbours alone.
///
/// Futures of a world may be dropped before they complete; what was asked may then happen or not.
/// `beat` must work outside any runtime, since it has a thread of its own.
///
/// A world is [`Any`], so that a transaction of the caller's can tell whether it is on the same database.
#[async_trait]
pub trait World: Any + Send + Sync + std::fmt::Debug {
    // --- runs ---

    /// Starts runs. Each start is atomic: the run's row, its first turn (made by
    /// [`Start::first_turn`]) and its key.
    ///
    /// Repeating a start with the same run id returns the first answer. A start with a known key
    /// returns the run of that key when workflow and digest are the same. A key that was taken longer
    /// ago than the start's window names the new run from then on, and the old one no more.
    ///
    /// The run gets the rules of the start, or lower ones if a joined session does not know those or cannot read the
    /// format that goes with them.
    ///
    /// A start with `not_before` is ready at that moment; until then only a message that needs no code
    /// makes it ready.
    ///
    /// Refuses with `Conflict` when the key names a run of another workflow or input, `Limit` when
    /// the name, queue, key or tags are too long or many, `Invalid` when the queue has no name, there is no
    /// such priority or the deadline comes before the run may begin.
    async fn start(&self, starts: Vec<Start>) -> Answers<Started>;

    /// The run as it is now. Refuses with `NotFound`.
    async fn run(&self, run: RunId) -> Result<RunView, WorldError>;

    /// A page of runs, by id, so that equal times and rows added meanwhile change nothing. Tells
    /// whether there may be more, in both directions. Bounded, also when few or no runs are wanted: the
    /// page is then short, and the next one goes on behind what was looked at.
    async fn runs(&self, query: RunQuery) -> Result<Page, WorldError>;

    /// How many runs are in each status. Maintained, not counted: the cost does not grow.
    async fn counts(&self) -> Result<Counts, WorldError>;

    /// Waits until the run has ended or the clock shows `until`, without polling per caller.
    /// Answers `None` when `until` came first. Refuses with `NotFound`.
    async fn ended(&self, run: RunId, until: Timestamp) -> Result<Option<Ended>, WorldError>;

    // --- history ---

    /// The turns whose first event is number `from` or later, in order, at most `limit`
    /// (and at most [`HISTORY_TURNS_READ_MAX`](crate::limits::HISTORY_TURNS_READ_MAX)). Turns
    /// without events are not in the history. Refuses with `NotFound`.
    async fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError>;

    /// The whole histories of at most [`HISTORIES_READ_MAX`](crate::limits::HISTORIES_READ_MAX) runs, in their
    /// order. One that cannot be read is an error of its run alone.
    async fn histories(&self, runs: &[RunId]) -> Answers<Vec<TurnRecord>>;

    // --- inbox ---

    /// Appends messages to inboxes, and makes runs that nobody holds ready: one atomic change per
    /// message. Messages of one call to one run keep their order. Answers each message's position, and whether
    /// the run was asked to stop before.
    ///
    /// Repeating a message with the same id returns the first answer, even when the run has ended since.
    ///
    /// A message that needs a higher [format](crate::format) than its run has raises that of the run.
    ///
    /// Refuses with `NotFound`, `Conflict` when the run has ended or the worker that holds it cannot read the message
    /// (what a turn's outbox sends is not refused for that: the run goes to a worker that can when it is let go of),
    /// `Limit` when the inbox is full (not for messages [exempt](crate::MessageBody::is_exempt_from_limit) from it) or
    /// a hook's payload would be one too many that nobody has taken.
    ///
    /// A stuck run keeps its messages and stays stuck. A message by which a run
    /// [can be ended](crate::EndableWithoutCode::can_end) without its code makes it ready for every worker, a stuck
    /// one too, whichever builds failed; so does one that came before the run got stuck.
    async fn send(&self, messages: Vec<NewMessage>) -> Answers<Sent>;

    /// The messages behind position `after`, in order, at most
    /// [`INBOX_READ_MAX`](crate::limits::INBOX_READ_MAX). Refuses with `NotFound`.
    async fn inbox(&self, run: RunId, after: u64) -> Result<Vec<Message>, WorldError>;

    // --- work ---

    /// Opens a session. Repeating it changes nothing. No run is written: a stuck run is ready for every build that
    /// has not failed to continue it, joined before or after.
    ///
    /// Refuses with `Limit` when the queues are too many or their names too long, `Invalid` when one has none.
    async fn join(&self, join: Join) -> Result<(), WorldError>;

    /// Renews the session, and keeps what its worker says of itself, for [`World::workers`]. Also keeps the
    /// details of attempts at steps of runs that the session holds; those of other runs are ignored, except that
    /// details of ended runs may be forgotten. Refuses with `Fenced` when it is gone.
    async fn beat(
        &self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
    ) -> Result<Beat, WorldError>;

    /// The runs that the session holds, in order of their ids. Takes no lock, so what it answers may be over by
    /// then. Refuses with `Fenced`.
    async fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError>;

    /// Ends the session: the runs it still holds are ready for others. Repeating it changes nothing.
    async fn leave(&self, session: SessionId) -> Result<(), WorldError>;

    /// Ends every other session whose worker is gone (its lock is free) or whose time is over, makes
    /// their runs ready and counts the crash by [`Released`](crate::Released). Answers how many runs that were.
    /// The session is fenced first and its runs are freed afterwards; not as one change, if there are many.
    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError>;

    /// Gives the session runs that are ready, the lowest [rank](crate::queue::rank) first, at equal ranks the
    /// lowest id, and the unread messages of those it holds. Atomic per run. A run that cannot be read is claimed
    /// with that as its history; it never fails the claim.
    ///
    /// A run is ready when nobody holds it, it has not ended, and it has unread messages, is due, new or stuck.
    /// Only runs whose queue, code and format the request has are given, except that those which need no code and
    /// those that are overdue need only the format: the rank of the former is as if they had priority 0, the latter
    /// come behind all others, the longest overdue first. Runs of the higher crash classes are given as
    /// [`SuspectRoom`](crate::SuspectRoom) says. A woken run
    /// is offered for [`PREFERENCE`](crate::limits::PREFERENCE) only to the session that last held it,
    /// while that one lives. A run is given to no build that [failed](crate::FailedBuilds) to continue it, unless
    /// resumed or to be ended without code. A claimed run keeps why it was stuck until it progresses.
    ///
    /// Refuses with `Fenced` when the session is gone.
    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError>;

    /// Commits turns, each all or nothing: events, the row of [`RowChange`](crate::RowChange), counts, and the
    /// turn's [outbox](crate::turn::Outbox). The outbox of a stuck turn is ignored.
    ///
    /// A turn is accepted only from the session that holds its run and only on the turn it was
    /// computed from; repeating a committed turn that is still the run's last answers as before.
    /// A turn [from a start](crate::turn::BasedOn::Start) also does what `start` does; the session
    /// then holds the run, or nothing was written and the answer names the run that existed.
    /// When a run waits or is released with unread messages, it is ready at once.
    ///
    /// A turn whose events need a higher [format](crate::format) than the run has raises that of the run.
    ///
    /// Refuses with `Fenced`; with `Conflict` when `fired_until` passes over an unread message, or a
    /// start's key is another run's.
    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed>;

    /// The joined workers, in order of their sessions.
    async fn workers(&self) -> Result<Vec<WorkerView>, WorldError>;

    /// Makes a run that nobody holds ready for every build, those that failed to continue it included. Refuses
    /// with `NotFound`, `Conflict` when it has ended or a session holds it.
    async fn resume(&self, run: RunId) -> Result<(), WorldError>;

    /// Who keeps a turn of the run from being written now, and since when, for a person. `None` when nobody does, or
    /// the world cannot tell.
    async fn blocked_by(&self, run: RunId) -> Result<Option<String>, WorldError> {
        let _ = run;
        Ok(None)
    }

    // --- wake-up ---

    /// Completes when something may have become ready since `epoch` (of the last claim), or when the
    /// clock shows `until`. A hint: the truth is in the next claim. The work that follows is under
    /// way as long as the returned [`Busy`] lives.
    async fn changed(&self, epoch: u64, until: Timestamp) -> Busy;

    // --- upkeep ---

    /// Applies entries of outboxes that were committed and not applied yet, of any run. A world that applies
    /// them with the commit has nothing to do.
    async fn deliver(&self, session: SessionId) -> Result<Delivered, WorldError> {
        let _ = session;
        Ok(Delivered::default())
    }

    /// Forgets runs that ended before a moment, with their histories, inboxes and tags: of the runs
    /// behind `after`, in order of their ids, at most `limit` (and at most
    /// [`PRUNE_RUNS_MAX`](crate::limits::PRUNE_RUNS_MAX)) are looked at. Their keys are free. Repeat it
    /// with the answer's `next` until that is `None`. Atomic per call, and bounded.
    async fn prune(
        &self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Pruned, WorldError>;

    /// The id of a run to start with this key, made of random bits. Pure. A partitioned world puts a run where its
    /// key is; others return the bits.
    fn run_id(&self, key: Option<&str>, bits: u128) -> RunId {
        let _ = key;
        RunId::from_bits(bits)
    }

    /// The world's clock, the only one that counts.
    fn clock(&self) -> Arc<dyn Clock>;

    /// What this world is, and what it promises.
    fn describe(&self) -> Description;
}

/// What a world is, and what it promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The kind of world: `memory`, `sqlite`.
    pub kind: &'static str,
    /// Where it is, without secrets.
    pub place: String,
    /// What an acknowledged change survives.
    pub durability: String,
    /// How changes by other processes are noticed.
    pub hints: String,
    /// How many commits of one session may be under way at the same time. A world that writes one after the
    /// other says 1: its batches are larger.
    pub lanes: usize,
    /// When the outbox of a turn is applied.
    pub effects: Effects,
}

/// When a world applies the outbox of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// In the same change as the turn.
    Inline,
    /// After the commit has answered, in order, by [`World::deliver`] or by itself.
    Deferred,
}

/// The answer of [`World::deliver`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// How many entries were applied.
    pub applied: u64,
    /// How many are left; at least this many.
    pub left: u64,
}
