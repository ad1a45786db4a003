//! The beat: renews the session from a separate thread, so that a busy runtime does not lose its session.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use futures_util::FutureExt;
use outlast_core::{Backoff, Description, WorldError};
use tokio::task::AbortHandle;

use super::Session;
use crate::clock::{monotonic, pause, within};
use crate::ids::{chance, is_simulated};
use crate::worker::outage::{Call, whole_time};

/// The number of beats per session time.
const BEATS: u32 = 4;

/// While the world does not respond, the number of tries per regular beat: the world may be available for only a
/// moment before the session expires.
const TRIES: u32 = 8;

/// The thread that renews a session, or a task in a simulation. It ends when this is dropped.
#[derive(Debug)]
pub(in crate::worker) enum BeatThread {
    Thread { stop: Option<SyncSender<()>>, thread: Option<JoinHandle<()>> },
    Simulated(AbortHandle),
}

impl BeatThread {
    /// Starts to renew a session.
    pub(in crate::worker) fn start(session: Arc<Session>) -> std::io::Result<Self> {
        if is_simulated() {
            let task =
                session.runtime.clone().spawn(async move { beat_until_stopped(&session, &TaskTimer).await });
            return Ok(Self::Simulated(task.abort_handle()));
        }
        let (stop, stopped) = sync_channel(0);
        let work = move || {
            // `ThreadTimer` blocks instead of returning `Pending`, so a single poll runs the whole loop.
            beat_until_stopped(&session, &ThreadTimer(stopped)).now_or_never();
        };
        let thread = std::thread::Builder::new().name("outlast-beat".into()).spawn(work)?;
        Ok(Self::Thread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for BeatThread {
    fn drop(&mut self) {
        match self {
            Self::Thread { stop, thread } => {
                drop(stop.take());
                if let Some(thread) = thread.take() {
                    // The panic hook has reported a panic of the thread.
                    let _ = thread.join();
                }
            }
            Self::Simulated(task) => task.abort(),
        }
    }
}

/// How the beat loop waits.
trait BeatTimer {
    /// Waits for this time. Returns whether the loop continues.
    async fn pause(&self, time: Duration) -> bool;

    /// Returns the future's output, or `None` if it does not complete before `deadline`.
    async fn within<T>(&self, future: impl Future<Output = T>, deadline: Duration) -> Option<T>;
}

/// Blocks the thread of the beat loop.
struct ThreadTimer(Receiver<()>);

impl BeatTimer for ThreadTimer {
    async fn pause(&self, time: Duration) -> bool {
        self.0.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }

    async fn within<T>(&self, future: impl Future<Output = T>, deadline: Duration) -> Option<T> {
        block_on(future, deadline)
    }
}

/// Waits asynchronously: a simulation has one thread for everything.
struct TaskTimer;

impl BeatTimer for TaskTimer {
    async fn pause(&self, time: Duration) -> bool {
        pause(time).await;
        true
    }

    async fn within<T>(&self, future: impl Future<Output = T>, deadline: Duration) -> Option<T> {
        within(future, deadline).await
    }
}

/// Renews the session until it is lost or the timer ends the loop.
async fn beat_until_stopped(session: &Session, timer: &impl BeatTimer) {
    let time = session.settings.session_time;
    let pause = time / BEATS;
    // Give up before the session expires: the world counts its time from before the last response arrived.
    let silence_max = time.saturating_sub(pause);
    let (mut acknowledged_at, mut last_error) = (monotonic(), None);
    let (mut next, mut backoff) = (pause, Backoff::constant(pause / TRIES));
    while timer.pause(next).await {
        next = pause;
        let sent_at = monotonic();
        match timer.within(session.beat(), acknowledged_at + silence_max).await {
            Some(Ok(_)) => {
                (acknowledged_at, last_error) = (sent_at, None);
                session.settings.outage.answered(Call::Beat);
                session.settings.meter.beats.add(1);
                timer.within(session.take_over(), acknowledged_at + silence_max).await;
            }
            Some(Err(error @ (WorldError::Fenced(_) | WorldError::Gone(_)))) => {
                return session.lose_after(&error);
            }
            Some(Err(error)) => {
                session.settings.outage.failed(Call::Beat, &error);
                (next, last_error) = (backoff.next_pause(chance()), Some(error));
            }
            None => {}
        }
        if monotonic() > acknowledged_at + silence_max {
            let silence = monotonic().saturating_sub(acknowledged_at);
            return session.lose(&silence_cause(&session.world.describe(), silence, last_error.as_ref()));
        }
    }
}

/// Why a session is lost whose beats the world has not acknowledged for this time.
fn silence_cause(world: &Description, silence: Duration, last_error: Option<&WorldError>) -> String {
    let Description { kind, place, .. } = world;
    let why = match last_error {
        Some(error) => format!(" ({error})"),
        None if *kind == "sqlite" => "; is it locked by another process?".into(),
        None => "; does it respond to others?".into(),
    };
    format!("no beat reached {kind} `{place}` for {}{why}", whole_time(silence))
}

/// Wakes a thread that waits in [`block_on`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, without a runtime, until it completes or `deadline` has passed.
pub(in crate::worker) fn block_on<T>(future: impl Future<Output = T>, deadline: Duration) -> Option<T> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_lost_by_silence_names_the_world_the_time_and_the_cause() {
        let sqlite = Description::new("sqlite", "orders.db");
        let postgres = Description::new("postgres", "db.internal/shop");
        let silence = Duration::from_millis(7_123);
        assert_eq!(
            silence_cause(&sqlite, silence, None),
            "no beat reached sqlite `orders.db` for 7s; is it locked by another process?"
        );
        assert_eq!(
            silence_cause(&postgres, silence, None),
            "no beat reached postgres `db.internal/shop` for 7s; does it respond to others?"
        );
        let error = WorldError::Unavailable("the disk is full; free some space".into());
        assert_eq!(
            silence_cause(&sqlite, silence, Some(&error)),
            "no beat reached sqlite `orders.db` for 7s (the disk is full; free some space)"
        );
    }
}
