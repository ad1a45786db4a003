//! Threads that do not outlive their world.

use std::thread::{Builder, JoinHandle};

use outlast_core::WorldError;

/// A thread that is awaited when this is dropped. Its owner tells it to end before.
#[derive(Debug)]
pub(crate) struct Thread(Option<JoinHandle<()>>);

impl Thread {
    pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<Self, WorldError> {
        let handle = Builder::new().name(name.into()).spawn(work).map_err(|error| {
            WorldError::Unavailable(format!("the thread `{name}` cannot be started ({error}); end others"))
        })?;
        Ok(Self(Some(handle)))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let Some(handle) = self.0.take() else { return };
        // A waker may drop the last handle to a world on one of its own threads, which then ends by itself.
        if handle.thread().id() != std::thread::current().id() {
            // A panic was reported when it happened; the callers have got `Unavailable`.
            let _ = handle.join();
        }
    }
}
