//! Threads that end with their world, and their pauses.

use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use outlast_core::{Backoff, WorldError};

/// Blocks this thread until the next try. Returns the length of the pause.
pub(crate) fn pause_before_retry(backoff: &mut Backoff) -> Duration {
    let pause = backoff.next_pause(fastrand::f64());
    std::thread::park_timeout(pause);
    pause
}

/// A thread that is joined when this handle is dropped. The owner must make the thread end before that.
#[derive(Debug)]
pub(crate) struct OwnedThread(Option<JoinHandle<()>>);

impl OwnedThread {
    /// Starts a thread.
    pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<Self, WorldError> {
        let handle = Builder::new().name(name.into()).spawn(work).map_err(|error| {
            WorldError::unavailable(format!(
                "the thread `{name}` cannot be started ({error}); reduce the number of threads"
            ))
        })?;
        Ok(Self(Some(handle)))
    }
}

impl Drop for OwnedThread {
    fn drop(&mut self) {
        let Some(handle) = self.0.take() else { return };
        // A waker may drop the last handle to a world on a thread of that world. A thread cannot join itself; it ends
        // when it returns.
        if handle.thread().id() != std::thread::current().id() {
            // A panic was reported when it happened, and callers got `Unavailable`.
            let _ = handle.join();
        }
    }
}

/// The monotonic time, to measure how long a thread waits for a lock of another process.
#[allow(clippy::disallowed_methods, reason = "locks of other processes are held in real time")]
pub(crate) fn monotonic_now() -> Instant {
    Instant::now()
}
