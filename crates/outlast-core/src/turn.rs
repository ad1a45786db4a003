//! Turns: what one pass over a run commits, all or nothing.

use std::sync::Arc;

use crate::event::{Event, TurnRecord};
use crate::id::{RunId, SessionId, TurnId};
use crate::message::NewMessage;
use crate::run::{Start, Started, Status, Stuck, Tags, Wait};
use crate::state::{HolderColumns, TurnColumns};
use crate::time::Timestamp;
use crate::work::Claimed;

/// What a turn writes. The id is made before the first try, so that a repeat is recognised.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// The run.
    pub run: RunId,
    /// The turn's id.
    pub id: TurnId,
    /// What the turn was computed from.
    pub based_on: BasedOn,
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
    /// The columns of the run's row that only the holder changes, before and after the turn.
    pub columns: TurnColumns,
    /// What it does to other runs. Most turns do nothing there.
    pub outbox: Option<Box<Outbox>>,
    /// What becomes of the run.
    pub then: Then,
}

/// What a turn does to other runs, and to what runs are found by.
///
/// The turn and its outbox are one change. Each entry is applied before the commit answers, or later: at
/// least once, in order per source run and target run, recognised by its id. A run with entries that are not
/// delivered is not pruned. Nothing here fails the commit: what the target refuses becomes a message to the
/// run, or comes to nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outbox {
    /// Runs to start.
    pub children: Vec<NewChild>,
    /// Messages of the engine to other runs. One to a run that is not there, or has ended, is dropped.
    pub messages: Vec<NewMessage>,
    /// Tags that the run's row gets; those of other names stay.
    pub tags: Tags,
}

impl Outbox {
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
pub enum BasedOn {
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
    /// A turn that follows another one, as far as all of them are alike: it adds and consumes nothing, and holds on.
    pub fn following(last: &LastTurn, id: TurnId, at: Timestamp, build: Arc<str>) -> Self {
        Self {
            run: last.run,
            id,
            based_on: BasedOn::Turn(last.turn),
            seq: last.seq,
            at,
            build,
            events: Vec::new(),
            consumed: last.consumed,
            fired_until: None,
            columns: TurnColumns::unchanged(last.columns.clone()),
            outbox: None,
            then: Then::Hold,
        }
    }

    /// A turn that starts its run, and holds on.
    pub fn starting(start: Start, id: TurnId, at: Timestamp, build: Arc<str>) -> Self {
        Self {
            run: start.run,
            id,
            seq: 0,
            at,
            build,
            events: vec![start.event()],
            consumed: 0,
            fired_until: None,
            columns: TurnColumns::unchanged(HolderColumns::of_start(&start)),
            based_on: BasedOn::Start(Box::new(start)),
            outbox: None,
            then: Then::Hold,
        }
    }

    /// The number that the run's next event gets after the turn. A stuck turn adds nothing, except that one
    /// which starts its run records the start.
    pub fn next_event(&self) -> u64 {
        match (&self.then, &self.based_on) {
            (Then::Stuck(_), BasedOn::Turn(_)) => self.seq,
            (Then::Stuck(_), BasedOn::Start(_)) => 1,
            _ => self.seq + self.events.len() as u64,
        }
    }

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

/// What a turn follows: where its run is.
#[derive(Clone, Debug, PartialEq)]
pub struct LastTurn {
    /// The run.
    pub run: RunId,
    /// Its last turn.
    pub turn: TurnId,
    /// The number that its next event gets.
    pub seq: u64,
    /// How many messages it has consumed.
    pub consumed: u64,
    /// What only its holder changes of its row.
    pub columns: Arc<HolderColumns>,
}

impl LastTurn {
    /// Where a run is that has consumed nothing, and whose row is as after its start.
    pub fn new(run: RunId, turn: TurnId, seq: u64) -> Self {
        Self { run, turn, seq, consumed: 0, columns: Arc::default() }
    }

    /// Where a claimed run is.
    pub fn of(claimed: &Claimed) -> Self {
        let Claimed { run, turn, seq, consumed, columns, .. } = claimed;
        Self { run: *run, turn: *turn, seq: *seq, consumed: *consumed, columns: columns.clone() }
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
#[derive(Clone, Debug, PartialEq)]
pub struct HeldRun {
    /// The run.
    pub run: RunId,
    /// Its last turn.
    pub turn: TurnId,
    /// The number its next event gets.
    pub seq: u64,
    /// The session that holds it.
    pub session: SessionId,
    /// What only the holder changes of its row.
    pub columns: Arc<HolderColumns>,
}
