//! The position in a history that is being replayed.

use std::ops::Range;

use outlast_core::cut::is_skipped;
use outlast_core::{Event, EventPlace, Timestamp, TurnRecord};

use super::divergence_report::DivergenceReport;

/// Iterates over the events of a history, with the time of the turn and the report in case of a divergence.
pub(super) struct Cursor {
    turns: std::vec::IntoIter<TurnRecord>,
    events: std::vec::IntoIter<Event>,
    /// The place of the event that was returned last.
    pub(super) place: EventPlace,
    pub(super) at: Timestamp,
    pub(super) report: DivergenceReport,
    skips: Vec<Range<u64>>,
}

impl Cursor {
    /// A cursor that skips events with these numbers.
    pub(super) fn new(history: Vec<TurnRecord>, skips: Vec<Range<u64>>) -> Self {
        let mut cursor = Self {
            turns: history.into_iter(),
            events: Vec::new().into_iter(),
            place: EventPlace::default(),
            at: Timestamp::from_micros(0),
            report: DivergenceReport::default(),
            skips,
        };
        cursor.find_event();
        cursor
    }

    /// The time of the turn that contains the next event.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        if !self.events.as_slice().is_empty() {
            return Some(self.at);
        }
        self.turns.as_slice().iter().find(|turn| !turn.events.is_empty()).map(|turn| turn.at)
    }

    /// The next event, without patches.
    pub(super) fn next(&mut self) -> Option<Event> {
        loop {
            match self.next_of_any_kind() {
                // Patches have no position among the operations: the index has them before the replay.
                Some(Event::VersionChosen { .. }) => {}
                next => return next,
            }
        }
    }

    fn next_of_any_kind(&mut self) -> Option<Event> {
        self.find_event();
        let event = self.events.next()?;
        self.place.event = self.place.event.wrapping_add(1);
        Some(event)
    }

    /// Moves to the next event that is not skipped, in this turn or a later one.
    fn find_event(&mut self) {
        loop {
            while !self.events.as_slice().is_empty() {
                if !is_skipped(&self.skips, self.place.event.wrapping_add(1)) {
                    return;
                }
                self.events.next();
                self.place.event = self.place.event.wrapping_add(1);
            }
            let Some(turn) = self.turns.next() else { return };
            self.at = turn.at;
            // One less: each event adds one before it is returned.
            self.place = EventPlace { turn: turn.seq, event: turn.seq.wrapping_sub(1) };
            self.events = turn.events.into_iter();
        }
    }
}
