//! Work: sessions, and what a worker claims under one.

use std::sync::Arc;
use std::time::Duration;

use crate::event::TurnRecord;
use crate::id::{RunId, SessionId, TurnId};
use crate::message::Message;
use crate::queue::step_of_workflow;
use crate::report::Report;
use crate::time::Timestamp;

/// A worker that joins a world.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// The session's id, made by the worker.
    pub session: SessionId,
    /// The machine it works on.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The build of its code. Runs that another build left stuck become ready for it.
    pub build: Arc<str>,
    /// The workflows it has the code of.
    pub code: Arc<[Code]>,
    /// The queues it serves, each once; at most [`QUEUES_MAX`](crate::limits::QUEUES_MAX).
    pub queues: Arc<[Arc<str>]>,
    /// How long the session lasts without a beat.
    pub time: Duration,
}

/// A workflow that a worker has the code of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    /// The workflow's name.
    pub workflow: Arc<str>,
    /// The workflow's version.
    pub version: u32,
}

/// A joined worker as the outside sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    /// Its session.
    pub session: SessionId,
    /// The machine it works on.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The build of its code.
    pub build: String,
    /// When it joined.
    pub joined_at: Timestamp,
    /// When its last beat was; when it joined if there was none.
    pub beat_at: Timestamp,
    /// When its session expires unless it beats before.
    pub expires_at: Timestamp,
    /// How many runs it holds.
    pub held: u64,
    /// The workflows it has the code of; each of its steps is one, for when it is queued.
    pub code: Vec<Code>,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// What it said of itself with its last beat; as if it had just begun if there was none.
    pub report: Report,
}

impl WorkerView {
    /// The workflows of its program, without those that are queued steps.
    pub fn workflows(&self) -> impl Iterator<Item = &Code> {
        self.code.iter().filter(|code| step_of_workflow(&code.workflow).is_none())
    }

    /// The names of the steps that it attempts when they are queued and it serves their queue.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.code.iter().filter_map(|code| step_of_workflow(&code.workflow))
    }
}

/// What a beat says back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// How many runs the session holds.
    pub held: u64,
}

/// Tells whether the caller still has the future of a run as it was after a turn.
pub type Known = Arc<dyn Fn(RunId, TurnId) -> bool + Send + Sync>;

/// What a worker asks for.
#[derive(Clone)]
pub struct ClaimRequest {
    /// How many runs at the most; at most [`CLAIM_RUNS_MAX`](crate::limits::CLAIM_RUNS_MAX). With 0
    /// nothing is claimed, and the answer only brings unread messages.
    pub limit: usize,
    /// The workflows it has the code of, each once.
    pub code: Arc<[Code]>,
    /// The queues it serves, each once.
    pub queues: Arc<[Arc<str>]>,
    /// The build of its code.
    pub build: Arc<str>,
    /// The highest durable format it can read.
    pub format: u32,
    /// Whether it may carry a suspect: it has none aboard.
    pub suspect: bool,
    /// From when on it may be given runs without having their code that nobody holds and that are past
    /// their deadline by [`DEADLINE_GRACE`](crate::limits::DEADLINE_GRACE), to end them.
    pub ends_overdue_from: Timestamp,
    /// Which runs need no history in the answer.
    pub known: Known,
}

impl std::fmt::Debug for ClaimRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimRequest")
            .field("limit", &self.limit)
            .field("code", &self.code)
            .field("queues", &self.queues)
            .field("suspect", &self.suspect)
            .finish_non_exhaustive()
    }
}

/// What a claim brings.
#[derive(Clone, Debug)]
pub struct Work {
    /// Runs that the session holds from now on.
    pub claimed: Vec<Claimed>,
    /// Messages that runs the session held before have not consumed, at most
    /// [`INBOX_READ_MAX`](crate::limits::INBOX_READ_MAX) per run, in order. A message is brought
    /// again until a commit has consumed it.
    pub unread: Vec<Unread>,
    /// When the next run that this worker could claim is due; `None` when none is in sight.
    pub next_due: Option<Timestamp>,
    /// The world's state of change as of the claim, for [`World::changed`](crate::World::changed).
    pub epoch: u64,
}

/// A run that a claim brought, with what is needed to go on.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: Arc<str>,
    /// The workflow's version.
    pub version: u32,
    /// Its last turn.
    pub turn: TurnId,
    /// The number its next event gets.
    pub seq: u64,
    /// The time of its last turn.
    pub turn_at: Timestamp,
    /// How many messages it has consumed.
    pub consumed: u64,
    /// The messages behind those, at most [`INBOX_READ_MAX`](crate::limits::INBOX_READ_MAX), in order.
    pub inbox: Vec<Message>,
    /// How often its worker crashed with it aboard since its last commit.
    pub crashes: u32,
    /// Whether it was never more than started: a cancel then needs no code.
    pub is_fresh: bool,
    /// Its deadline, as long as that counts.
    pub deadline: Option<Timestamp>,
    /// Whether it is given to be ended, whatever code the request has: it is overdue.
    pub is_overdue: bool,
    /// Its whole history, unless the request knew it.
    pub history: Option<Vec<TurnRecord>>,
}

/// Messages that a held run has not consumed.
#[derive(Clone, Debug)]
pub struct Unread {
    /// The run.
    pub run: RunId,
    /// The messages, in order.
    pub messages: Vec<Message>,
}
