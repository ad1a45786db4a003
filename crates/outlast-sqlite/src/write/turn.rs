//! Turns, encoded on the caller's thread.

use std::fmt;
use std::sync::Arc;

use outlast_core::turn::BasedOn;
use outlast_core::{
    CommitTerms, Event, Outcome, RowChange, SessionId, Start, Then, Timestamp, Turn, Wait, WorldError,
};
use parking_lot::Mutex;

use crate::write::outbox::EncodedOutbox;

/// The number of commits that a session makes at the same time: one is encoded while the other one is written.
pub(crate) const COMMIT_CONCURRENCY: usize = 2;

/// The number of turns from which the vector of a batch is used again.
const LARGE_BATCH: usize = 64;

/// The initial capacity for the events of a turn, in bytes.
const EVENTS_BYTES: usize = 256;

/// A turn, encoded on the caller's thread to relieve the writer.
pub(crate) struct EncodedTurn {
    pub(crate) session: SessionId,
    /// What core needs to decide whether the turn is accepted.
    pub(crate) terms: CommitTerms,
    /// The change of the run's row, without the waits.
    pub(crate) change: RowChange<'static>,
    pub(crate) waits: String,
    pub(crate) run: String,
    pub(crate) id: String,
    pub(crate) at: Timestamp,
    pub(crate) build: Arc<str>,
    /// The number of events that the turn adds, and their JSON.
    pub(crate) added: u64,
    pub(crate) events: String,
    /// How the run ended, if the turn ends it.
    pub(crate) outcome: Option<Outcome>,
    /// The start of the run, if the turn starts it.
    pub(crate) start: Option<Box<Start>>,
    /// The effects on other runs, or why they cannot be encoded.
    pub(crate) outbox: Result<Option<Box<EncodedOutbox>>, WorldError>,
}

impl EncodedTurn {
    /// Encodes a turn that this session commits.
    pub(crate) fn encode(session: SessionId, turn: &Turn) -> Self {
        let mut text = String::with_capacity(EVENTS_BYTES);
        let is_stuck = matches!(turn.then, Then::Stuck(_));
        let added = match &turn.based_on {
            // A stuck turn adds no events; if it starts the run, it records only the start.
            BasedOn::Turn(_) if is_stuck => 0,
            BasedOn::Start(start) if is_stuck => write_events(&[start.event()], &mut text),
            _ => write_events(&turn.events, &mut text),
        };
        let change = RowChange::of(turn, session);
        Self {
            session,
            terms: CommitTerms::of(turn),
            waits: write_waits(change.waits),
            run: turn.run.to_string(),
            id: turn.id.to_string(),
            at: turn.at,
            build: turn.build.clone(),
            added,
            events: text,
            outcome: turn.events.last().filter(|_| change.has_ended()).and_then(Outcome::of_final),
            change: change.drop_waits(),
            start: match &turn.based_on {
                BasedOn::Start(start) => Some(start.clone()),
                BasedOn::Turn(_) => None,
            },
            outbox: match &turn.outbox {
                Some(outbox) if !is_stuck => {
                    EncodedOutbox::encode(turn.id, outbox).map(|outbox| Some(Box::new(outbox)))
                }
                _ => Ok(None),
            },
        }
    }

    /// Refuses a turn whose outbox could not be encoded.
    pub(crate) fn check(&self) -> Result<(), WorldError> {
        self.outbox.as_ref().map(|_| ()).map_err(Clone::clone)
    }
}

/// The empty vectors of earlier large batches, which later ones use again: allocating that much memory takes long.
#[derive(Default)]
pub(crate) struct SpareBatches(Mutex<Vec<Vec<EncodedTurn>>>);

impl SpareBatches {
    /// An empty vector for a batch of this many turns.
    pub(crate) fn take(&self, turns: usize) -> Vec<EncodedTurn> {
        let spare = if turns >= LARGE_BATCH { self.0.lock().pop() } else { None };
        spare.unwrap_or_else(|| Vec::with_capacity(turns))
    }

    /// Keeps the vector of a batch that was written.
    pub(crate) fn put(&self, mut batch: Vec<EncodedTurn>) {
        batch.clear();
        let mut spare = self.0.lock();
        if batch.capacity() >= LARGE_BATCH && spare.len() < COMMIT_CONCURRENCY {
            spare.push(batch);
        }
    }
}

impl fmt::Debug for SpareBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpareBatches({})", self.0.lock().len())
    }
}

fn write_events(events: &[Event], text: &mut String) -> u64 {
    Event::write_all(events, text);
    events.len() as u64
}

/// The waits as JSON. They contain only numbers and names, so the conversion cannot fail.
fn write_waits(waits: &[Wait]) -> String {
    if waits.is_empty() {
        return "[]".into();
    }
    serde_json::to_string(waits).unwrap_or_else(|_| "[]".into())
}
