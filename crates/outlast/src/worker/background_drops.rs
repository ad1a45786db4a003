//! Dropping values of the user outside of the engine's locks and critical tasks.
//!
//! A future contains values whose `Drop` is the user's code, and may take long or block. When a session is lost or a
//! worker stops, many futures are dropped at once: on the beat's thread, in the claim loop or under a lock of the engine
//! that would stall every other run. So these futures are only passed on here, and threads of the runtime's blocking
//! pool drop them: at most [`THREADS_MAX`] at the same time, so that one that blocks does not delay the others, and
//! thousands of them do not occupy the whole pool.
//!
//! A run that ends drops its future in its own task, like all other code of the workflow.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use outlast_core::{Busy, Clock};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::ids::is_simulated;
use crate::replay::DropInBackground;

/// The maximum number of values that are dropped at the same time.
const THREADS_MAX: usize = 16;

/// Drops values in the background.
pub(super) struct BackgroundDrops {
    runtime: Handle,
    clock: Arc<dyn Clock>,
    queue: Arc<DropQueue>,
}

#[derive(Default)]
struct DropQueue {
    state: Mutex<DropQueueState>,
    /// Notified when nothing is left to drop.
    finished: Notify,
}

#[derive(Default)]
struct DropQueueState {
    waiting: VecDeque<QueuedDrop>,
    /// The number of threads that drop values.
    threads: usize,
}

/// A value that waits to be dropped.
struct QueuedDrop {
    value: Box<dyn Send>,
    /// Keeps a virtual clock from advancing until the value is dropped.
    _busy: Busy,
}

impl BackgroundDrops {
    /// Drops values on the blocking pool of this runtime.
    pub(super) fn new(runtime: Handle, clock: Arc<dyn Clock>) -> Self {
        Self { runtime, clock, queue: Arc::default() }
    }

    /// Completes when all values have been dropped.
    pub(super) async fn finished(&self) {
        loop {
            let mut finished = pin!(self.queue.finished.notified());
            // Register before reading the state, so that no notification is missed.
            finished.as_mut().enable();
            if self.remaining() == 0 {
                return;
            }
            finished.await;
        }
    }

    /// The number of values that are waiting or being dropped.
    pub(super) fn remaining(&self) -> usize {
        let state = self.queue.state.lock();
        state.waiting.len() + state.threads
    }
}

impl DropInBackground for BackgroundDrops {
    fn put(&self, value: Box<dyn Send>) {
        // A simulation has one thread for everything.
        if is_simulated() {
            return drop_guarded(value);
        }
        let needs_thread = {
            let mut state = self.queue.state.lock();
            state.waiting.push_back(QueuedDrop { value, _busy: self.clock.busy() });
            let needs_thread = state.threads < THREADS_MAX;
            state.threads += usize::from(needs_thread);
            needs_thread
        };
        if needs_thread {
            let thread = DropThread(self.queue.clone());
            self.runtime.spawn_blocking(move || thread.run());
        }
    }
}

impl fmt::Debug for BackgroundDrops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackgroundDrops({})", self.remaining())
    }
}

/// One thread that drops values, counted until this is dropped: also if the runtime shuts down and never runs it.
struct DropThread(Arc<DropQueue>);

impl DropThread {
    fn run(self) {
        while let Some(next) = self.next() {
            drop_guarded(next.value);
        }
    }

    fn next(&self) -> Option<QueuedDrop> {
        self.0.state.lock().waiting.pop_front()
    }
}

impl Drop for DropThread {
    fn drop(&mut self) {
        let is_finished = {
            let mut state = self.0.state.lock();
            state.threads -= 1;
            state.threads == 0 && state.waiting.is_empty()
        };
        if is_finished {
            self.0.finished.notify_waiters();
        }
    }
}

/// Drops a value. A destructor of the user may panic.
fn drop_guarded(value: Box<dyn Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}
