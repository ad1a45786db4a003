//! A world whose storage is gone: its file was moved or removed, or its schema was dropped. No retry helps, so the
//! worker stops by itself, and `stop`, `idle`, `failed` and `run_until_signal` return the error.

use std::sync::OnceLock;

use outlast_core::WorldError;
use tokio_util::sync::CancellationToken;

/// The error because of which a worker has stopped by itself, if it has.
#[derive(Debug, Default)]
pub(super) struct WorldGone {
    error: OnceLock<WorldError>,
    is_recorded: CancellationToken,
}

impl WorldGone {
    /// Records and logs that the storage of the world is gone. Only the first call has an effect.
    pub(super) fn record(&self, error: &WorldError) {
        if self.error.set(error.clone()).is_ok() {
            tracing::error!("the worker stops, because the storage of its world is gone: {error}");
            self.is_recorded.cancel();
        }
    }

    /// The recorded error.
    pub(super) fn error(&self) -> Option<&WorldError> {
        self.error.get()
    }

    /// Waits until an error is recorded, and returns it.
    pub(super) async fn wait(&self) -> WorldError {
        self.is_recorded.cancelled().await;
        match self.error.get() {
            Some(error) => error.clone(),
            None => std::future::pending().await,
        }
    }
}
