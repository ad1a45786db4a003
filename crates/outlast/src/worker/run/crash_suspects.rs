//! When the crashes that count against a run are cleared.
//!
//! A step that was open when the worker crashed may have caused the crash. So a commit clears the count only if every
//! such step has ended, or has had a failed attempt since. If there is no such step, any commit with events clears the
//! count.

use std::collections::BTreeSet;

use outlast_core::{Event, OpNumber};

use super::fact::attempt_of;

/// The steps of a run that may have crashed its worker.
#[derive(Clone, Debug, Default)]
pub(in crate::worker) struct CrashSuspects {
    steps: BTreeSet<OpNumber>,
}

impl CrashSuspects {
    /// The suspects of a run that was claimed with this number of crashes; `open` returns its open steps.
    pub(in crate::worker) fn of(crashes: u32, open: impl FnOnce() -> BTreeSet<OpNumber>) -> Self {
        Self { steps: if crashes > 0 { open() } else { BTreeSet::new() } }
    }

    /// The number of crashes that count after a turn with these events.
    pub(in crate::worker) fn crashes_after(&self, crashes: u32, events: &[Event]) -> u32 {
        if crashes == 0 || events.is_empty() {
            return crashes;
        }
        let is_cleared = self.steps.iter().all(|op| events.iter().any(|event| clears(event, *op)));
        if is_cleared { 0 } else { crashes }
    }

    /// Removes the steps that a committed turn with these events has cleared.
    pub(in crate::worker) fn committed(&mut self, events: &[Event]) {
        if !self.steps.is_empty() {
            self.steps.retain(|op| !events.iter().any(|event| clears(event, *op)));
        }
    }
}

/// Whether an event records that a step has ended, or that an attempt at it has failed.
fn clears(event: &Event, op: OpNumber) -> bool {
    match event {
        Event::StepDropped { op: dropped } => *dropped == op,
        event => attempt_of(event).is_some_and(|(attempted, _)| attempted == op),
    }
}
