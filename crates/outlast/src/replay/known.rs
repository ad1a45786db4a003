//! What a history says before it is replayed: values that the code asks for without waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use outlast_core::{Event, Failure, OpNumber, Payload, TurnRecord};

use super::cell::Place;

/// What the code may ask for in the middle of a poll, while its history is replayed.
#[derive(Default)]
pub(super) struct Known {
    /// Operations below this number are in the history.
    pub(super) ops: u64,
    values: BTreeMap<OpNumber, (Arc<str>, Result<Payload, Failure>)>,
    patches: BTreeSet<Arc<str>>,
    /// Where the code asked for values.
    places: HashMap<OpNumber, Place>,
    /// Whether the code asked for a value that history does not have: it has diverged.
    pub(super) is_astray: bool,
    /// How many deliveries are left, when the history ends with a turn that is continued: what the code asks for after
    /// the last one is in the history only in part.
    left: Option<usize>,
}

impl Known {
    pub(super) fn of(history: &[TurnRecord]) -> Self {
        let mut known = Self::default();
        let last = history.iter().rfind(|turn| !turn.events.is_empty());
        let is_continued = last.is_some_and(|turn| turn.id.is_continued());
        for event in history.iter().flat_map(|turn| &turn.events) {
            if let Some(op) = event.op() {
                known.ops = known.ops.max(op.0.saturating_add(1));
            }
            match event {
                Event::ValueRecorded { op, name, value } => {
                    known.values.insert(*op, (name.clone(), value.clone()));
                }
                Event::VersionChosen { name } => drop(known.patches.insert(name.clone())),
                _ => {}
            }
        }
        let is_delivery = |event: &&Event| !event.is_decision() && !matches!(event, Event::RunStarted(_));
        let events = || history.iter().flat_map(|turn| &turn.events);
        known.left = is_continued.then(|| events().filter(is_delivery).count());
        known
    }

    /// One more delivery is replayed.
    pub(super) fn delivered(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    /// Whether the operation that the code requests now is new: the history has no further operations.
    pub(super) fn is_at_open_end(&self) -> bool {
        self.left == Some(0)
    }

    /// Whether history has the request for an operation, or code that asks for it has diverged.
    pub(super) fn has(&self, op: OpNumber) -> bool {
        !self.is_at_open_end() || op.0 < self.ops
    }

    /// The value that history has for an operation; `None` when it has another one, or nothing.
    pub(super) fn value(
        &mut self,
        op: OpNumber,
        name: &str,
        place: Place,
    ) -> Option<Result<Payload, Failure>> {
        self.places.insert(op, place);
        match self.values.remove(&op) {
            Some((known, value)) if *known == *name => Some(value),
            _ => {
                self.is_astray = true;
                None
            }
        }
    }

    /// Whether history says that the run took the new side of a patch.
    pub(super) fn is_patched(&self, name: &str) -> bool {
        self.patches.contains(name)
    }

    /// Where the code asked for a value.
    pub(super) fn place(&self, op: OpNumber) -> Option<Place> {
        self.places.get(&op).copied()
    }
}
