//! The I/O runtime: a thread with a small Tokio runtime that drives the connections of a world.
//!
//! With it, the world's calls work outside any runtime, and a busy runtime of the program does not delay beats.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use outlast_core::WorldError;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How long the thread waits for the final task before it ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The thread and its runtime. Dropping it ends the thread and all tasks on it.
#[derive(Debug)]
pub(crate) struct IoRuntime {
    handle: Handle,
    stop: Option<oneshot::Sender<Option<tokio::task::JoinHandle<()>>>>,
    thread: Option<JoinHandle<()>>,
}

impl IoRuntime {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self, WorldError> {
        let failed = |error: std::io::Error| {
            WorldError::unavailable(format!(
                "a thread for the connections cannot be started ({error}); check how many threads this process may have"
            ))
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<Option<tokio::task::JoinHandle<()>>>();
        let thread = std::thread::Builder::new().name("outlast-postgres".into()).spawn(move || {
            runtime.block_on(async move {
                if let Ok(Some(final_task)) = stopped.await {
                    // The thread ends, whether the task has finished or not.
                    let _ = tokio::time::timeout(CLOSE_TIMEOUT, final_task).await;
                }
            });
            runtime.shutdown_background();
        });
        Ok(Self { handle, stop: Some(stop), thread: Some(thread.map_err(failed)?) })
    }

    /// A handle to the runtime.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the thread, after this task has ended or [`CLOSE_TIMEOUT`] has passed, and waits for its end.
    pub(crate) fn end_after(&mut self, final_task: Option<tokio::task::JoinHandle<()>>) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(final_task);
        }
        let Some(thread) = self.thread.take() else { return };
        // The last handle to a world may be dropped on this thread, which cannot join itself.
        if thread.thread().id() != std::thread::current().id() {
            // An error means that the thread has panicked; it has ended then as well.
            let _ = thread.join();
        }
    }
}

impl Drop for IoRuntime {
    fn drop(&mut self) {
        self.end_after(None);
    }
}

/// Waits for a future; `None` if it takes longer than `limit`. Can be called outside the runtime: its timer is used.
#[allow(clippy::disallowed_methods, reason = "a limit in real time, for a server that does not respond")]
pub(crate) async fn with_timeout<T>(
    handle: &Handle,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    // Create the timer only if the future is not ready immediately.
    let mut timer: Option<Pin<Box<tokio::time::Sleep>>> = None;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(answer) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        let timer = timer.get_or_insert_with(|| {
            let _entered = handle.enter();
            Box::pin(tokio::time::sleep(limit))
        });
        timer.as_mut().poll(cx).map(|()| None)
    })
    .await
}
