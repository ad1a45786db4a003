//! A thread with a small runtime that drives the connections of a world, so that its calls work outside any
//! runtime, and a busy one loses no session.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use outlast_core::WorldError;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How long the thread waits for those who say goodbye to the server.
const GOODBYE: Duration = Duration::from_secs(1);

/// The thread. Dropping it ends it, and everything that runs there.
#[derive(Debug)]
pub(crate) struct Home {
    handle: Handle,
    stop: Option<oneshot::Sender<Option<tokio::task::JoinHandle<()>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Home {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self, WorldError> {
        let failed = |error: std::io::Error| {
            WorldError::Unavailable(format!(
                "a thread for the connections cannot be started ({error}); check how many this process may have"
            ))
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<Option<tokio::task::JoinHandle<()>>>();
        let thread = std::thread::Builder::new().name("outlast-postgres".into()).spawn(move || {
            runtime.block_on(async move {
                if let Ok(Some(last)) = stopped.await {
                    // Whatever comes of it, this is the end.
                    let _ = tokio::time::timeout(GOODBYE, last).await;
                }
            });
            runtime.shutdown_background();
        });
        Ok(Self { handle, stop: Some(stop), thread: Some(thread.map_err(failed)?) })
    }

    /// The thread's runtime.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the thread, once this task has ended or has had its time.
    pub(crate) fn end_after(&mut self, last: Option<tokio::task::JoinHandle<()>>) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(last);
        }
        let Some(thread) = self.thread.take() else { return };
        if thread.thread().id() != std::thread::current().id() {
            // It can only have panicked, and is gone then.
            let _ = thread.join();
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.end_after(None);
    }
}

/// Waits for a future, but not longer than so long, by the time of the runtime: from anywhere.
#[allow(clippy::disallowed_methods, reason = "a limit of real time, for a server that does not answer")]
pub(crate) async fn within<T>(
    handle: &Handle,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    // Most answers are there before the timer would be.
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
