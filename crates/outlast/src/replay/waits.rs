//! The waits of a run.

use outlast_core::limits::WAITS_SHOWN_MAX;
use outlast_core::{OpNumber, Wait};

use super::operation_table::{Op, OpKind, OperationTable, Phase};

impl OperationTable {
    /// The first waits of the run, as its row shows them.
    pub(super) fn waits(&self) -> Vec<Wait> {
        self.all_waits().take(WAITS_SHOWN_MAX).collect()
    }

    /// All waits of the run.
    pub(super) fn all_waits(&self) -> impl Iterator<Item = Wait> {
        let open = self.ops.iter().filter(|(_, slot)| matches!(slot.phase, Phase::Open));
        let wait = |(op, slot): (OpNumber, &Op)| {
            let op = op.0;
            match &slot.kind {
                OpKind::Step(step) => step.wait(op),
                OpKind::Timer { fire_at, .. } => Some(Wait::Timer { op, until: *fire_at }),
                OpKind::Hook { name, timeout_at, token, .. } => {
                    let (name, token) = (name.to_string(), token.as_ref().map(ToString::to_string));
                    Some(Wait::Hook { op, name, until: *timeout_at, token })
                }
                // The world answers the request soon.
                OpKind::Token(_) => None,
                OpKind::Child(child) => Some(Wait::Child {
                    op,
                    workflow: child.workflow.to_string(),
                    run: child.run,
                    until: child.timeout_at,
                }),
            }
        };
        open.filter_map(wait)
    }
}
