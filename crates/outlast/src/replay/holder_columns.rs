//! The columns of a run's row that are computed from its machine.

use std::collections::BTreeSet;

use outlast_core::{HolderColumns, Marks, OpNumber, Timestamp};

use super::machine::Machine;
use super::operation_table::{Op, OpKind, Phase};

impl Machine {
    /// The holder's columns after a turn. Columns that the machine does not determine keep their values.
    pub(crate) fn shown(&self, before: &HolderColumns) -> HolderColumns {
        let marks =
            before.marks.without(Marks::COMPENSATING).with(self.marks()).with(self.marks_of_strategy());
        // A run that ends takes no payloads any more.
        let kept = if self.is_ending() { before.kept } else { self.kept() };
        let continued = self.generation() - 1;
        HolderColumns { kept, marks, continued, ..before.clone() }
    }

    /// The number of kept payloads; 0 for runs with rules 1, which do not count them.
    fn kept(&self) -> u64 {
        if self.state.rules() >= 2 { self.state.table.lock().hooks.kept_count as u64 } else { 0 }
    }

    /// The steps that the holder of the run may have attempted by `now`: open, in place, and not paused between two
    /// attempts.
    pub(crate) fn open_in_place(&self, now: Timestamp) -> BTreeSet<OpNumber> {
        let table = self.state.table.lock();
        let is_in_place = |slot: &Op| match (&slot.phase, &slot.kind) {
            (Phase::Open, OpKind::Step(step)) => {
                step.queued.is_none() && step.retry_at.is_none_or(|retry_at| retry_at <= now)
            }
            _ => false,
        };
        let in_place = table.ops.iter().filter(|(_, slot)| is_in_place(slot)).map(|(op, _)| op);
        in_place.filter(|op| !self.is_unrecorded(*op)).collect()
    }

    /// Whether an operation is an open step.
    pub(crate) fn is_open_step(&self, op: OpNumber) -> bool {
        let table = self.state.table.lock();
        matches!(table.ops.get(op), Some(Op { phase: Phase::Open, kind: OpKind::Step(_), .. }))
    }
}
