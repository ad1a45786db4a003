//! What the row of a run shows of its machine.

use std::collections::BTreeSet;

use outlast_core::{HolderColumns, OpNumber, Timestamp};

use super::cell::{Op, OpKind, Phase};
use super::machine::Machine;

impl Machine {
    /// What the run's row shows of the machine, of the columns that only the holder changes; the others stay.
    pub(crate) fn shown(&self, before: &HolderColumns) -> HolderColumns {
        HolderColumns { kept: self.kept(), ..before.clone() }
    }

    /// How many payloads for hooks were received that nobody has taken; runs with rules 1 do not count them.
    fn kept(&self) -> u64 {
        if self.state.rules() >= 2 { self.state.cell.lock().hooks.kept_count as u64 } else { 0 }
    }

    /// The steps that may have been attempted until now by whoever holds the run: open, in place, and not between
    /// two attempts.
    pub(crate) fn open_in_place(&self, now: Timestamp) -> BTreeSet<OpNumber> {
        let cell = self.state.cell.lock();
        let is_in_place = |slot: &Op| match (&slot.phase, &slot.kind) {
            (Phase::Open, OpKind::Step(step)) => {
                step.queued.is_none() && step.retry_at.is_none_or(|retry_at| retry_at <= now)
            }
            _ => false,
        };
        let in_place = cell.ops.iter().filter(|(_, slot)| is_in_place(slot)).map(|(op, _)| op);
        in_place.filter(|op| !self.is_unrecorded(*op)).collect()
    }

    /// Whether an operation is a step that is not over.
    pub(crate) fn is_open_step(&self, op: OpNumber) -> bool {
        let cell = self.state.cell.lock();
        matches!(cell.ops.get(op), Some(Op { phase: Phase::Open, kind: OpKind::Step(_), .. }))
    }
}
