//! The beat: renews the session from a thread of its own, so that a busy runtime does not lose it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use futures_util::FutureExt;
use outlast_core::WorldError;
use tokio::task::AbortHandle;

use super::session::Session;
use crate::clock::{monotonic, pause, within};
use crate::ids::is_simulated;
use crate::outage::Call;

/// Beats per session time.
const BEATS: u32 = 4;

/// Tries per beat while the world does not answer: it may be back for a moment before the session is given up.
const TRIES: u32 = 8;

/// A beating thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) enum Beating {
    Thread { stop: Option<Sender<()>>, thread: Option<JoinHandle<()>> },
    Simulated(AbortHandle),
}

impl Beating {
    /// Begins to beat for a session.
    pub(super) fn begin(session: Arc<Session>) -> std::io::Result<Self> {
        if is_simulated() {
            let task =
                session.runtime.clone().spawn(async move { beat_until_stopped(&session, &OnTask).await });
            return Ok(Self::Simulated(task.abort_handle()));
        }
        let (stop, stopped) = channel();
        let work = move || {
            // It blocks where others would wait, so it is done at once.
            beat_until_stopped(&session, &OnThread(stopped)).now_or_never();
        };
        let thread = std::thread::Builder::new().name("outlast-beat".into()).spawn(work)?;
        Ok(Self::Thread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        match self {
            Self::Thread { stop, thread } => {
                drop(stop.take());
                if let Some(thread) = thread.take() {
                    // A panic there was reported by the panic hook.
                    let _ = thread.join();
                }
            }
            Self::Simulated(task) => task.abort(),
        }
    }
}

/// How a beat waits.
trait Rhythm {
    /// Waits until the next beat is due; false when there is to be none.
    async fn pause(&self, time: Duration) -> bool;

    /// What the future gives, unless `deadline` comes first.
    async fn within<T>(&self, future: impl Future<Output = T>, deadline: Duration) -> Option<T>;
}

/// A thread of its own blocks.
struct OnThread(Receiver<()>);

impl Rhythm for OnThread {
    async fn pause(&self, time: Duration) -> bool {
        self.0.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }

    async fn within<T>(&self, future: impl Future<Output = T>, deadline: Duration) -> Option<T> {
        block_on(future, deadline)
    }
}

/// A simulation has one thread for everything.
struct OnTask;

impl Rhythm for OnTask {
    async fn pause(&self, time: Duration) -> bool {
        pause(time).await;
        true
    }

    async fn within<T>(&self, future: impl Future<Output = T>, deadline: Duration) -> Option<T> {
        within(future, deadline).await
    }
}

async fn beat_until_stopped(session: &Session, rhythm: &impl Rhythm) {
    let time = session.settings.session_time;
    let pause = time / BEATS;
    // The world may have counted the last beat a little earlier than its answer came.
    let patience = time.saturating_sub(pause);
    let mut acknowledged = monotonic();
    let mut next = pause;
    while rhythm.pause(next).await {
        next = pause;
        let asked = monotonic();
        match rhythm.within(session.beat(), acknowledged + patience).await {
            Some(Ok(_)) => {
                acknowledged = asked;
                session.settings.outage.answered(Call::Beat);
                session.settings.meter.beats.add(1);
                rhythm.within(session.world.takeover(session.id), acknowledged + patience).await;
            }
            Some(Err(WorldError::Fenced(reason))) => {
                tracing::error!(session = %session.id, reason, "the session is lost");
                return session.abandon();
            }
            Some(Err(error)) => {
                session.settings.outage.failed(Call::Beat, &error);
                next = pause / TRIES;
            }
            None => {}
        }
        if monotonic() > acknowledged + patience {
            tracing::error!(session = %session.id, "no beat was acknowledged in time: the session is given up");
            return session.abandon();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, without a runtime, until it completes or `deadline` has passed.
pub(super) fn block_on<T>(future: impl Future<Output = T>, deadline: Duration) -> Option<T> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending => {
                let left = deadline.checked_sub(monotonic())?;
                std::thread::park_timeout(left);
            }
        }
    }
}
