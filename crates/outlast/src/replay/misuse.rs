//! Contexts that are used outside of their run's turn.
//!
//! A replay repeats only what the workflow does while the engine polls it. An operation that is requested elsewhere
//! therefore gets no number and no event, its handle stays pending, and a run gets stuck: if an attempt or the workflow
//! of another run used the context, the run of that code; otherwise (a spawned task, a thread) the run of the context.

use outlast_core::{OpNumber, Stuck, StuckReason};

use super::machine::stuck;
use super::operation_table::OpKind;
use super::polling::{self, Misuse};
use super::state::RunState;

/// The number of an operation that was requested outside of the run's turn. No operation in the table has it.
pub(super) const OUTSIDE_TURN: OpNumber = OpNumber(u64::MAX - 1);

impl RunState {
    /// Whether the caller is outside of the run's turn. If so, reports the `action`, and a run gets stuck.
    pub(super) fn is_outside_turn(&self, action: impl FnOnce() -> String) -> bool {
        let is_outside_turn = !polling::is_turn_of(self);
        if is_outside_turn {
            self.report_use_outside_turn(action());
        }
        is_outside_turn
    }

    /// Whether the handle of an operation is dropped outside of the run's turn. This is no mistake when the operation
    /// has ended or the machine of the run was dropped.
    pub(super) fn is_dropped_outside_turn(&self, op: OpNumber) -> bool {
        if polling::is_turn_of(self) {
            return false;
        }
        let table = self.table.lock();
        let has_ended = table.is_closed || !table.ops.contains(op);
        drop(table);
        if !has_ended {
            self.report_use_outside_turn(format!("it dropped {}", self.describe_op(op)));
        }
        true
    }

    /// Whether a handle that is not one of an operation is dropped outside of the run's turn. This is a mistake only if
    /// `matters`.
    pub(super) fn is_handle_dropped_outside_turn(
        &self,
        matters: impl FnOnce() -> bool,
        action: impl FnOnce() -> String,
    ) -> bool {
        if polling::is_turn_of(self) {
            return false;
        }
        if !self.table.lock().is_closed && matters() {
            self.report_use_outside_turn(action());
        }
        true
    }

    #[cold]
    fn report_use_outside_turn(&self, action: String) {
        // Also after the machine was dropped: an attempt may hold the context of an earlier replay.
        if polling::report_misuse(|| Misuse::Context(action.clone())) {
            return;
        }
        let mut table = self.table.lock();
        if table.is_closed || table.misused.is_some() {
            return;
        }
        let message = format!(
            "`ctx` was used outside of the workflow's own code, in a spawned task or on another thread ({action}); \
             call it from the workflow, and use `join!` or `ctx.parallel` for concurrent work"
        );
        // Log it now: a waiting run gets stuck only when it continues, which may be much later.
        tracing::warn!(run = %self.run(), "{message}");
        table.misused = Some(Box::new(stuck(StuckReason::ContextOutside, message)));
        drop(table);
        self.waker.wake_as_foreign();
    }

    /// The description of an operation in a report.
    pub(super) fn describe_op(&self, op: OpNumber) -> String {
        let table = self.table.lock();
        let name = match table.ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Step(step)) => format!("step `{}`", step.new.name),
            Some(OpKind::Hook { name, .. }) => format!("hook `{name}`"),
            Some(OpKind::Child(child)) => format!("child `{}`", child.workflow),
            Some(OpKind::Token(token)) => format!("hook `{}`", token.name()),
            Some(OpKind::Timer { .. }) => "a timer".to_owned(),
            None => return format!("operation {op}"),
        };
        format!("{name}, operation {op}")
    }
}

/// Why a run is stuck whose step used a context.
pub(crate) fn used_in_step(step: &str, action: &str) -> String {
    format!(
        "`ctx` was used inside step `{step}`, outside of the workflow's own code ({action}); \
         return from the step and call it from the workflow: a replay does not execute the step"
    )
}

/// Why a run is stuck whose workflow made a mistake.
pub(super) fn misused(misuse: Misuse) -> Stuck {
    match misuse {
        Misuse::CalledDirectly(step) => {
            let message = format!(
                "step `{step}` was called directly; write `ctx.step({step}, …)`: \
                 otherwise its effect would be repeated by every replay"
            );
            stuck(StuckReason::CalledDirectly, message)
        }
        Misuse::Context(action) => {
            let message = format!(
                "the workflow used the `ctx` of another run ({action}); use the context that it was given: \
                 a replay of the other run would not repeat the call"
            );
            stuck(StuckReason::ContextOutside, message)
        }
    }
}
