//! An index of the history that is being replayed: recorded values and patches, which the code reads without waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use outlast_core::cut::LoopResume;
use outlast_core::{CompensationRegistered, Event, Failure, OpNumber, Payload, ReplayHistory};

use super::operation_table::SourceLocation;

/// The parts of a history that the code can read in the middle of a poll, while the history is replayed.
#[derive(Default)]
pub(super) struct HistoryIndex {
    /// Operations below this number are in the history.
    pub(super) ops: u64,
    values: BTreeMap<OpNumber, (Arc<str>, Result<Payload, Failure>)>,
    /// The recorded registrations of compensations.
    registrations: BTreeMap<OpNumber, CompensationRegistered>,
    patches: BTreeSet<Arc<str>>,
    /// The recorded ends of iterations that are not skipped, with their loops.
    iterations: BTreeMap<OpNumber, (OpNumber, Result<Payload, Failure>)>,
    /// Where the code continues after iterations that are skipped, by the operations before them.
    resumes: BTreeMap<OpNumber, LoopResume>,
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
    pub(super) fn of(history: &ReplayHistory) -> Self {
        let mut index = Self::default();
        let last = history.turns.iter().rfind(|turn| !turn.events.is_empty());
        let is_continued = last.is_some_and(|turn| turn.id.is_continued());
        for event in history.events() {
            if let Some(op) = event.op() {
                index.ops = index.ops.max(op.0.saturating_add(1));
            }
            match event {
                Event::ValueRecorded { op, name, value } => {
                    index.values.insert(*op, (name.clone(), value.clone()));
                }
                Event::CompensationRegistered(registered) => {
                    index.registrations.insert(registered.op, (**registered).clone());
                }
                Event::IterationEnded(ended) if ended.cut.is_none() => {
                    index.iterations.insert(ended.op, (ended.of, ended.state.clone()));
                }
                Event::VersionChosen { name } => drop(index.patches.insert(name.clone())),
                _ => {}
            }
        }
        index.resumes = history.resumes.iter().map(|resume| (resume.after, resume.clone())).collect();
        // A fork may be met between two requests of one poll, so it is not counted.
        let is_delivery = |event: &&Event| !event.is_decision() && !matches!(event, Event::RunForked(_));
        index.deliveries_left = is_continued.then(|| history.events().filter(is_delivery).count());
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

    /// The recorded state of an iteration of a loop; `None` when the history has another event there.
    pub(super) fn iteration(&mut self, op: OpNumber, of: OpNumber) -> Option<Result<Payload, Failure>> {
        match self.iterations.remove(&op) {
            Some((recorded, state)) if recorded == of => Some(state),
            _ => {
                self.has_diverged = true;
                None
            }
        }
    }

    /// Takes the place where the code continues after iterations that are skipped behind an operation.
    pub(super) fn take_resume(&mut self, after: OpNumber) -> Option<LoopResume> {
        self.resumes.remove(&after)
    }

    /// The recorded registration of a compensation by this step; `None` when the history has another event there.
    pub(super) fn registration(&self, op: OpNumber, step: &str) -> Option<&CompensationRegistered> {
        self.registrations.get(&op).filter(|registered| *registered.step == *step)
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
