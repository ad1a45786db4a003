//! Work: sessions, and what a worker claims under one.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{OpNumber, TurnRecord};
use crate::id::{RunId, SessionId, TurnId};
use crate::message::Message;
use crate::payload::Payload;
use crate::queue::step_of_workflow;
use crate::report::Report;
use crate::state::HolderColumns;
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
    /// The highest rules that its build knows; see [`RULES`](crate::event::RULES). New runs get the lowest rules
    /// that every joined session knows.
    pub rules: u32,
    /// The highest durable format that its build can read.
    pub format: u32,
}

impl Join {
    /// The highest rules of new runs that the worker can work on: it knows them, and reads the format that goes with
    /// them.
    pub fn readable_rules(&self) -> u32 {
        crate::format::readable_rules(self.rules, self.format)
    }
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
    /// The version of the library that its program was built with; [`VERSION`](crate::VERSION), and what the world adds
    /// to it. `None` for a program from before workers said so.
    pub version: Option<String>,
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
    /// The rules that new runs get: the lowest that every joined session knows.
    pub rules: u32,
}

/// How far an attempt has come, as it said with its last heartbeat. Details are kept outside the history until
/// the attempt ends, so that the next attempt gets them when the worker is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct HeartbeatDetails {
    /// The run.
    pub run: RunId,
    /// The step's operation.
    pub op: OpNumber,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The details; `None` when the attempt has ended and what is kept of it is not needed any more.
    pub details: Option<Payload>,
}

/// Which runs of the crash classes 2, 3 and 4 a claim may give; see [`takeover`](crate::takeover).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspectRoom {
    /// None: the worker carries as many as it may.
    Nothing,
    /// Those of one class, whichever comes first: the worker carries none. Each class has
    /// [room](crate::takeover::class_room) for so many, of `room` runs in all.
    AnyClass {
        /// How many runs the worker carries at the most.
        room: usize,
    },
    /// Those of one class, of which the worker carries some.
    Class {
        /// The class.
        class: u32,
        /// How many more it may carry.
        room: usize,
    },
    /// One of the class 4 and nothing else, if there is one; otherwise like `AnyClass`. The first claim of a session
    /// asks so: a run that crashes its worker is then alone.
    TrialFirst {
        /// How many runs the worker carries at the most.
        room: usize,
    },
}

/// What a worker asks for.
#[derive(Clone, Debug)]
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
    /// Which runs it may be given that may have crashed a worker.
    pub suspects: SuspectRoom,
    /// From when on it may be given runs without having their code that nobody holds and that are past
    /// their deadline by [`DEADLINE_GRACE`](crate::limits::DEADLINE_GRACE), to end them.
    pub ends_overdue_from: Timestamp,
}

/// What a claim brings.
#[derive(Clone, Debug)]
pub struct Work {
    /// Runs that the session holds from now on.
    pub claimed: Vec<Claimed>,
    /// Messages that runs the session held before have not consumed, at most
    /// [`INBOX_READ_MAX`](crate::limits::INBOX_READ_MAX) per run, in order. A message is brought
    /// again until a commit has consumed it.
    pub unread: Vec<UnreadMessages>,
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
    /// The columns of its row that only its holder changes.
    pub columns: Arc<HolderColumns>,
    /// Whether it was never more than started: a cancel then needs no code.
    pub is_fresh: bool,
    /// Whether it is given to be ended, whatever code the request has: it is overdue.
    pub is_overdue: bool,
    /// What is needed to replay it.
    pub history: ClaimedHistory,
    /// The details of attempts that were lost with their worker.
    pub details: Vec<HeartbeatDetails>,
}

/// The history of a claimed run.
#[derive(Clone, Debug)]
pub enum ClaimedHistory {
    /// All of it.
    Whole(Vec<TurnRecord>),
    /// It is left out, because the session held the run last and probably has its future, or because it is
    /// long. What is missing is read by [`World::histories`](crate::World::histories).
    LeftOut,
    /// The history or an unread message cannot be read by this build: an error of this run alone. The inbox of
    /// the claimed run is then empty.
    Unreadable(String),
}

impl ClaimedHistory {
    /// The history, if the claim brought it.
    pub fn whole(self) -> Option<Vec<TurnRecord>> {
        match self {
            Self::Whole(history) => Some(history),
            Self::LeftOut | Self::Unreadable(_) => None,
        }
    }
}

/// Messages that a held run has not consumed.
#[derive(Clone, Debug)]
pub struct UnreadMessages {
    /// The run.
    pub run: RunId,
    /// The messages, in order.
    pub messages: Vec<Message>,
}
