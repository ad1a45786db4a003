//! What this thread polls: the workflow of a run, an attempt at a step, or neither. Two mistakes are found by it.
//!
//! A step's function returns an attempt, which does its work when it is polled. A workflow that awaits an
//! attempt itself, `mail(n).await` instead of `ctx.step(mail, n).await`, would repeat the effect at every
//! replay. So an attempt asks here before it does anything.
//!
//! A context that is used anywhere but in the turn of its run, in an attempt or in a spawned task, would add
//! operations to the history at moments that no replay can find again. So every call of a context asks here
//! whether this thread polls the workflow of its run.

use std::cell::{Cell, RefCell};

use super::state::RunState;

#[derive(Clone, Copy)]
enum Polled {
    Neither,
    /// The workflow of the run whose state has this address.
    Workflow(usize),
    Attempt,
}

/// What was polled did what it must not.
#[derive(Debug)]
pub(crate) enum Misuse {
    /// A workflow polled an attempt at this step.
    CalledDirectly(&'static str),
    /// A context was used which is not that of the workflow that is polled. This says what it was used for.
    Context(String),
}

thread_local! {
    /// What is polled, and whether it has done what it must not.
    static POLLED: Cell<(Polled, bool)> = const { Cell::new((Polled::Neither, false)) };
    /// What that was. Apart, so that a poll without a mistake does not touch it.
    static MISUSE: RefCell<Option<Misuse>> = const { RefCell::new(None) };
}

/// Says what was polled before, even when the poll panics.
struct Restore((Polled, bool));

impl Drop for Restore {
    fn drop(&mut self) {
        POLLED.set(self.0);
    }
}

/// Polls, or calls, a run's workflow. The second answer is what it did that it must not, the first such thing.
pub(super) fn workflow<T>(state: &RunState, poll: impl FnOnce() -> T) -> (T, Option<Misuse>) {
    polled(Polled::Workflow(address(state)), poll)
}

/// Polls, or calls, an attempt. The second answer is what it did that it must not, the first such thing.
pub(crate) fn attempt<T>(poll: impl FnOnce() -> T) -> (T, Option<Misuse>) {
    polled(Polled::Attempt, poll)
}

fn polled<T>(what: Polled, poll: impl FnOnce() -> T) -> (T, Option<Misuse>) {
    let _restore = Restore(POLLED.replace((what, false)));
    let answer = poll();
    match POLLED.get() {
        (_, true) => (answer, MISUSE.take()),
        (_, false) => (answer, None),
    }
}

/// Whether a workflow polls an attempt at this step, which then must not begin. The run gets stuck.
pub(crate) fn is_direct_call(step: &'static str) -> bool {
    if !matches!(POLLED.get().0, Polled::Workflow(_)) {
        return false;
    }
    is_blamed(|| Misuse::CalledDirectly(step))
}

/// Whether this thread polls the workflow of this run.
pub(super) fn is_turn_of(state: &RunState) -> bool {
    matches!(POLLED.get().0, Polled::Workflow(polled) if polled == address(state))
}

/// Blames what this thread polls for a mistake; false when that is neither a workflow nor an attempt.
pub(super) fn is_blamed(misuse: impl FnOnce() -> Misuse) -> bool {
    match POLLED.get() {
        (Polled::Neither, _) => false,
        // The first one is reported.
        (_, true) => true,
        (polled, false) => {
            POLLED.set((polled, true));
            MISUSE.set(Some(misuse()));
            true
        }
    }
}

fn address(state: &RunState) -> usize {
    std::ptr::from_ref(state).addr()
}
