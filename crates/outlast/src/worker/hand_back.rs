//! Handing back: runs that the world says this session holds and that are not live here. Their claim was not
//! answered, or their task gave up.
//!
//! What the world says may be over by the time it is read, since runs come and go meanwhile. So a run is handed back
//! only when two reads show it at the same turn, some time apart, and it was live at neither.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Busy, HeldRun, RunId, Then, WorldError};

use super::session::Session;
use crate::clock::pause;
use crate::outage::Call;

/// The time between the two reads.
const BETWEEN_READS: Duration = Duration::from_secs(1);

/// Before the world is asked again that did not answer.
const PAUSE: Duration = Duration::from_millis(100);

/// Hands back what is unknown whenever there is doubt, until the session ends.
pub(super) async fn hand_back_unknown(session: Arc<Session>) {
    loop {
        tokio::select! {
            biased;
            () = session.stopping.cancelled() => return,
            () = session.lost.cancelled() => return,
            () = session.unsure.notified() => {}
        }
        let busy = session.doubting.lock().take();
        tokio::select! {
            biased;
            () = session.stopping.cancelled() => return,
            () = session.lost.cancelled() => return,
            () = look(&session, busy) => {}
        }
    }
}

async fn look(session: &Arc<Session>, busy: Option<Busy>) {
    let Some(first) = unknown(session).await else { return };
    if first.is_empty() {
        return;
    }
    let claim = session.claims.under_way();
    let _busy = tokio::select! {
        biased;
        busy = session.clock.sleep_until(session.clock.now().plus(BETWEEN_READS)) => busy,
        busy = rest(busy) => busy,
    };
    let Some(second) = unknown(session).await else { return };
    // The answer of a claim that takes so long may bring the runs.
    let is_claiming = claim.is_some() && session.claims.under_way() == claim;
    for (run, held) in second {
        let is_same = first.get(&run).is_some_and(|before| before.turn == held.turn);
        if !is_same || is_claiming {
            session.doubt();
            continue;
        }
        tracing::info!(%run, "handing back a run that this worker does not know");
        if let Err(error) = hand_back(session, held).await {
            tracing::info!(%run, %error, "a run was not handed back");
        }
    }
}

/// Is polled last: a virtual clock goes on only when the end of the pause can be heard.
async fn rest(busy: Option<Busy>) -> Busy {
    drop(busy);
    std::future::pending().await
}

/// The runs that the world says the session holds and that are not live here.
async fn unknown(session: &Session) -> Option<BTreeMap<RunId, HeldRun>> {
    match session.world.held(session.id).await {
        Ok(held) => {
            let unknown = held.into_iter().filter(|held| !session.is_live(held.run));
            Some(unknown.map(|held| (held.run, held)).collect())
        }
        // The next claim says that the session is over.
        Err(WorldError::Fenced(_)) => None,
        Err(error) => {
            session.settings.outage.failed(Call::Claim, &error);
            pause(PAUSE).await;
            session.doubt();
            None
        }
    }
}

async fn hand_back(session: &Session, held: HeldRun) -> Result<(), WorldError> {
    let turn = session.letting_go(held, Then::Release).await?;
    session.committer.commit(turn).await.map(drop)
}
