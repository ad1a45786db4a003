//! Sessions and claims.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{OpNumber, TurnRecord};
use crate::id::{RunId, SessionId, TurnId};
use crate::message::Message;
use crate::payload::Payload;
use crate::queue::{check_workflow_name, step_of_workflow};
use crate::report::Report;
use crate::state::HolderColumns;
use crate::takeover::is_suspect;
use crate::time::Timestamp;

/// A worker that joins a world.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// The id of the session, chosen by the worker.
    pub session: SessionId,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The build of its code. It can claim runs that are stuck with another build.
    pub build: Arc<str>,
    /// The workflows that it has code for.
    pub code: Arc<[Code]>,
    /// The queues it serves, each once; at most [`QUEUES_MAX`](crate::limits::QUEUES_MAX).
    pub queues: Arc<[Arc<str>]>,
    /// How long the session lasts without a beat.
    pub time: Duration,
    /// The highest rules that its build knows; see [`RULES`](crate::event::RULES). New runs get the highest rules that
    /// all joined sessions know.
    pub rules: u32,
    /// The highest durable format that its build can read.
    pub format: u32,
}

impl Join {
    /// The highest rules of new runs that the worker can execute: it knows them, and can read the format that belongs
    /// to them.
    pub fn readable_rules(&self) -> u32 {
        crate::format::readable_rules(self.rules, self.format)
    }
}

/// A workflow that a worker has code for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    /// The workflow's name.
    pub workflow: Arc<str>,
    /// The workflow's version.
    pub version: u32,
}

/// A joined worker, as clients see it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkerView {
    /// Its session.
    pub session: SessionId,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The build of its code.
    pub build: String,
    /// When it joined.
    pub joined_at: Timestamp,
    /// The time of its last beat; the time of its join if there was none.
    pub beat_at: Timestamp,
    /// When its session expires unless it beats before.
    pub expires_at: Timestamp,
    /// How many runs it holds.
    pub held: u64,
    /// The workflows that it has code for; they include one for each step that can be queued.
    pub code: Vec<Code>,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// The report of its last beat; the initial report if there was none.
    pub report: Report,
    /// The version of the library that its program was built with: [`VERSION`](crate::VERSION), and a suffix of the
    /// world. `None` for programs that do not report it.
    pub version: Option<String>,
    /// The highest durable format that its build can read: it is given no run that needs a higher one.
    pub format: u32,
}

impl WorkerView {
    /// The view of a session of which nothing else is known. The world sets the other fields.
    pub fn of_session(session: SessionId) -> Self {
        let unknown = Timestamp::from_micros(0);
        Self {
            session,
            host: String::new(),
            pid: 0,
            build: String::new(),
            joined_at: unknown,
            beat_at: unknown,
            expires_at: unknown,
            held: 0,
            code: Vec::new(),
            queues: Vec::new(),
            report: Report::default(),
            version: None,
            format: 0,
        }
    }

    /// The workflows of its program, without those that are queued steps or built in.
    pub fn workflows(&self) -> impl Iterator<Item = &Code> {
        self.code.iter().filter(|code| check_workflow_name(&code.workflow).is_ok())
    }

    /// The names of the steps that it attempts when they are queued and it serves their queue.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.code.iter().filter_map(|code| step_of_workflow(&code.workflow))
    }
}

/// The response to a beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// How many runs the session holds.
    pub held: u64,
    /// The rules that new runs get: the highest that all joined sessions know.
    pub rules: u32,
}

/// The details of an attempt's last heartbeat. They are stored outside the history until the attempt ends, so that the
/// next attempt can read them if the worker is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct HeartbeatDetails {
    /// The run.
    pub run: RunId,
    /// The step's operation.
    pub op: OpNumber,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The details; `None` when the attempt has ended and its stored details are no longer needed.
    pub details: Option<Payload>,
}

/// Which runs of the crash classes 2, 3 and 4 a claim may assign; see [`takeover`](crate::takeover).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspectRoom {
    /// None: the worker has reached its limit.
    Nothing,
    /// Those of one class, whichever comes first: the worker has none. The limit of each class is
    /// [`class_room`](crate::takeover::class_room) with a capacity of `room` runs.
    AnyClass {
        /// The capacity of the worker.
        room: usize,
    },
    /// Those of one class, of which the worker already has some.
    Class {
        /// The class.
        class: u32,
        /// How many more it may have.
        room: usize,
    },
    /// One run of class 4 and no other run, if there is one; otherwise like `AnyClass`. The first claim of a session
    /// uses it, so that a run that crashes its worker is alone.
    TrialFirst {
        /// The capacity of the worker.
        room: usize,
    },
}

impl SuspectRoom {
    /// Whether a claim with this room may have left runs that are ready, because of their crash class; `claimed` are the
    /// crashes of the runs that it assigned. [`Work::next_due`] does not count such runs, and the world does not announce
    /// when the worker can claim them: that is when its own suspects have ended or are cleared.
    pub fn may_leave_ready(self, claimed: impl IntoIterator<Item = u32>) -> bool {
        matches!(self, Self::Nothing | Self::Class { .. }) || claimed.into_iter().any(is_suspect)
    }
}

/// The request of a claim.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The maximum number of runs; at most [`CLAIM_RUNS_MAX`](crate::limits::CLAIM_RUNS_MAX). With 0 no run is
    /// claimed, and the response only contains unread messages.
    pub limit: usize,
    /// The workflows that it has code for, each once.
    pub code: Arc<[Code]>,
    /// The queues it serves, each once.
    pub queues: Arc<[Arc<str>]>,
    /// The build of its code.
    pub build: Arc<str>,
    /// The highest durable format that it can read.
    pub format: u32,
    /// Which runs that may have crashed a worker it may be assigned.
    pub suspects: SuspectRoom,
    /// From this time on it may be assigned runs without their code in order to end them: runs that no session holds
    /// and whose deadline passed more than [`DEADLINE_GRACE`](crate::limits::DEADLINE_GRACE) ago.
    pub ends_overdue_from: Timestamp,
}

/// The response to a claim.
#[derive(Clone, Debug)]
pub struct Work {
    /// Runs that the session holds from now on.
    pub claimed: Vec<Claimed>,
    /// Unread messages of runs that the session already held, at most
    /// [`INBOX_READ_MAX`](crate::limits::INBOX_READ_MAX) per run, in order. A message is returned again until a commit
    /// has consumed it.
    pub unread: Vec<UnreadMessages>,
    /// When the next run that this worker could claim is due; `None` when there is none.
    pub next_due: Option<Timestamp>,
    /// The world's change counter at the time of the claim, for [`World::changed`](crate::World::changed).
    pub epoch: u64,
}

/// A claimed run, with everything that is needed to continue it.
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
    /// The number of its next event.
    pub seq: u64,
    /// The time of its last turn.
    pub turn_at: Timestamp,
    /// The number of messages that it has consumed.
    pub consumed: u64,
    /// The messages after those, at most [`INBOX_READ_MAX`](crate::limits::INBOX_READ_MAX), in order.
    pub inbox: Vec<Message>,
    /// The columns of its row that only its holder changes.
    pub columns: Arc<HolderColumns>,
    /// Whether it has not had a turn: a cancel can then end it without code.
    pub is_fresh: bool,
    /// Whether it [can be ended](crate::EndableWithoutCode::can_end) without its code, because of an unread message.
    pub can_end_without_code: bool,
    /// Whether it is overdue and was assigned in order to be ended, with or without its code.
    pub is_overdue: bool,
    /// Its history.
    pub history: ClaimedHistory,
    /// The heartbeat details of attempts whose worker was lost.
    pub details: Vec<HeartbeatDetails>,
}

/// The history of a claimed run.
#[derive(Clone, Debug)]
pub enum ClaimedHistory {
    /// All that a replay needs of it: the turns from [`replay_from`](HolderColumns::replay_from) on.
    Whole(Vec<TurnRecord>),
    /// Omitted, because the session held the run last and probably still has its future, or because the history is
    /// long. [`World::histories`](crate::World::histories) reads it.
    LeftOut,
    /// This build cannot read the history or an unread message. This affects only this run; the inbox of the claimed
    /// run is then empty.
    Unreadable(String),
}

impl ClaimedHistory {
    /// The history, if the claim contains it.
    pub fn whole(self) -> Option<Vec<TurnRecord>> {
        match self {
            Self::Whole(history) => Some(history),
            Self::LeftOut | Self::Unreadable(_) => None,
        }
    }
}

/// Unread messages of a held run.
#[derive(Clone, Debug)]
pub struct UnreadMessages {
    /// The run.
    pub run: RunId,
    /// The messages, in order.
    pub messages: Vec<Message>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_leaves_ready_runs_if_its_room_or_a_suspect_excludes_them() {
        let (room, class) = (100, 3);
        for claims_all in [SuspectRoom::AnyClass { room }, SuspectRoom::TrialFirst { room }] {
            assert!(!claims_all.may_leave_ready([]));
            assert!(!claims_all.may_leave_ready([0, 1]));
            assert!(claims_all.may_leave_ready([0, 2]), "a worker carries one class at a time");
            assert!(claims_all.may_leave_ready([4]));
        }
        assert!(SuspectRoom::Nothing.may_leave_ready([]));
        assert!(SuspectRoom::Class { class, room }.may_leave_ready([]));
    }
}
