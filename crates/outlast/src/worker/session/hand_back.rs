//! Handing back: releasing runs that the session holds according to the world, but that are not live here. The response
//! to their claim was lost, or their task has ended without a commit.
//!
//! The list of held runs may be outdated when it arrives, because runs are claimed and released in the meantime. So a
//! run is handed back only if two reads, some time apart, show it at the same turn, and it was live at neither read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Backoff, Busy, HeldRun, RunId, Then, WorldError};

use super::Session;
use crate::clock::pause_before_retry;
use crate::worker::outage::Call;

/// The time between the two reads.
const BETWEEN_READS: Duration = Duration::from_secs(1);

/// The pauses after reads that failed.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));

/// Hands back unknown runs whenever that is requested, until the session ends.
pub(in crate::worker) async fn hand_back_unknown_runs(session: Arc<Session>) {
    let mut backoff = BACKOFF;
    loop {
        tokio::select! {
            biased;
            () = session.stopping.cancelled() => return,
            () = session.lost.cancelled() => return,
            () = session.hand_back_requested.notified() => {}
        }
        let busy = session.hand_back_busy.lock().take();
        tokio::select! {
            biased;
            () = session.stopping.cancelled() => return,
            () = session.lost.cancelled() => return,
            () = check_twice(&session, busy, &mut backoff) => {}
        }
    }
}

/// Reads the held runs twice, and hands back those that are unknown both times.
async fn check_twice(session: &Arc<Session>, busy: Option<Busy>, backoff: &mut Backoff) {
    let Some(first) = unknown_runs(session, backoff).await else { return };
    if first.is_empty() {
        return;
    }
    let claim = session.claims.in_progress();
    let _busy = tokio::select! {
        biased;
        busy = session.clock.sleep_until(session.clock.now().plus(BETWEEN_READS)) => busy,
        busy = drop_and_wait(busy) => busy,
    };
    let Some(second) = unknown_runs(session, backoff).await else { return };
    // A claim that has been in progress for so long may still return the runs.
    let is_claiming = claim.is_some() && session.claims.in_progress() == claim;
    for (run, held) in second {
        let is_same_turn = first.get(&run).is_some_and(|before| before.turn == held.turn);
        if !is_same_turn || is_claiming {
            session.request_hand_back();
            continue;
        }
        tracing::info!(%run, "handing back a run that this worker does not know");
        if let Err(error) = hand_back(session, held).await {
            tracing::info!(%run, %error, "the run was not handed back");
        }
    }
}

/// Drops `busy`, so that a virtual clock may advance, and never completes. It must be polled after the sleep, so that
/// the sleep is registered before the clock advances.
async fn drop_and_wait(busy: Option<Busy>) -> Busy {
    drop(busy);
    std::future::pending().await
}

/// Reads the runs that the session holds according to the world and that are not live here.
async fn unknown_runs(session: &Session, backoff: &mut Backoff) -> Option<BTreeMap<RunId, HeldRun>> {
    match session.world.held(session.id).await {
        Ok(held) => {
            backoff.reset();
            let unknown = held.into_iter().filter(|held| !session.is_live(held.run));
            Some(unknown.map(|held| (held.run, held)).collect())
        }
        // The next claim detects that the session is lost, or that the storage is gone.
        Err(WorldError::Fenced(_) | WorldError::Gone(_)) => None,
        Err(error) => {
            session.settings.outage.failed(Call::Claim, &error);
            pause_before_retry(backoff).await;
            session.request_hand_back();
            None
        }
    }
}

async fn hand_back(session: &Session, held: HeldRun) -> Result<(), WorldError> {
    let turn = session.release_turn(held, Then::Release).await?;
    session.committer.commit(turn).await.map(drop)
}
