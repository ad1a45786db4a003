//! Turns: the atomic change of one pass over a run.

use std::sync::Arc;

use crate::event::{Event, TurnRecord};
use crate::id::{MessageId, RunId, SessionId, TurnId};
use crate::message::NewMessage;
use crate::reply::NewReply;
use crate::run::{Start, Started, Status, Stuck, Tags, Wait};
use crate::state::{HolderColumns, TurnColumns};
use crate::stream::WorkflowWrites;
use crate::time::Timestamp;
use crate::token::TokenChanges;
use crate::work::Claimed;

/// The content of a turn. Its id is chosen before the first commit, so that a repeated commit is recognised.
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
    /// The time of the turn.
    pub at: Timestamp,
    /// The build of the worker that computed it.
    pub build: Arc<str>,
    /// The events that it appends to the history; may be empty when the turn only releases the run.
    pub events: Vec<Event>,
    /// The number of messages of the inbox that the run has consumed, including those of this turn.
    pub consumed: u64,
    /// The latest due time of the timers that the turn fired. The turn is refused if the world accepted a message by
    /// then that the turn has not consumed: a payload that was sent in time must win over a timeout.
    pub fired_until: Option<Timestamp>,
    /// The columns of the run's row that only the holder changes, before and after the turn.
    pub columns: TurnColumns,
    /// Its effects on other runs. Most turns have none.
    pub outbox: Option<Box<Outbox>>,
    /// The state of the run after it.
    pub then: Then,
}

/// The effects of a turn on other runs, and on the tags, streams and state of its own run.
///
/// The turn and its outbox are written atomically. Each entry is applied before the commit returns, or later: at least
/// once, in order per source run and target run, and deduplicated by its id. A run with entries that are not applied
/// is not pruned. An entry never fails the commit: a refusal by the target becomes a message to the run, or is
/// ignored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outbox {
    /// Runs to start.
    pub children: Vec<NewChild>,
    /// Messages of the engine to other runs. A message to a run that does not exist or has ended is dropped.
    pub messages: Vec<NewMessage>,
    /// Tags to set in the row of the run; other tags stay.
    pub tags: Tags,
    /// What the workflow writes to the streams of the run, and the state that it publishes. A world always applies it
    /// with the turn; a repeated turn changes nothing.
    pub writes: WorkflowWrites,
    /// Tokens that the run frees and takes, in the directory of all runs. An entry may be applied later, like one for
    /// another run.
    pub tokens: TokenChanges,
    /// Replies of the run to messages that it has received. A world always stores them with the turn; the first reply to
    /// a message counts.
    pub replies: Vec<NewReply>,
}

impl Outbox {
    /// The id of the message that answers the `nth` token that the outbox takes. The answers to children precede it.
    pub fn token_answer(&self, turn: TurnId, nth: usize) -> MessageId {
        MessageId::of_answer(turn, self.children.len() + nth)
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        let has_no_effects = self.children.is_empty() && self.messages.is_empty() && self.tokens.is_empty();
        has_no_effects && self.tags.is_empty() && self.writes.is_empty() && self.replies.is_empty()
    }
}

/// A child to start.
///
/// It is started like any run. When its start is refused, or its key names another run, the parent receives
/// [`Refused`](crate::MessageBody::Refused) for the operation. If `notify_parent` is set, the parent receives
/// [`ChildStarted`](crate::MessageBody::ChildStarted) when the child is started, or when its key names a run of the
/// same workflow and input.
#[derive(Clone, Debug, PartialEq)]
pub struct NewChild {
    /// The start; its parent is set.
    pub start: Start,
    /// Whether the parent waits for the id of the run.
    pub notify_parent: bool,
}

/// What a turn was computed from.
#[derive(Clone, Debug, PartialEq)]
pub enum BasedOn {
    /// The run's state after this turn.
    Turn(TurnId),
    /// No earlier turn: it starts the run, which the session then holds.
    Start(Box<Start>),
}

/// The state of a run after a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// The session keeps holding it.
    Hold,
    /// It is released, and waits.
    Wait {
        /// When it is due without a message.
        wake_at: Option<Timestamp>,
        /// What it waits for.
        waits: Vec<Wait>,
    },
    /// It is released and immediately ready, because its worker stops.
    Release,
    /// It has ended; the last event contains the outcome.
    End(Status),
    /// It is released, and stuck. The turn consumes no messages and appends no events.
    Stuck(Stuck),
}

impl Turn {
    /// A template for a turn that follows another one: it appends and consumes nothing, and keeps the run held.
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

    /// Whether another turn with the same predecessor could not be recognized by its place in the history: this turn
    /// adds no events, or only marks the run as stuck. A world that commits concurrently commits such a turn alone.
    pub fn is_exclusive(&self) -> bool {
        matches!(self.based_on, BasedOn::Turn(_))
            && (self.events.is_empty() || matches!(self.then, Then::Stuck(_)))
    }

    /// A template for a turn that starts its run and keeps it held.
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

    /// The number of the run's next event after the turn. A stuck turn appends no events, except the start if it
    /// starts the run.
    pub fn next_event(&self) -> u64 {
        match (&self.then, &self.based_on) {
            (Then::Stuck(_), BasedOn::Turn(_)) => self.seq,
            (Then::Stuck(_), BasedOn::Start(_)) => 1,
            _ => self.seq + self.events.len() as u64,
        }
    }

    /// The turn as it is recorded in the history.
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

/// The position of a run, on which its next turn is based.
#[derive(Clone, Debug, PartialEq)]
pub struct LastTurn {
    /// The run.
    pub run: RunId,
    /// Its last turn.
    pub turn: TurnId,
    /// The number of its next event.
    pub seq: u64,
    /// The number of messages that it has consumed.
    pub consumed: u64,
    /// The holder's columns of its row.
    pub columns: Arc<HolderColumns>,
}

impl LastTurn {
    /// The position of a run that has consumed no messages and whose holder's columns are as after its start.
    pub fn new(run: RunId, turn: TurnId, seq: u64) -> Self {
        Self { run, turn, seq, consumed: 0, columns: Arc::default() }
    }

    /// The position of a claimed run.
    pub fn of(claimed: &Claimed) -> Self {
        let Claimed { run, turn, seq, consumed, columns, .. } = claimed;
        Self { run: *run, turn: *turn, seq: *seq, consumed: *consumed, columns: columns.clone() }
    }
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The turn is durable.
    Done,
    /// The key of the start already names this run: nothing was written.
    Existed(Started),
}

/// A run that a session holds according to the world.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldRun {
    /// The run.
    pub run: RunId,
    /// Its last turn.
    pub turn: TurnId,
    /// The number of its next event.
    pub seq: u64,
    /// The session that holds it.
    pub session: SessionId,
    /// The holder's columns of its row.
    pub columns: Arc<HolderColumns>,
}
