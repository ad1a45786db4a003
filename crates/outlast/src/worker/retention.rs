//! Retention: a worker that forgets what ended long ago, beside its work.
//!
//! Of all workers that are told to do so one does it: the one whose session is the oldest. Which ones those
//! are, each says when it joins. It looks at all old runs now and then, a few at a time, and rests
//! longer than it works, so that nobody waits for it.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Code, RunId, Timestamp, WorldError};

use super::session::Session;
use crate::clock::{monotonic, pause};

/// What a worker with retention says it has the code of, beside its workflows.
pub(crate) const RETENTION: &str = "outlast:retention";

/// Runs that one call looks at: some milliseconds of the world's time.
const PART_RUNS: usize = 100;

/// For each moment of work so many of rest.
const REST: u32 = 4;

/// Between two looks at all old runs: a hundredth of the time for which runs are kept, within limits.
const LOOKS_PER_TIME: u32 = 100;
const LOOK_EVERY_MIN: Duration = Duration::from_secs(1);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(3_600);

/// How much a client's clock, which the ids of runs have, may be ahead. A run from further ahead is kept
/// longer, until its id is old.
const SKEW: Duration = Duration::from_secs(24 * 3_600);

/// The code of a worker, with the word that it forgets what is old.
pub(super) fn with_retention(code: Arc<[Code]>) -> Arc<[Code]> {
    let retention = Code { workflow: RETENTION.into(), version: 1 };
    code.iter().cloned().chain([retention]).collect()
}

/// Forgets runs that ended longer ago than `time`, now and then, until the session ends.
pub(super) async fn forget_old(session: Arc<Session>, time: Duration) {
    let every = (time / LOOKS_PER_TIME).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
    let mut next = session.joined_at.plus(every);
    loop {
        let _busy = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return,
            () = session.lost.cancelled() => return,
            busy = session.clock.sleep_until(next) => busy,
        };
        let before = session.clock.now().minus(time);
        let looked = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return,
            () = session.lost.cancelled() => return,
            looked = look(&session, before) => looked,
        };
        match looked {
            Ok(0) => {}
            Ok(runs) => tracing::info!(session = %session.id, runs, %before, "forgot runs that ended before"),
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "old runs were not forgotten; trying later")
            }
        }
        next = session.clock.now().plus(every);
    }
}

/// Looks at all runs that may have ended before a moment; answers how many were forgotten.
async fn look(session: &Session, before: Timestamp) -> Result<u64, WorldError> {
    let mut forgotten = 0;
    if !is_first(session).await? {
        return Ok(forgotten);
    }
    let mut after = None;
    loop {
        let began = monotonic();
        let pruned = session.world.prune(before, after, PART_RUNS).await?;
        forgotten += pruned.runs;
        after = pruned.next.filter(|run| started(*run) < before.plus(SKEW));
        if after.is_none() {
            return Ok(forgotten);
        }
        if !session.clock.is_virtual() {
            pause((monotonic() - began) * REST).await;
        }
    }
}

/// Whether this session is the oldest of those that forget.
async fn is_first(session: &Session) -> Result<bool, WorldError> {
    let workers = session.world.workers().await?;
    let mut forget =
        workers.iter().filter(|worker| worker.code.iter().any(|code| *code.workflow == *RETENTION));
    Ok(forget.next().is_some_and(|first| first.session == session.id))
}

/// When the id of a run was made.
fn started(run: RunId) -> Timestamp {
    Timestamp::from_micros(((run.bits() >> 80) as i64).saturating_mul(1_000))
}
