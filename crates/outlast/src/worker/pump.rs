//! The pump: claims runs while there is room, and passes messages on to live ones.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::{CLAIM_RUNS_MAX, DEADLINE_GRACE, IDLE_CLAIM};
use outlast_core::{Busy, ClaimRequest, SuspectRoom, Timestamp, Work, WorldError};

use super::histories::with_histories;
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
        let freed = session.freed.epoch();
        let trial_until = session.trial_until();
        let room = if trial_until.is_some() { 0 } else { session.set_aside(CLAIM_RUNS_MAX) };
        let request = request(session, room, trial_until.is_some());
        let claiming = session.claims.begin();
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
                spread(session, work, room)
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
                session.doubt();
                pause(PAUSE).await;
                continue;
            }
        };
        drop(claiming);
        session.has_claimed.cancel();
        // Behind the claim and before the wait: an outbox that comes between the two is later than the claim's
        // epoch, so the wait below ends at once. Before the claim it would be slept over.
        if let Err(error) = session.deliver().await {
            // The next claim meets the same trouble.
            tracing::debug!(session = %session.id, %error, "outboxes were not delivered");
        }
        let Some(Wait { epoch, until, may_free_more }) = wait else { continue };
        busy = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return PumpEnd::Stopping,
            () = session.lost.cancelled() => return PumpEnd::Lost,
            busy = session.world.changed(epoch, until) => busy,
            busy = session.freed.changed_since(freed), if may_free_more => busy,
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

fn request(session: &Session, limit: usize, is_trial: bool) -> ClaimRequest {
    // A worker that is full still ends what needs no code: that is wanted most when all are busy. One that tries a
    // run alone takes nothing.
    let (limit, code) = match limit {
        0 if is_trial => (0, Arc::from([])),
        0 => (ENDED_WHEN_FULL, Arc::from([])),
        limit => (limit, session.settings.code.code()),
    };
    ClaimRequest {
        limit,
        code,
        queues: session.settings.queues.clone(),
        build: session.settings.build.clone(),
        format: session.settings.format(),
        suspects: if is_trial { SuspectRoom::Nothing } else { session.suspect_room() },
        // Those that have the code come first, and may have been started together with this one.
        ends_overdue_from: session.joined_at.plus(DEADLINE_GRACE),
    }
}

/// What to wait for before the next claim.
struct Wait {
    epoch: u64,
    until: Timestamp,
    /// Whether there may be runs that this worker could not take: it was full, or carries suspects.
    may_free_more: bool,
}

/// Gives the work to live runs. Answers what to wait for; nothing when there may be more at once.
fn spread(session: &Arc<Session>, work: Work, room: usize) -> Option<Wait> {
    let is_full = room > 0 && work.claimed.len() == room;
    session.claim_answered(&work.claimed);
    for unread in work.unread {
        session.tell(unread.run, unread.messages);
    }
    for given in with_histories(session, work.claimed) {
        session.go_on(given);
    }
    session.set_nothing_aside();
    let trial_until = session.trial_until();
    if is_full && session.room() > 0 && trial_until.is_none() {
        return None;
    }
    let may_free_more = room == 0 || is_full || session.has_suspect();
    let due = if room == 0 || trial_until.is_some() { trial_until } else { work.next_due };
    let due = due.unwrap_or(Timestamp::NEVER);
    let until = if session.clock.is_virtual() { due } else { due.min(session.clock.now().plus(IDLE_CLAIM)) };
    Some(Wait { epoch: work.epoch, until, may_free_more })
}
