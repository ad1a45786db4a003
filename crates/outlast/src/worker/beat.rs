//! The beat: renews the session from a thread of its own, so that a busy runtime does not lose it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use outlast_core::turn::From;
use outlast_core::{Held, Then, Turn, WorldError};

use super::session::Session;
use crate::clock::monotonic;
use crate::ids;

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
    // The last beat might have been acknowledged later than the world counted it.
    let margin = time / BEATS;
    let mut acknowledged = monotonic();
    let mut unknown = Vec::new();
    while stopped.recv_timeout(time / BEATS) == Err(RecvTimeoutError::Timeout) {
        let asked = monotonic();
        match block_on(session.world.beat(session.id)) {
            Ok(beat) => {
                acknowledged = asked;
                unknown = hand_back_unknown(session, beat.held, unknown);
                let _ = block_on(session.world.takeover(session.id));
            }
            Err(WorldError::Fenced(reason)) => {
                tracing::error!(session = %session.id, reason, "the session is lost");
                return session.abandon();
            }
            Err(error) => tracing::warn!(session = %session.id, %error, "a beat was not acknowledged"),
        }
        if monotonic() - acknowledged > time.saturating_sub(margin) {
            tracing::error!(session = %session.id, "no beat was acknowledged in time: the session is given up");
            return session.abandon();
        }
    }
}

/// Hands back runs that the world says this session holds and that it does not know. What is unknown
/// once may be on its way; what is unknown at two beats, at the same turn, is not.
fn hand_back_unknown(session: &Session, held: u64, before: Vec<Held>) -> Vec<Held> {
    if held == session.live_count() as u64 {
        return Vec::new();
    }
    let Ok(held) = block_on(session.world.held(session.id)) else { return Vec::new() };
    let unknown: Vec<_> = held.into_iter().filter(|held| !session.is_live(held.run)).collect();
    for held in unknown.iter().filter(|held| before.contains(held)) {
        tracing::warn!(run = %held.run, "handing back a run that this worker does not know");
        let _ = block_on(hand_back(session, *held));
    }
    unknown
}

async fn hand_back(session: &Session, held: Held) -> Result<(), WorldError> {
    let view = session.world.run(held.run).await?;
    let turn = Turn {
        run: held.run,
        id: ids::turn(),
        from: From::Turn(held.turn),
        // A turn without events has no place in the history.
        seq: 0,
        at: session.clock.now(),
        build: session.settings.build.clone(),
        events: Vec::new(),
        consumed: view.consumed,
        fired_until: None,
        clears_crashes: false,
        then: Then::Release,
    };
    session.world.commit(session.id, vec![turn]).await.map(drop)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, without a runtime.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            // A limit, in case a wake got lost on the way: a beat must not hang for ever.
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(1)),
        }
    }
}
