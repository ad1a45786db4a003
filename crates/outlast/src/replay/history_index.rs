//! An index of the history that is being replayed: recorded values and patches, which the code reads without waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use outlast_core::{Event, Failure, OpNumber, Payload, TurnRecord};

use super::operation_table::SourceLocation;

/// The parts of a history that the code can read in the middle of a poll, while the history is replayed.
#[derive(Default)]
pub(super) struct HistoryIndex {
    /// Operations below this number are in the history.
    pub(super) ops: u64,
    values: BTreeMap<OpNumber, (Arc<str>, Result<Payload, Failure>)>,
    patches: BTreeSet<Arc<str>>,
    /// Where the code requested recorded values.
    locations: HashMap<OpNumber, SourceLocation>,
    /// Whether the code requested a value that the history does not contain.
    pub(super) has_diverged: bool,
    /// The number of deliveries that are not replayed yet, if the history ends with a continued turn: of the requests
    /// after the last delivery the history contains only a part. `None` for all other histories.
    deliveries_left: Option<usize>,
}

impl HistoryIndex {
    /// Indexes a history before its replay.
    pub(super) fn of(history: &[TurnRecord]) -> Self {
        let mut index = Self::default();
        let last = history.iter().rfind(|turn| !turn.events.is_empty());
        let is_continued = last.is_some_and(|turn| turn.id.is_continued());
        for event in history.iter().flat_map(|turn| &turn.events) {
            if let Some(op) = event.op() {
                index.ops = index.ops.max(op.0.saturating_add(1));
            }
            match event {
                Event::ValueRecorded { op, name, value } => {
                    index.values.insert(*op, (name.clone(), value.clone()));
                }
                Event::VersionChosen { name } => drop(index.patches.insert(name.clone())),
                _ => {}
            }
        }
        let is_delivery = |event: &&Event| !event.is_decision() && !matches!(event, Event::RunStarted(_));
        let events = || history.iter().flat_map(|turn| &turn.events);
        index.deliveries_left = is_continued.then(|| events().filter(is_delivery).count());
        index
    }

    /// Counts a replayed delivery.
    pub(super) fn delivered(&mut self) {
        self.deliveries_left = self.deliveries_left.map(|left| left.saturating_sub(1));
    }

    /// Whether the code may request operations that are not in the history: all deliveries are replayed, and the last
    /// turn was committed in part.
    pub(super) fn accepts_new_requests(&self) -> bool {
        self.deliveries_left == Some(0)
    }

    /// Whether the history must contain the request for an operation; if it does not, the code has diverged.
    pub(super) fn has(&self, op: OpNumber) -> bool {
        !self.accepts_new_requests() || op.0 < self.ops
    }

    /// The recorded value of an operation; `None` when the history has a different name there, or no value.
    pub(super) fn value(
        &mut self,
        op: OpNumber,
        name: &str,
        location: SourceLocation,
    ) -> Option<Result<Payload, Failure>> {
        self.locations.insert(op, location);
        match self.values.remove(&op) {
            Some((recorded, value)) if *recorded == *name => Some(value),
            _ => {
                self.has_diverged = true;
                None
            }
        }
    }

    /// Whether it is recorded that the run took the new branch of a patch.
    pub(super) fn is_patched(&self, name: &str) -> bool {
        self.patches.contains(name)
    }

    /// Where the code requested a value.
    pub(super) fn location(&self, op: OpNumber) -> Option<SourceLocation> {
        self.locations.get(&op).copied()
    }
}
