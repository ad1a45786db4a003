//! The waker of a run's future. It distinguishes wakes by the engine from foreign wakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::Wake;

use tokio::sync::Notify;

const NOT_POLLED: u8 = 0;
const POLLED: u8 = 1;
const CLOSED: u8 = 2;

thread_local! {
    static MARK: u8 = const { 0 };
}

/// A number that identifies this thread among all running threads: the address of a thread-local.
fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// A wake during a delivery or poll, by the polling thread, requests another poll. All other wakes are foreign.
#[derive(Debug, Default)]
pub(crate) struct RunWaker {
    phase: AtomicU8,
    thread: AtomicUsize,
    woken: AtomicBool,
    foreign: AtomicBool,
    foreign_wake: Notify,
}

impl RunWaker {
    /// Begins a delivery or poll on this thread.
    pub(crate) fn enter(&self) {
        self.thread.store(this_thread(), Ordering::Relaxed);
        self.phase.store(POLLED, Ordering::Release);
    }

    /// Ends a delivery or poll: later wakes are foreign.
    pub(crate) fn leave(&self) {
        self.phase.store(NOT_POLLED, Ordering::Release);
    }

    /// Ignores all later wakes, because the future is about to be dropped.
    pub(crate) fn close(&self) {
        self.phase.store(CLOSED, Ordering::Release);
    }

    /// Whether the run was woken during a delivery or poll since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    /// Whether a foreign wake has occurred.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }

    /// Records a foreign wake and notifies the worker.
    pub(super) fn wake_as_foreign(&self) {
        self.foreign.store(true, Ordering::Release);
        self.foreign_wake.notify_one();
    }

    /// Completes when a foreign wake has occurred.
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
            POLLED if self.thread.load(Ordering::Relaxed) == this_thread() => {
                self.woken.store(true, Ordering::Release);
            }
            CLOSED => {}
            _ => self.wake_as_foreign(),
        }
    }
}
