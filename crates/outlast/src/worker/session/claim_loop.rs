//! The claim loop: claims runs while the worker has capacity, and passes messages to live runs.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::{CLAIM_RUNS_MAX, DEADLINE_GRACE, IDLE_CLAIM};
use outlast_core::{Backoff, Busy, ClaimRequest, SuspectRoom, Timestamp, Work, WorldError};

use super::Session;
use super::idle::ClaimSummary;
use super::missing_histories::read_missing_histories;
use crate::clock::{monotonic, pause_before_retry};
use crate::worker::outage::Call;

/// The maximum number of runs that a worker without capacity claims at a time, to end them without their code.
const ENDED_WHEN_FULL: usize = 16;

/// The pauses after claims that failed.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));

/// The pauses after claims from a damaged world. It may be restored, but that takes a while.
const CORRUPT_BACKOFF: Backoff = Backoff::constant(Duration::from_secs(5));

/// Why the claim loop ended.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::worker) enum ClaimLoopEnd {
    /// The worker stops.
    Stopping,
    /// The session is lost, or the storage of the world is gone.
    Lost,
}

/// Claims runs until the worker stops or its session is lost. `busy` keeps a virtual clock from advancing before the
/// first claim.
pub(in crate::worker) async fn claim_until_stopped(session: &Arc<Session>, mut busy: Busy) -> ClaimLoopEnd {
    let (mut hinted_at, mut backoff, mut corrupt_backoff) = (None, BACKOFF, CORRUPT_BACKOFF);
    loop {
        let capacity_epoch = session.capacity_freed.epoch();
        let is_trial = session.trial_until().is_some();
        let capacity = if is_trial { 0 } else { session.reserve_for_claim(CLAIM_RUNS_MAX) };
        let request = claim_request(session, capacity, is_trial);
        let scope = ClaimScope { capacity, is_trial, suspects: request.suspects };
        let claim_in_progress = session.claims.begin();
        let mut summary = ClaimSummary::of_claim(session.claims.begun());
        let work = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return ClaimLoopEnd::Stopping,
            () = session.lost.cancelled() => return ClaimLoopEnd::Lost,
            work = session.world.claim(session.id, request) => work,
        };
        let wait = match work {
            Ok(work) => {
                session.settings.outage.answered(Call::Claim);
                backoff.reset();
                summary = summary.with_result(&work);
                count_claim(session, &work, hinted_at.take());
                distribute(session, work, scope)
            }
            Err(error @ (WorldError::Fenced(_) | WorldError::Gone(_))) => {
                session.lose_after(&error);
                return ClaimLoopEnd::Lost;
            }
            Err(error @ WorldError::Corrupt(_)) => {
                session.settings.metrics.world_error(&error);
                tracing::error!(%error, "cannot claim runs: stored data is damaged; restore the world from a backup");
                pause_before_retry(&mut corrupt_backoff).await;
                continue;
            }
            Err(error) => {
                session.settings.outage.failed(Call::Claim, &error);
                // The world may have assigned runs to the session before the response was lost.
                session.request_hand_back();
                pause_before_retry(&mut backoff).await;
                continue;
            }
        };
        drop(claim_in_progress);
        session.has_claimed.cancel();
        deliver_outboxes(session).await;
        session.idle_checks.claim_ended(summary);
        let Some(NextClaim { epoch, until, is_limited }) = wait else { continue };
        // `busy` is held during the claim, so that a virtual clock does not advance while a claim is in progress.
        busy = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return ClaimLoopEnd::Stopping,
            () = session.lost.cancelled() => return ClaimLoopEnd::Lost,
            busy = session.world.changed(epoch, until) => busy,
            busy = session.capacity_freed.changed_since(capacity_epoch), if is_limited => busy,
            () = session.idle_checks.claim_requested() => session.busy(),
            busy = drop_and_wait(busy) => busy,
        };
        hinted_at = Some(monotonic());
    }
}

/// Delivers outboxes after a claim and before the wait for the next one: an outbox that is committed in between is later
/// than the claim's epoch, so the wait ends at once. Before the claim, such an outbox would wait for the next hint.
async fn deliver_outboxes(session: &Session) {
    if let Err(error) = session.deliver().await {
        // The next claim fails for the same reason, and reports it.
        tracing::debug!(session = %session.id, %error, "outboxes were not delivered");
    }
}

/// Updates the metrics after a claim. `hinted_at` is the time of the hint that caused it.
fn count_claim(session: &Session, work: &Work, hinted_at: Option<Duration>) {
    let meter = &session.settings.meter;
    meter.claims.add(1);
    meter.claimed_runs.add(work.claimed.len() as u64);
    if let Some(hinted_at) = hinted_at.filter(|_| !work.claimed.is_empty()) {
        meter.hint_to_claim.add(monotonic().saturating_sub(hinted_at));
    }
}

/// Drops `busy`, so that a virtual clock may advance, and never completes. It must be polled after everything that can
/// wake the loop, so that these are registered before the clock advances.
async fn drop_and_wait(busy: Busy) -> Busy {
    drop(busy);
    std::future::pending().await
}

/// The request of a claim for at most `limit` runs.
fn claim_request(session: &Session, limit: usize, is_trial: bool) -> ClaimRequest {
    // A worker without capacity still ends runs that need no code: this matters most when all workers are busy. A
    // worker with a run on trial claims nothing.
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
        // Workers that have the code come first, and may have been started together with this one.
        ends_overdue_from: session.joined_at.plus(DEADLINE_GRACE),
    }
}

/// What a claim could return.
#[derive(Clone, Copy)]
struct ClaimScope {
    capacity: usize,
    /// Whether a run was on trial, so that the claim could return nothing.
    is_trial: bool,
    suspects: SuspectRoom,
}

/// The events that the claim loop waits for before the next claim.
struct NextClaim {
    epoch: u64,
    until: Timestamp,
    /// Whether there may be ready runs that the worker could not claim, because it had no capacity or held suspects.
    is_limited: bool,
}

/// Passes the claimed runs and messages to the tasks of their runs. Returns when to claim again; `None` means at once,
/// because there may be more ready runs.
fn distribute(session: &Arc<Session>, work: Work, scope: ClaimScope) -> Option<NextClaim> {
    let ClaimScope { capacity, is_trial, suspects } = scope;
    let is_full = capacity > 0 && work.claimed.len() == capacity;
    // Determined from the request and its answer: suspects that the worker held then may be gone by now, and the claim
    // that their end causes must not be missed.
    let crashes = work.claimed.iter().map(|claimed| claimed.columns.crashes);
    let is_limited = capacity == 0 || is_full || suspects.may_leave_ready(crashes);
    session.claim_returned(&work.claimed);
    for unread in work.unread {
        session.pass_messages(unread.run, unread.messages);
    }
    for claimed in read_missing_histories(session, work.claimed) {
        session.continue_claimed(claimed);
    }
    session.end_reservation();
    let trial_until = session.trial_until();
    let has_trial_ended = is_trial && trial_until.is_none();
    if has_trial_ended || is_full && session.free_capacity() > 0 && trial_until.is_none() {
        return None;
    }
    let due = if capacity == 0 || trial_until.is_some() { trial_until } else { work.next_due };
    let due = due.unwrap_or(Timestamp::NEVER);
    let until = if session.clock.is_virtual() { due } else { due.min(session.clock.now().plus(IDLE_CLAIM)) };
    Some(NextClaim { epoch: work.epoch, until, is_limited })
}
