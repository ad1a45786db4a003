//! The beat: renews the session from a thread of its own, so that a busy runtime does not lose it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use outlast_core::WorldError;

use super::session::Session;
use crate::clock::monotonic;

/// Beats per session time.
const BEATS: u32 = 4;

/// A beating thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Beating {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Beating {
    /// Begins to beat for a session.
    pub(super) fn begin(session: Arc<Session>) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("outlast-beat".into())
            .spawn(move || beat_until_stopped(&session, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

fn beat_until_stopped(session: &Session, stopped: &Receiver<()>) {
    let time = session.settings.session_time;
    let pause = time / BEATS;
    // The world may have counted the last beat a little earlier than its answer came.
    let patience = time.saturating_sub(pause);
    let mut acknowledged = monotonic();
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let asked = monotonic();
        match block_on(session.world.beat(session.id), acknowledged + patience) {
            Some(Ok(beat)) => {
                acknowledged = asked;
                session.settings.meter.beats.add(1);
                session.compare_held(beat.held);
                block_on(session.world.takeover(session.id), acknowledged + patience);
            }
            Some(Err(WorldError::Fenced(reason))) => {
                tracing::error!(session = %session.id, reason, "the session is lost");
                return session.abandon();
            }
            Some(Err(error)) => tracing::warn!(session = %session.id, %error, "a beat was not acknowledged"),
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
