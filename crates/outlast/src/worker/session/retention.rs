//! Retention: deleting runs that ended long ago.
//!
//! Of all workers with this setting, only the one with the oldest session deletes. A worker announces the setting when
//! it joins. It scans all old runs periodically, in small batches, and pauses longer than it works, so that it does not
//! slow down other work.
//!
//! Runs that are older than the longest time of any workflow are deleted in batches. Runs of workflows with a shorter time
//! are listed, and deleted one by one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::paging::millis_of;
use outlast_core::{BuiltInRuns, Code, ListOrder, Page, QueuedSteps, RunId, RunQuery, Timestamp, WorldError};

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

/// How long runs are kept after their end.
#[derive(Clone, Debug, Default)]
pub(in crate::worker) struct RetentionTimes {
    /// For workflows without a time of their own; `None` means forever.
    pub(in crate::worker) others: Option<Duration>,
    /// For the workflows that have a time of their own.
    pub(in crate::worker) of_workflow: BTreeMap<Arc<str>, Duration>,
}

impl RetentionTimes {
    fn all(&self) -> impl Iterator<Item = Duration> {
        self.of_workflow.values().copied().chain(self.others)
    }

    /// Whether all runs are kept forever.
    pub(in crate::worker) fn is_endless(&self) -> bool {
        self.all().next().is_none()
    }

    /// The time after which a run of any workflow is deleted; `None` if some are kept forever.
    fn of_all(&self) -> Option<Duration> {
        self.others.and(self.all().max())
    }

    fn of(&self, workflow: &str) -> Option<Duration> {
        self.of_workflow.get(workflow).copied().or(self.others)
    }

    /// The time between two scans.
    fn scan_interval(&self) -> Duration {
        let shortest = self.all().min().unwrap_or(Duration::MAX);
        (shortest / SCANS_PER_RETENTION).clamp(SCAN_INTERVAL_MIN, SCAN_INTERVAL_MAX)
    }

    /// The workflows whose runs are deleted before the time of [`of_all`](Self::of_all), and how long they are kept. `None`
    /// stands for all workflows without a time of their own.
    fn shorter(&self) -> Vec<(Option<Arc<str>>, Duration)> {
        let of_all = self.of_all().unwrap_or(Duration::MAX);
        let named = self.of_workflow.iter().map(|(workflow, time)| (Some(workflow.clone()), *time));
        let others = self.others.map(|time| (None, time));
        named.chain(others).filter(|(_, time)| *time < of_all).collect()
    }
}

/// The code of a worker with retention: its workflows, and [`RETENTION`], which announces the setting to other workers.
pub(in crate::worker) fn with_retention(code: Arc<[Code]>) -> Arc<[Code]> {
    let retention = Code { workflow: RETENTION.into(), version: 1 };
    code.iter().cloned().chain([retention]).collect()
}

/// Periodically deletes runs that ended longer ago than they are kept, until the session ends.
pub(in crate::worker) async fn delete_old_runs(session: Arc<Session>) {
    let interval = session.settings.retention.scan_interval();
    let mut next = session.joined_at.plus(interval);
    loop {
        let _busy = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return,
            () = session.lost.cancelled() => return,
            busy = session.clock.sleep_until(next) => busy,
        };
        let now = session.clock.now();
        let deleted = tokio::select! {
            biased;
            () = session.stopping.cancelled() => return,
            () = session.lost.cancelled() => return,
            deleted = delete_old(&session, now) => deleted,
        };
        match deleted {
            Ok(0) => {}
            Ok(runs) => {
                tracing::info!(session = %session.id, runs, "deleted {runs} runs that ended long ago")
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "old runs were not deleted; retrying later")
            }
        }
        next = session.clock.now().plus(interval);
    }
}

/// Deletes all runs that have been kept for long enough, if this worker is the one that deletes. Returns the number of
/// deleted runs.
async fn delete_old(session: &Session, now: Timestamp) -> Result<u64, WorldError> {
    let times = &session.settings.retention;
    if !is_oldest(session).await? {
        return Ok(0);
    }
    let mut deleted = 0;
    if let Some(time) = times.of_all() {
        deleted += prune(session, now.minus(time)).await?;
    }
    for (workflow, time) in times.shorter() {
        deleted += delete_listed(session, workflow, now, time).await?;
    }
    Ok(deleted)
}

/// Deletes all runs that ended before a time.
async fn prune(session: &Session, before: Timestamp) -> Result<u64, WorldError> {
    let (mut deleted, mut after) = (0, None);
    loop {
        let began = monotonic();
        let pruned = session.world.prune(before, after, BATCH_RUNS).await?;
        deleted += pruned.runs;
        after = pruned.next.filter(|run| created_at(*run) < before.plus(ID_CLOCK_SKEW));
        if after.is_none() {
            return Ok(deleted);
        }
        pause_after_batch(session, began).await;
    }
}

async fn pause_after_batch(session: &Session, began: Duration) {
    if !session.clock.is_virtual() {
        pause((monotonic() - began) * PAUSE_FACTOR).await;
    }
}

/// Deletes the runs of a workflow, or of all workflows, that ended longer than `time` ago and are not kept longer.
async fn delete_listed(
    session: &Session,
    workflow: Option<Arc<str>>,
    now: Timestamp,
    time: Duration,
) -> Result<u64, WorldError> {
    let times = &session.settings.retention;
    let mut query = RunQuery {
        workflow,
        ended_before: Some(now.minus(time)),
        queued_steps: QueuedSteps::Listed,
        built_in: BuiltInRuns::Listed,
        order: ListOrder::OldestFirst,
        limit: BATCH_RUNS,
        ..RunQuery::default()
    };
    let mut deleted = 0;
    loop {
        let began = monotonic();
        let Page { runs, next, .. } = session.world.runs(query.clone()).await?;
        for run in runs.iter().filter(|run| !run.marks.is_quarantined()) {
            let is_kept = times.of(&run.workflow).is_none_or(|kept| kept > time);
            if !is_kept && delete(session, run.id).await? {
                deleted += 1;
            }
        }
        query.after = next;
        if query.after.is_none() {
            return Ok(deleted);
        }
        pause_after_batch(session, began).await;
    }
}

/// Deletes a run. Returns false if it has been deleted meanwhile, or must not be deleted yet.
async fn delete(session: &Session, run: RunId) -> Result<bool, WorldError> {
    match session.world.delete(run).await {
        Err(WorldError::NotFound(_) | WorldError::Conflict(_)) => Ok(false),
        deleted => deleted.map(|()| true),
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
