//! Whether this thread polls a workflow: step code must not run there.
//!
//! A step's function returns an attempt, which does its work when it is polled. A workflow that awaits an
//! attempt itself, `mail(n).await` instead of `ctx.step(mail, n).await`, would repeat the effect at every
//! replay. So an attempt asks here before it does anything.

use std::cell::Cell;

#[derive(Clone, Copy)]
enum Polled {
    /// No workflow.
    Nothing,
    Workflow,
    /// A workflow, which has polled an attempt at this step.
    CalledDirectly(&'static str),
}

thread_local! {
    static POLLED: Cell<Polled> = const { Cell::new(Polled::Nothing) };
}

/// Says what was polled before, even when the poll panics.
struct Restore(Polled);

impl Drop for Restore {
    fn drop(&mut self) {
        POLLED.set(self.0);
    }
}

/// Polls a workflow. The second answer is the step that it called directly, if it did.
pub(super) fn workflow<T>(poll: impl FnOnce() -> T) -> (T, Option<&'static str>) {
    let _restore = Restore(POLLED.replace(Polled::Workflow));
    let answer = poll();
    match POLLED.get() {
        Polled::CalledDirectly(step) => (answer, Some(step)),
        Polled::Nothing | Polled::Workflow => (answer, None),
    }
}

/// Whether a workflow polls an attempt at this step, which then must not begin. The run gets stuck.
pub(crate) fn is_direct_call(step: &'static str) -> bool {
    match POLLED.get() {
        Polled::Nothing => false,
        Polled::Workflow => {
            POLLED.set(Polled::CalledDirectly(step));
            true
        }
        // The first one is reported.
        Polled::CalledDirectly(_) => true,
    }
}
