//! The pump: claims runs while there is room, and passes messages on to live ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use outlast_core::event::FORMAT;
use outlast_core::limits::{CLAIM_RUNS_MAX, DEADLINE_GRACE, IDLE_CLAIM};
use outlast_core::takeover::is_suspect;
use outlast_core::work::Known;
use outlast_core::{Busy, ClaimRequest, Held, Then, Timestamp, Work, WorldError};

use super::session::Session;
use crate::clock::{monotonic, pause};
use crate::outage::Call;

/// Runs that a worker without room claims at a time, to end them without their code.
const ENDED_WHEN_FULL: usize = 16;

const PAUSE: Duration = Duration::from_millis(100);

/// Between two claims from a world that is damaged: it may be restored, but not in a moment.
const CORRUPT_PAUSE: Duration = Duration::from_secs(5);

/// Why the pump stopped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PumpEnd {
    /// The worker stops.
    Stopping,
    /// The session is lost.
    Lost,
}

/// Claims until the worker stops or its session is lost. `starting` is what keeps a virtual clock from
/// passing over the first claim.
pub(super) async fn pump(session: &Arc<Session>, starting: Busy) -> PumpEnd {
    // Carried from loop to loop: not for a moment does it look as if nothing was under way.
    let mut busy = starting;
    let mut hinted = None;
    loop {
        if session.is_unsure.swap(false, Ordering::AcqRel) {
            hand_back_unknown(session).await;
        }
        let freed = session.freed.epoch();
        let room = session.set_aside(CLAIM_RUNS_MAX);
        let request = request(session, room);
        let has_suspect = !request.suspect;
        let work = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return PumpEnd::Stopping,
            () = session.lost.cancelled() => return PumpEnd::Lost,
            work = session.world.claim(session.id, request) => work,
        };
        let wait = match work {
            Ok(work) => {
                session.settings.outage.answered(Call::Claim);
                count(session, &work, hinted.take());
                spread(session, work, room, has_suspect)
            }
            Err(WorldError::Fenced(reason)) => {
                tracing::error!(session = %session.id, reason, "the session is lost");
                return PumpEnd::Lost;
            }
            Err(error @ WorldError::Corrupt(_)) => {
                tracing::error!(%error, "this worker takes nothing new, since what it would get is damaged");
                pause(CORRUPT_PAUSE).await;
                continue;
            }
            Err(error) => {
                session.settings.outage.failed(Call::Claim, &error);
                session.is_unsure.store(true, Ordering::Release);
                pause(PAUSE).await;
                continue;
            }
        };
        let Some(Wait { epoch, until, may_free_more }) = wait else { continue };
        busy = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return PumpEnd::Stopping,
            () = session.lost.cancelled() => return PumpEnd::Lost,
            busy = session.world.changed(epoch, until) => busy,
            busy = session.freed.rung_since(freed), if may_free_more => busy,
            () = session.unsure.notified() => session.busy(),
            busy = rest(busy) => busy,
        };
        hinted = Some(monotonic());
    }
}

fn count(session: &Session, work: &Work, hinted: Option<Duration>) {
    let meter = &session.settings.meter;
    meter.claims.add(1);
    meter.claimed_runs.add(work.claimed.len() as u64);
    if let Some(hinted) = hinted.filter(|_| !work.claimed.is_empty()) {
        meter.hint_to_claim.add(monotonic().saturating_sub(hinted));
    }
}

/// Is polled last: a virtual clock goes on only when all that could wake the pump can be heard.
async fn rest(busy: Busy) -> Busy {
    drop(busy);
    std::future::pending().await
}

/// Hands back runs that the session holds and does not know: their claim was not answered, or their
/// task gave up. Only the pump claims, and a start is listed before it is committed, so what is held
/// and not live here is unknown indeed; if it has moved on meanwhile, the turn is refused.
async fn hand_back_unknown(session: &Arc<Session>) {
    let held = match session.world.held(session.id).await {
        Ok(held) => held,
        // The claim that follows says whether it is over.
        Err(error) => return session.settings.outage.failed(Call::Claim, &error),
    };
    for held in held.into_iter().filter(|held| !session.is_live(held.run)) {
        tracing::warn!(run = %held.run, "handing back a run that this worker does not know");
        if let Err(error) = hand_back(session, held).await {
            tracing::warn!(run = %held.run, %error, "a run was not handed back");
        }
    }
}

async fn hand_back(session: &Session, held: Held) -> Result<(), WorldError> {
    let turn = session.letting_go(held, Then::Release).await?;
    session.committer.commit(turn).await.map(drop)
}

fn request(session: &Arc<Session>, limit: usize) -> ClaimRequest {
    let known: Known = {
        let session = session.clone();
        Arc::new(move |run, turn| session.cache.lock().has(run, turn))
    };
    // A worker that is full still ends what needs no code: that is wanted most when all are busy.
    let (limit, code) =
        if limit > 0 { (limit, session.settings.code.code()) } else { (ENDED_WHEN_FULL, Arc::from([])) };
    ClaimRequest {
        limit,
        code,
        queues: session.settings.queues.clone(),
        build: session.settings.build.clone(),
        format: FORMAT,
        suspect: !session.has_suspect(),
        // Those that have the code come first, and may have been started together with this one.
        ends_overdue_from: session.joined_at.plus(DEADLINE_GRACE),
        known,
    }
}

/// What to wait for before the next claim.
struct Wait {
    epoch: u64,
    until: Timestamp,
    /// Whether there may be runs that this worker could not take: it was full, or carries a suspect.
    may_free_more: bool,
}

/// Gives the work to live runs. Answers what to wait for; nothing when there may be more at once.
fn spread(session: &Arc<Session>, work: Work, room: usize, has_suspect: bool) -> Option<Wait> {
    let is_full = room > 0 && work.claimed.len() == room;
    let carries_suspect = has_suspect || work.claimed.iter().any(|claimed| is_suspect(claimed.crashes));
    let may_free_more = room == 0 || is_full || carries_suspect;
    for unread in work.unread {
        session.tell(unread.run, unread.messages);
    }
    for claimed in work.claimed {
        session.go_on(claimed);
    }
    session.set_nothing_aside();
    if is_full && session.room() > 0 {
        return None;
    }
    let due = if room == 0 { None } else { work.next_due };
    let due = due.unwrap_or(Timestamp::NEVER);
    let until = if session.clock.is_virtual() { due } else { due.min(session.clock.now().plus(IDLE_CLAIM)) };
    Some(Wait { epoch: work.epoch, until, may_free_more })
}
