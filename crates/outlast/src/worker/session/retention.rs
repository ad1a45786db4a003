//! Retention: deleting runs that ended long ago.
//!
//! Of all workers with this setting, only the one with the oldest session deletes. A worker announces the setting when
//! it joins. It scans all old runs periodically, in small batches, and pauses longer than it works, so that it does not
//! slow down other work.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::paging::millis_of;
use outlast_core::{Code, RunId, Timestamp, WorldError};

use super::Session;
use crate::clock::{monotonic, pause};

/// The workflow name by which a worker with retention announces it, in addition to its workflows.
pub(crate) const RETENTION: &str = "outlast:retention";

/// The number of runs that one call examines: it takes the world some milliseconds.
const BATCH_RUNS: usize = 100;

/// How many times longer the pause after a batch is than the batch.
const PAUSE_FACTOR: u32 = 4;

/// The time between two scans is a hundredth of the time for which runs are kept, within limits.
const SCANS_PER_RETENTION: u32 = 100;
const SCAN_INTERVAL_MIN: Duration = Duration::from_secs(1);
const SCAN_INTERVAL_MAX: Duration = Duration::from_secs(3_600);

/// How far the clock of a client, which the ids of its runs contain, may be ahead. A run with an id from further in the
/// future is kept longer, until its id is old enough.
const ID_CLOCK_SKEW: Duration = Duration::from_secs(24 * 3_600);

/// Adds the announcement of retention to the code of a worker.
pub(in crate::worker) fn with_retention(code: Arc<[Code]>) -> Arc<[Code]> {
    let retention = Code { workflow: RETENTION.into(), version: 1 };
    code.iter().cloned().chain([retention]).collect()
}

/// Periodically deletes runs that ended longer than `time` ago, until the session ends.
pub(in crate::worker) async fn delete_old_runs(session: Arc<Session>, time: Duration) {
    let interval = (time / SCANS_PER_RETENTION).clamp(SCAN_INTERVAL_MIN, SCAN_INTERVAL_MAX);
    let mut next = session.joined_at.plus(interval);
    loop {
        let _busy = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return,
            () = session.lost.cancelled() => return,
            busy = session.clock.sleep_until(next) => busy,
        };
        let before = session.clock.now().minus(time);
        let deleted = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return,
            () = session.lost.cancelled() => return,
            deleted = delete_ended_before(&session, before) => deleted,
        };
        match deleted {
            Ok(0) => {}
            Ok(runs) => {
                tracing::info!(session = %session.id, runs, %before, "deleted {runs} runs that ended before {before}")
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "old runs were not deleted; retrying later")
            }
        }
        next = session.clock.now().plus(interval);
    }
}

/// Deletes all runs that ended before a time, if this worker is the one that deletes. Returns the number of deleted
/// runs.
async fn delete_ended_before(session: &Session, before: Timestamp) -> Result<u64, WorldError> {
    let mut deleted = 0;
    if !is_oldest(session).await? {
        return Ok(deleted);
    }
    let mut after = None;
    loop {
        let began = monotonic();
        let pruned = session.world.prune(before, after, BATCH_RUNS).await?;
        deleted += pruned.runs;
        after = pruned.next.filter(|run| created_at(*run) < before.plus(ID_CLOCK_SKEW));
        if after.is_none() {
            return Ok(deleted);
        }
        if !session.clock.is_virtual() {
            pause((monotonic() - began) * PAUSE_FACTOR).await;
        }
    }
}

/// Whether this session is the oldest of those with retention.
async fn is_oldest(session: &Session) -> Result<bool, WorldError> {
    let workers = session.world.workers().await?;
    let mut with_retention =
        workers.iter().filter(|worker| worker.code.iter().any(|code| *code.workflow == *RETENTION));
    Ok(with_retention.next().is_some_and(|oldest| oldest.session == session.id))
}

/// The time at which the id of a run was generated.
fn created_at(run: RunId) -> Timestamp {
    Timestamp::from_micros(millis_of(run).saturating_mul(1_000))
}
