//! A place in a history that is replayed.

use outlast_core::{Event, Timestamp, TurnRecord};

use super::trail::Trail;

/// A place in a history.
pub(super) struct Cursor {
    turns: std::vec::IntoIter<TurnRecord>,
    events: std::vec::IntoIter<Event>,
    pub(super) at: Timestamp,
    pub(super) trail: Trail,
}

impl Cursor {
    pub(super) fn new(history: Vec<TurnRecord>) -> Self {
        Self {
            turns: history.into_iter(),
            events: Vec::new().into_iter(),
            at: Timestamp::from_micros(0),
            trail: Trail::default(),
        }
    }

    /// The time of the turn that has the next event.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        if !self.events.as_slice().is_empty() {
            return Some(self.at);
        }
        self.turns.as_slice().iter().find(|turn| !turn.events.is_empty()).map(|turn| turn.at)
    }

    pub(super) fn next(&mut self) -> Option<Event> {
        loop {
            match self.events.next() {
                // A patch has no place among the operations: its answer is known before the replay.
                Some(Event::VersionChosen { .. }) => continue,
                Some(event) => return Some(event),
                None => {}
            }
            let turn = self.turns.next()?;
            self.at = turn.at;
            self.events = turn.events.into_iter();
        }
    }
}
