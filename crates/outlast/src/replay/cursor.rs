//! The position in a history that is being replayed.

use outlast_core::{Event, Timestamp, TurnRecord};

use super::divergence_report::DivergenceReport;

/// Iterates over the events of a history, with the time of the turn and the report in case of a divergence.
pub(super) struct Cursor {
    turns: std::vec::IntoIter<TurnRecord>,
    events: std::vec::IntoIter<Event>,
    pub(super) at: Timestamp,
    pub(super) report: DivergenceReport,
}

impl Cursor {
    pub(super) fn new(history: Vec<TurnRecord>) -> Self {
        Self {
            turns: history.into_iter(),
            events: Vec::new().into_iter(),
            at: Timestamp::from_micros(0),
            report: DivergenceReport::default(),
        }
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
            match self.events.next() {
                // Patches have no position among the operations: the index has them before the replay.
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
