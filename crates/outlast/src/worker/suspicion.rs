//! Suspicion: when the crashes that count against a run are cleared.
//!
//! A step that was open when the worker crashed may be what crashed it. So a commit clears the count only when
//! every such step has ended or failed an attempt since. Without such a step, any commit with events clears it.

use std::collections::BTreeSet;

use outlast_core::{Event, OpNumber};

use super::fact::attempt_of;

/// The steps of a run that may have crashed its worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspicion {
    steps: BTreeSet<OpNumber>,
}

impl Suspicion {
    /// These steps were open when the run was claimed with so many crashes.
    pub(super) fn of(crashes: u32, open: impl FnOnce() -> BTreeSet<OpNumber>) -> Self {
        Self { steps: if crashes > 0 { open() } else { BTreeSet::new() } }
    }

    /// How many crashes count after a turn with these events.
    pub(super) fn crashes_after(&self, crashes: u32, events: &[Event]) -> u32 {
        if crashes == 0 || events.is_empty() {
            return crashes;
        }
        let is_cleared = self.steps.iter().all(|op| events.iter().any(|event| clears(event, *op)));
        if is_cleared { 0 } else { crashes }
    }

    /// A turn with these events was committed.
    pub(super) fn committed(&mut self, events: &[Event]) {
        if !self.steps.is_empty() {
            self.steps.retain(|op| !events.iter().any(|event| clears(event, *op)));
        }
    }
}

/// Whether an event says that a step has ended, or that an attempt at it has failed.
fn clears(event: &Event, op: OpNumber) -> bool {
    match event {
        Event::StepDropped { op: dropped } => *dropped == op,
        event => attempt_of(event).is_some_and(|(attempted, _)| attempted == op),
    }
}
