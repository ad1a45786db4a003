//! What becomes of a context that is used outside of its run's own turn.
//!
//! Only what the workflow does while the engine polls it happens again in a replay. So whatever a context is asked
//! for elsewhere gets no number and leaves no event; its handle stays pending, and the run is stuck. Where an
//! attempt or the workflow of another run did it, that one is to blame and is stuck; otherwise nobody is known
//! (a spawned task, a thread) and the run itself is.

use outlast_core::{OpNumber, Stuck, StuckReason};

use super::cell::OpKind;
use super::machine::stuck;
use super::polling::{self, Misuse};
use super::state::RunState;

/// The number of an operation that was asked for outside of the run's turn. No operation gets it.
pub(super) const OUTSIDE: OpNumber = OpNumber(u64::MAX - 1);

impl RunState {
    /// Whether the caller is not the run's own turn. Then what it `did` is noted, and somebody gets stuck.
    pub(super) fn is_outside(&self, did: impl FnOnce() -> String) -> bool {
        let is_outside = !polling::is_turn_of(self);
        if is_outside {
            self.used_outside(did());
        }
        is_outside
    }

    /// Whether the handle of an operation is dropped outside of the run's turn. One whose operation is over, or
    /// whose run is not here any more, means nothing.
    pub(super) fn is_dropped_outside(&self, op: OpNumber) -> bool {
        if polling::is_turn_of(self) {
            return false;
        }
        let cell = self.cell.lock();
        let is_over = cell.inert || !cell.ops.contains(op);
        drop(cell);
        if !is_over {
            self.used_outside(format!("it dropped {}", self.name_of(op)));
        }
        true
    }

    #[cold]
    fn used_outside(&self, did: String) {
        // Also when the run is not here any more: an attempt may have the context of an earlier replay.
        if polling::is_blamed(|| Misuse::Context(did.clone())) {
            return;
        }
        let mut cell = self.cell.lock();
        if cell.inert || cell.misused.is_some() {
            return;
        }
        let message = format!(
            "`ctx` was used outside of the workflow's own code, in a spawned task or on another thread ({did}); \
             ask for it in the workflow, and use `join!` or `ctx.parallel` for what happens at the same time"
        );
        // A run that waits learns of it when it goes on, and that may be late.
        tracing::warn!(run = %self.run(), "{message}");
        cell.misused = Some(Box::new(stuck(StuckReason::ContextOutside, message)));
        drop(cell);
        self.waker.wake_as_foreign();
    }

    /// An operation as it is named in a report.
    pub(super) fn name_of(&self, op: OpNumber) -> String {
        let cell = self.cell.lock();
        let name = match cell.ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Step(step)) => format!("step `{}`", step.new.name),
            Some(OpKind::Hook { name, .. }) => format!("hook `{name}`"),
            Some(OpKind::Child(child)) => format!("child `{}`", child.workflow),
            Some(OpKind::Timer { .. }) => "a timer".to_owned(),
            None => return format!("operation {op}"),
        };
        format!("{name}, operation {op}")
    }
}

/// Why the run of an attempt is stuck that used a context.
pub(crate) fn used_in_step(step: &str, did: &str) -> String {
    format!(
        "`ctx` was used inside step `{step}`, outside of the workflow's own code ({did}); \
         return from the step and call it from the workflow: no replay would find it there"
    )
}

/// Why a run is stuck whose workflow did what it must not.
pub(super) fn misused(misuse: Misuse) -> Stuck {
    match misuse {
        Misuse::CalledDirectly(step) => {
            let message = format!(
                "step `{step}` was called directly; write `ctx.step({step}, …)`: \
                 otherwise its effect would be repeated by every replay"
            );
            stuck(StuckReason::CalledDirectly, message)
        }
        Misuse::Context(did) => {
            let message = format!(
                "the workflow used the `ctx` of another run ({did}); use the one that it was given: \
                 no replay of the other run would find it there"
            );
            stuck(StuckReason::ContextOutside, message)
        }
    }
}
