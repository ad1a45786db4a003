//! Records what this thread is polling: the workflow of a run, an attempt at a step, or neither. This detects two
//! mistakes.
//!
//! A step's function returns an attempt, which does its work when it is polled. A workflow that awaits an attempt
//! itself, `mail(n).await` instead of `ctx.step(mail, n).await`, would repeat the effect in every replay. An attempt
//! therefore calls [`is_direct_call`] before it does anything.
//!
//! A context that is used outside of the turn of its run, in an attempt or in a spawned task, would add operations to
//! the history at times that a replay cannot reproduce. Every method of a context therefore calls [`is_turn_of`].
//!
//! It also knows to which run and step the running code belongs ([`scope`]), also on threads that poll neither.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use outlast_core::RunId;

use super::state::RunState;
use crate::authoring::attempt::AttemptInfo;

#[derive(Clone, Copy)]
enum Polled {
    Neither,
    /// The workflow of the run whose state has this address.
    Workflow(usize),
    Attempt,
}

/// A mistake of the workflow or attempt that was polled.
#[derive(Debug)]
pub(crate) enum Misuse {
    /// A workflow polled an attempt at this step.
    CalledDirectly(&'static str),
    /// A context of another run was used. The text says for what.
    Context(String),
}

/// The run or attempt to which the running code belongs.
#[derive(Clone)]
pub(crate) enum Scope {
    Workflow { run: RunId, workflow: Arc<str> },
    Attempt(Arc<AttemptInfo>),
}

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
    /// What is being polled, and whether it has made a mistake.
    static POLLED: Cell<(Polled, bool)> = const { Cell::new((Polled::Neither, false)) };
    /// The mistake. Separate, so that a poll without a mistake does not access it.
    static MISUSE: RefCell<Option<Misuse>> = const { RefCell::new(None) };
}

/// Restores what was being polled before, even when the poll panics.
struct Restore((Polled, bool));

impl Drop for Restore {
    fn drop(&mut self) {
        POLLED.set(self.0);
    }
}

/// Restores to what the running code belonged before, even when it panics.
struct RestoreScope(Option<Scope>);

impl Drop for RestoreScope {
    fn drop(&mut self) {
        SCOPE.set(self.0.take());
    }
}

/// To what the code that this thread is running belongs.
pub(crate) fn scope() -> Option<Scope> {
    // At the end of a thread there may be no value any more.
    SCOPE.try_with(|scope| scope.borrow().clone()).ok().flatten()
}

/// Calls code that belongs to something.
pub(crate) fn within<T>(scope: Option<Scope>, call: impl FnOnce() -> T) -> T {
    let _restore = RestoreScope(SCOPE.replace(scope));
    call()
}

/// Polls, or calls, the workflow of a run. Also returns its first mistake, if there was one.
pub(super) fn workflow<T>(state: &RunState, poll: impl FnOnce() -> T) -> (T, Option<Misuse>) {
    let scope = Scope::Workflow { run: state.run(), workflow: state.shared_workflow() };
    polled(Polled::Workflow(address(state)), scope, poll)
}

/// Polls, or calls, an attempt. Also returns its first mistake, if there was one.
pub(crate) fn attempt<T>(info: Arc<AttemptInfo>, poll: impl FnOnce() -> T) -> (T, Option<Misuse>) {
    polled(Polled::Attempt, Scope::Attempt(info), poll)
}

fn polled<T>(what: Polled, scope: Scope, poll: impl FnOnce() -> T) -> (T, Option<Misuse>) {
    let _restore = Restore(POLLED.replace((what, false)));
    let answer = within(Some(scope), poll);
    match POLLED.get() {
        (_, true) => (answer, MISUSE.take()),
        (_, false) => (answer, None),
    }
}

/// Whether a workflow polls an attempt at this step. The attempt must not begin then, and the run gets stuck.
pub(crate) fn is_direct_call(step: &'static str) -> bool {
    if !matches!(POLLED.get().0, Polled::Workflow(_)) {
        return false;
    }
    report_misuse(|| Misuse::CalledDirectly(step))
}

/// Whether this thread is polling the workflow of this run.
pub(super) fn is_turn_of(state: &RunState) -> bool {
    matches!(POLLED.get().0, Polled::Workflow(polled) if polled == address(state))
}

/// Records a mistake of the workflow or attempt that this thread is polling. Returns false when it polls neither.
pub(super) fn report_misuse(misuse: impl FnOnce() -> Misuse) -> bool {
    match POLLED.get() {
        (Polled::Neither, _) => false,
        // Only the first mistake is reported.
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
