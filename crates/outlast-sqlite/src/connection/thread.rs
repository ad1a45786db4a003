//! Threads that end with their world.

use std::thread::{Builder, JoinHandle};

use outlast_core::WorldError;

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
