//! Turns on their way to the writer.

use std::sync::Arc;

use outlast_core::turn::From;
use outlast_core::{Event, Outcome, RunId, SessionId, Then, Timestamp, Turn, TurnId, Wait, WorldError};

use crate::beyond::NewBeyond;
use crate::error::Refusal;

/// Room for the events of an ordinary turn.
const EVENTS_BYTES: usize = 256;

/// A turn, written out by the caller so that the writer does not have to.
pub(crate) struct NewTurn {
    pub(crate) session: SessionId,
    pub(crate) turn: Terms,
    pub(crate) run: String,
    pub(crate) id: String,
    /// How many events it adds, and their text.
    pub(crate) added: u64,
    pub(crate) events: String,
    pub(crate) waits: String,
    /// How the run ended, if the turn ends it.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) begins: bool,
    /// What it does beyond its own history, or why that cannot be written.
    pub(crate) beyond: Result<Option<Box<NewBeyond>>, WorldError>,
}

/// What a turn says, apart from its events.
pub(crate) struct Terms {
    pub(crate) run: RunId,
    pub(crate) id: TurnId,
    pub(crate) from: From,
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
    pub(crate) build: Arc<str>,
    pub(crate) consumed: u64,
    pub(crate) fired_until: Option<Timestamp>,
    /// Whether the run's row remembers what the turn clears, so that it must be written.
    pub(crate) clears_row: bool,
    pub(crate) clears_deadline: bool,
    pub(crate) then: Then,
}

impl NewTurn {
    pub(crate) fn encode(session: SessionId, turn: &Turn) -> Self {
        let mut text = String::with_capacity(EVENTS_BYTES);
        let added = match (&turn.then, &turn.from) {
            // A stuck turn adds nothing of its own; if it starts the run, that is all it records.
            (Then::Stuck(_), From::Turn(_)) => 0,
            (Then::Stuck(_), From::Start(start)) => write_events(&[start.event()], &mut text),
            _ => write_events(&turn.events, &mut text),
        };
        let (waits, then) = match &turn.then {
            Then::Wait { wake_at, waits } => {
                (write_waits(waits), Then::Wait { wake_at: *wake_at, waits: Vec::new() })
            }
            then => ("[]".into(), then.clone()),
        };
        Self {
            session,
            run: turn.run.to_string(),
            id: turn.id.to_string(),
            added,
            events: text,
            waits,
            outcome: turn.events.last().and_then(Outcome::of_final),
            begins: matches!(turn.events.first(), Some(Event::RunStarted(_))),
            beyond: match (&turn.then, &turn.beyond) {
                (Then::Stuck(_), _) | (_, None) => Ok(None),
                (_, Some(beyond)) => NewBeyond::encode(beyond).map(|beyond| Some(Box::new(beyond))),
            },
            turn: Terms {
                run: turn.run,
                id: turn.id,
                from: turn.from.clone(),
                seq: turn.seq,
                at: turn.at,
                build: turn.build.clone(),
                consumed: turn.consumed,
                fired_until: turn.fired_until,
                clears_row: turn.clears_crashes || turn.clears_deadline,
                clears_deadline: turn.clears_deadline,
                then,
            },
        }
    }

    /// Refuses a turn that could not be written out.
    pub(crate) fn check(&self) -> Result<(), WorldError> {
        self.beyond.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.turn.seq + self.added
    }

    pub(crate) fn fenced(&self, why: &str) -> Refusal {
        WorldError::Fenced(format!("turn {} of run {} is refused: {why}; forget the run", self.id, self.run))
            .into()
    }

    pub(crate) fn invalid(&self, why: &str) -> Refusal {
        WorldError::Invalid(format!("turn {} of run {} makes no sense: {why}", self.id, self.run)).into()
    }
}

fn write_events(events: &[Event], text: &mut String) -> u64 {
    Event::write_all(events, text);
    events.len() as u64
}

/// Waits are plain numbers and names, so writing them cannot fail.
fn write_waits(waits: &[Wait]) -> String {
    serde_json::to_string(waits).unwrap_or_else(|_| "[]".into())
}
