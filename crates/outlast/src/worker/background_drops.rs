//! Dropping values of the user outside of the engine's locks and critical tasks.
//!
//! A future contains values whose `Drop` is the user's code, and may take long or block. When a session is lost or a
//! worker stops, many futures are dropped at once: on the beat's thread, in the claim loop or under a lock of the engine
//! that would stall every other run. So these futures are only passed on here, and threads of the runtime's blocking
//! pool drop them: at most [`THREADS_MAX`] at the same time, so that one that blocks does not delay the others, and
//! thousands of them do not occupy the whole pool.
//!
//! A busy worker passes on a future with each turn, and waking a thread takes longer than the turn. So the values of
//! [`GATHERING_TIME`] are dropped together, by one thread. It gets help if it makes no progress.
//!
//! A run that ends drops its future in its own task, like all other code of the workflow.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Busy, Clock};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::pause;
use crate::ids::is_simulated;
use crate::replay::DropInBackground;

/// The maximum number of values that are dropped at the same time.
const THREADS_MAX: usize = 16;

/// How long values wait for others before a thread drops them, and how long a value may block its thread before another
/// one drops the rest.
const GATHERING_TIME: Duration = Duration::from_millis(1);

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
    /// The number of values that threads have taken.
    taken: u64,
    /// Whether a task starts threads for the values that wait.
    has_dispatcher: bool,
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
        let mut state = self.queue.state.lock();
        state.waiting.push_back(QueuedDrop { value, _busy: self.clock.busy() });
        if self.clock.is_virtual() {
            // The clock stands still until the value is dropped, so it must not wait.
            let needs_thread = state.add_thread();
            drop(state);
            if needs_thread {
                self.queue.start_thread(&self.runtime);
            }
        } else if !state.has_dispatcher {
            state.has_dispatcher = true;
            drop(state);
            self.runtime.spawn(self.queue.clone().dispatch(self.runtime.clone()));
        }
    }
}

impl fmt::Debug for BackgroundDrops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackgroundDrops({})", self.remaining())
    }
}

impl DropQueueState {
    /// Counts another thread, unless there are enough.
    fn add_thread(&mut self) -> bool {
        let needs_thread = self.threads < THREADS_MAX;
        self.threads += usize::from(needs_thread);
        needs_thread
    }
}

impl DropQueue {
    /// Starts a thread that was counted.
    fn start_thread(self: &Arc<Self>, runtime: &Handle) {
        let thread = DropThread(self.clone());
        runtime.spawn_blocking(move || thread.run());
    }

    /// Starts threads until no value waits: one, and others while the values block them.
    async fn dispatch(self: Arc<Self>, runtime: Handle) {
        let mut taken_before = None;
        loop {
            pause(GATHERING_TIME).await;
            let needs_thread = {
                let mut state = self.state.lock();
                // The threads go on until no value waits.
                if state.waiting.is_empty() || state.threads == THREADS_MAX {
                    state.has_dispatcher = false;
                    return;
                }
                let is_blocked = taken_before.replace(state.taken) == Some(state.taken);
                (state.threads == 0 || is_blocked) && state.add_thread()
            };
            if needs_thread {
                self.start_thread(&runtime);
            }
        }
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
        let mut state = self.0.state.lock();
        let next = state.waiting.pop_front()?;
        state.taken += 1;
        Some(next)
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
