//! Turns: what one pass over a run commits, all or nothing.

use std::sync::Arc;

use crate::event::{Event, TurnRecord};
use crate::id::{RunId, SessionId, TurnId};
use crate::message::NewMessage;
use crate::run::{Start, Started, Status, Stuck, Tags, Wait};
use crate::time::Timestamp;

/// What a turn writes. The id is made before the first try, so that a repeat is recognised.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// The run.
    pub run: RunId,
    /// The turn's id.
    pub id: TurnId,
    /// What the turn was computed from.
    pub from: From,
    /// The number of the turn's first event in the history.
    pub seq: u64,
    /// The turn's time.
    pub at: Timestamp,
    /// The build of the worker that computed it.
    pub build: Arc<str>,
    /// What it adds to the history; may be empty when the turn only lets go of the run.
    pub events: Vec<Event>,
    /// How many messages of the inbox the run has consumed, this turn's included.
    pub consumed: u64,
    /// The latest moment of the timers the turn fired. The turn is refused if a message was accepted
    /// up to then that it has not consumed: an answer given in time does not lose against its timeout.
    pub fired_until: Option<Timestamp>,
    /// Whether the run's row remembers crashes, which this commit clears.
    pub clears_crashes: bool,
    /// Whether the run's deadline no longer counts: the run was told to stop.
    pub clears_deadline: bool,
    /// What it does beyond its own history. Most turns do nothing there.
    pub beyond: Option<Box<Beyond>>,
    /// What becomes of the run.
    pub then: Then,
}

/// What a turn does beyond its own history, as one change with it. Nothing here fails the commit: what
/// cannot be done becomes a message to the run, or comes to nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beyond {
    /// Runs to start.
    pub children: Vec<NewChild>,
    /// Messages of the engine to other runs. One to a run that is not there, or has ended, is dropped.
    pub messages: Vec<NewMessage>,
    /// Tags that the run's row gets; those of other names stay.
    pub tags: Tags,
}

impl Beyond {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.children.is_empty() && self.messages.is_empty() && self.tags.is_empty()
    }
}

/// A child to start.
///
/// It is started as any run. When its start is refused, or its key names another run, the parent gets
/// [`Refused`](crate::MessageBody::Refused) for the operation. A child that `wants_answer` and is
/// started, or whose key names a run of the same workflow and input, gives the parent
/// [`ChildStarted`](crate::MessageBody::ChildStarted).
#[derive(Clone, Debug, PartialEq)]
pub struct NewChild {
    /// The start; its parent is set.
    pub start: Start,
    /// Whether the parent waits to learn which run it is.
    pub wants_answer: bool,
}

/// What a turn was computed from.
#[derive(Clone, Debug, PartialEq)]
pub enum From {
    /// The run's state after this turn.
    Turn(TurnId),
    /// Nothing: the turn starts the run, which its session then holds.
    Start(Box<Start>),
}

/// What becomes of a run after a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// The session goes on holding it.
    Hold,
    /// It is released, and waits.
    Wait {
        /// When it is due by itself.
        wake_at: Option<Timestamp>,
        /// What it waits for.
        waits: Vec<Wait>,
    },
    /// It is released, ready to go on at once: its worker stops.
    Release,
    /// It has ended; the last event is final and says how.
    End(Status),
    /// It is released, and stuck. Nothing is consumed and nothing added to the history.
    Stuck(Stuck),
}

impl Turn {
    /// The turn as history records it.
    pub fn record(&self) -> TurnRecord {
        TurnRecord {
            id: self.id,
            seq: self.seq,
            at: self.at,
            build: self.build.clone(),
            events: self.events.clone(),
        }
    }
}

/// What a commit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The turn is durable.
    Done,
    /// The turn would have started a run that its key already named: nothing was written.
    Existed(Started),
}

/// A run that a session holds, as the world knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The run.
    pub run: RunId,
    /// Its last turn.
    pub turn: TurnId,
    /// The number its next event gets.
    pub seq: u64,
    /// The session that holds it.
    pub session: SessionId,
}
