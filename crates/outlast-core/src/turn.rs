//! Turns: what one pass over a run commits, all or nothing.

use std::sync::Arc;

use crate::event::{Event, TurnRecord};
use crate::id::{RunId, SessionId, TurnId};
use crate::run::{Start, Started, Status, Stuck, Wait};
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
    /// What becomes of the run.
    pub then: Then,
}

/// What a turn was computed from.
#[derive(Clone, Debug, PartialEq)]
pub enum From {
    /// The run's state after this turn.
    Turn(TurnId),
    /// Nothing: the turn starts the run, which its session then holds.
    Start(Start),
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
