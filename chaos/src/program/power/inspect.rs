//! Inspects a copy: everything acknowledged must be there, and all runs must be finished.

use std::sync::Arc;
use std::time::Duration;

use outlast::SystemClock;
use outlast::core::Clock;

use super::super::Result;
use super::super::audit::{self, WorkerLosses};
use super::super::load_client::LoadClient;
use super::super::snapshot::WorldSnapshot;
use super::super::transfer::{StepState, sleep, worker};
use super::super::workdir::Workdir;
use super::PowerCutStatistics;

/// The number of the worker that finishes the runs of a copy.
const FINISHING_WORKER: u32 = 1_000_000;

/// The time limit.
const PATIENCE: Duration = Duration::from_secs(120);

const TICK: Duration = Duration::from_millis(10);

/// Checks a copy, finishes all its runs, and checks it again.
pub(super) async fn inspect(workdir: &Workdir, seed: u64) -> Result<PowerCutStatistics> {
    let mut statistics = PowerCutStatistics { cuts: 1, ..PowerCutStatistics::default() };
    let checks = &mut statistics.checks;
    audit::check_database(workdir, checks).await?;
    let world = outlast::open(&workdir.url()).await?;
    let logs = Arc::new(workdir.open(|_| None)?);
    let mut load_client = LoadClient::new(world.clone(), logs.clone(), seed);
    let snapshot = WorldSnapshot::take(load_client.client(), checks).await?;
    snapshot.check_always(checks)?;
    audit::check_acknowledged(workdir, &snapshot, checks)?;
    let worker_losses = WorkerLosses::of(&workdir.process_events()?).and_all(&workdir.attempts()?);
    statistics.finished = snapshot.runs.values().filter(|run| !run.view.status.is_final()).count();

    let worker =
        worker(world, StepState { logs, worker_number: FINISHING_WORKER }, workdir.world().session())
            .start()
            .await?;
    let until = SystemClock.now().plus(PATIENCE);
    // The sessions of the copied workers also have to be taken over.
    while load_client.answer_runs().await? > 0 || load_client.client().workers().await?.len() > 1 {
        if SystemClock.now() > until {
            let open = load_client.open_runs().await?;
            return Err(format!("not finished within {PATIENCE:?}: {open:#?}").into());
        }
        sleep(TICK).await;
    }
    let sessions_lost = worker.metrics().sessions_lost;
    worker.stop().await?;
    // On a loaded machine, a short session can end while its worker waits for the disk.
    let worker_losses = worker_losses.and_lost_sessions(FINISHING_WORKER, sessions_lost);
    let audit =
        audit::check_end(workdir, load_client.client(), seed, &worker_losses, &mut statistics.checks).await?;
    statistics.runs = audit.runs;
    Ok(statistics)
}

impl PowerCutStatistics {
    /// The sums of both.
    pub(super) fn and(self, other: Self) -> Self {
        let mut checks = self.checks;
        checks.made += other.checks.made;
        Self {
            cuts: self.cuts + other.cuts,
            runs: self.runs + other.runs,
            finished: self.finished + other.finished,
            checks,
        }
    }
}
