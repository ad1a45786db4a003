//! The supervisor: the task of a worker that works under one session after the other.
//!
//! A session can be lost: it expires when the world receives no beat in time, or another worker ends it because this
//! process seemed dead. The runs then belong to others, so the supervisor drops everything and joins again.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Backoff, Busy, WorldError};
use tokio_util::sync::CancellationToken;

use super::CurrentSession;
use super::outage::Call;
use super::session::Session;
use super::session::beat::BeatThread;
use super::session::claim_loop::{ClaimLoopEnd, claim_until_stopped};
use super::session::definitions::store_definitions;
use super::session::hand_back::hand_back_unknown_runs;
use super::session::retention::delete_old_runs;
use super::session::watchdog::Watchdog;
use crate::clock::{monotonic, pause, pause_before_retry, within};

/// The pauses between two attempts to join again.
const REJOIN_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(500));

/// Works under one session after the other until the worker stops, or until the storage of its world is gone. `busy`
/// keeps a virtual clock from advancing before the first claim.
pub(super) async fn supervise(current: Arc<CurrentSession>, stopping: CancellationToken, mut busy: Busy) {
    loop {
        let session = current.session();
        let threads = (start_beats(&session), start_watchdog(&session));
        // These tasks end with the session.
        session.runtime.spawn(hand_back_unknown_runs(session.clone()));
        session.runtime.spawn(store_definitions(session.clone()));
        if !session.settings.retention.is_endless() {
            session.runtime.spawn(delete_old_runs(session.clone()));
        }
        if claim_until_stopped(&session, busy).await == ClaimLoopEnd::Stopping {
            drain(&session).await;
            return;
        }
        busy = session.busy();
        session.abandon();
        session.settings.meter.sessions_lost.add(1);
        drop(threads);
        rejoin(&current, &session, &stopping).await;
        if stopping.is_cancelled() || session.settings.world_gone.error().is_some() {
            return;
        }
    }
}

/// Waits until all runs are released and their futures are dropped, for at most the drain time.
async fn drain(session: &Arc<Session>) {
    let end = monotonic() + session.settings.drain;
    session.ask_runs_to_stop();
    tokio::select! {
        biased;
        () = session.drained() => {}
        () = report_draining(session) => {}
        () = pause(session.settings.drain) => {
            let runs = session.live_count();
            tracing::warn!(
                session = %session.id, runs,
                "the drain time is over; releasing runs whose attempts are still running"
            );
        }
    }
    session.abandon();
    let drops = &session.settings.drops;
    if within(drops.finished(), end).await.is_none() {
        let futures = drops.remaining();
        tracing::warn!(
            session = %session.id, futures,
            "the drain time is over; {futures} futures of runs are still being dropped"
        );
    }
}

/// Reports to the world that the worker is draining, without waiting for the next beat. Never completes.
async fn report_draining(session: &Session) {
    // If this fails, the next beat reports it.
    let _ = session.beat().await;
    std::future::pending().await
}

/// Starts the thread that renews the session.
fn start_beats(session: &Arc<Session>) -> Option<BeatThread> {
    // Under a virtual clock no session expires by itself.
    if session.clock.is_virtual() {
        return None;
    }
    BeatThread::start(session.clone())
        .map_err(|error| {
            tracing::error!(%error, "cannot start the thread that renews the session; the session will expire")
        })
        .ok()
}

/// Starts the thread that detects turns that do not return.
fn start_watchdog(session: &Arc<Session>) -> Option<Watchdog> {
    // Under a virtual clock no time passes while a turn is computed.
    if session.clock.is_virtual() {
        return None;
    }
    Watchdog::start(session.clone(), session.settings.turn_time)
        .map_err(|error| {
            tracing::error!(%error, "cannot start the watchdog thread; turns that do not return are not detected")
        })
        .ok()
}

/// Leaves the lost session, so that its runs are ready for others at once, and joins with a new one, unless the storage
/// of the world is gone.
async fn rejoin(current: &CurrentSession, lost: &Arc<Session>, stopping: &CancellationToken) {
    let (began, mut backoff) = (monotonic(), REJOIN_BACKOFF);
    while !stopping.is_cancelled() && lost.settings.world_gone.error().is_none() {
        let _ = lost.world.leave(lost.id).await;
        match Session::join(lost.world.clone(), lost.settings.clone(), stopping.clone()).await {
            Ok(session) => {
                session.log_rejoined(monotonic().saturating_sub(began));
                let before = std::mem::replace(&mut *current.0.lock(), session);
                drop(before);
                return;
            }
            Err(error @ WorldError::Gone(_)) => lost.settings.world_gone.record(&error),
            Err(error) => {
                lost.settings.outage.failed(Call::Join, &error);
                pause_before_retry(&mut backoff).await;
            }
        }
    }
}
