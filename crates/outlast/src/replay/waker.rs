//! The waker of a run's future. It tells wakes that follow from history from foreign ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::Wake;

use tokio::sync::Notify;

const OUTSIDE: u8 = 0;
const INSIDE: u8 = 1;
const INERT: u8 = 2;

thread_local! {
    static MARK: u8 = const { 0 };
}

/// An address that no other living thread has.
fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// Wakes inside a delivery or poll ask for another poll; all others are foreign.
#[derive(Debug, Default)]
pub(crate) struct RunWaker {
    phase: AtomicU8,
    thread: AtomicUsize,
    woken: AtomicBool,
    foreign: AtomicBool,
    foreign_wake: Notify,
}

impl RunWaker {
    /// Wakes by this thread are the run's own from now on.
    pub(crate) fn enter(&self) {
        self.thread.store(this_thread(), Ordering::Relaxed);
        self.phase.store(INSIDE, Ordering::Release);
    }

    /// Wakes are foreign from now on.
    pub(crate) fn leave(&self) {
        self.phase.store(OUTSIDE, Ordering::Release);
    }

    /// Wakes mean nothing from now on: the future is about to be dropped.
    pub(crate) fn make_inert(&self) {
        self.phase.store(INERT, Ordering::Release);
    }

    /// Whether the run woke itself since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    /// Whether anything but the run woke it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }

    /// Wakes the run as something foreign does.
    pub(super) fn wake_as_foreign(&self) {
        self.foreign.store(true, Ordering::Release);
        self.foreign_wake.notify_one();
    }

    /// Completes when something foreign has woken the run.
    pub(crate) async fn foreign(&self) {
        self.foreign_wake.notified().await;
    }
}

impl Wake for RunWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.phase.load(Ordering::Acquire) {
            INSIDE if self.thread.load(Ordering::Relaxed) == this_thread() => {
                self.woken.store(true, Ordering::Release);
            }
            INERT => {}
            _ => self.wake_as_foreign(),
        }
    }
}
