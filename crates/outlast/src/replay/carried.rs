//! Children that a later generation awaits, and children with their own tags, headers and deadline.
//!
//! A child that has not ended when its parent continues is carried: it keeps the number of its operation. The next
//! generation can take it over under that number. This needs no event, because a replay begins with the cut that
//! lists the children. It must happen before the first await, so that no end of a child is delivered before.

use std::sync::Arc;

use outlast_core::queue::default_queue;
use outlast_core::{Headers, OpNumber, Tags, Timestamp};

use super::children::{ChildOp, OpenChild};
use super::handle::OpHandle;
use super::operation_table::{Op, OpKind, OperationTable, Phase};
use super::state::RunState;

/// What the start of a child contains beside what its parent's history records.
#[derive(Clone, Default)]
pub(crate) struct ChildOptions {
    /// All headers, including those that it inherits.
    pub(crate) headers: Headers,
    pub(crate) tags: Tags,
    pub(crate) deadline: Option<Timestamp>,
}

impl OperationTable {
    /// Opens the operation of a child that an earlier generation started, if the child has not ended.
    #[track_caller]
    fn open_carried(&mut self, op: OpNumber) -> bool {
        let Some(OpenChild { run, workflow, on_parent_end, is_shielded, .. }) = self.children.get(&op) else {
            return false;
        };
        let child = ChildOp {
            workflow: workflow.clone(),
            version: 0,
            queue: default_queue(),
            priority: 0,
            run: *run,
            input: None,
            digest: 0,
            key: None,
            timeout: None,
            timeout_at: None,
            on_parent_end: *on_parent_end,
            is_detached: false,
            is_cancelled_on_drop: false,
            options: None,
            is_carried: true,
        };
        let slot = Op {
            phase: Phase::Open,
            kind: OpKind::Child(Box::new(child)),
            is_requested: true,
            is_shielded: *is_shielded,
            is_cancelled: false,
            is_dropped: false,
            location: std::panic::Location::caller(),
            waker: None,
        };
        self.ops.insert(op, slot);
        self.open += 1;
        true
    }
}

impl RunState {
    /// Takes over a child of an earlier generation; `None` if it has ended.
    #[track_caller]
    pub(crate) fn carried_child(self: &Arc<Self>, op: OpNumber) -> Option<OpHandle> {
        let is_open = self.table.lock().open_carried(op);
        is_open.then(|| OpHandle::new(self.clone(), op))
    }

    /// Sets what the start of a child contains.
    pub(crate) fn set_child_options(&self, op: OpNumber, options: ChildOptions) {
        self.edit_child(op, |child| child.options = Some(Box::new(options)));
    }
}
