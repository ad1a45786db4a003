//! Cuts of processes that are frozen at the same time.

use std::sync::Arc;
use std::time::Duration;

use outlast::prelude::join_all;

use super::super::Result;
use super::super::load_client::LoadClient;
use super::super::transfer::sleep;
use super::super::workdir::{DATABASE, LOG_FILES, Workdir};
use super::super::worker_pool::WorkerPool;
use super::inspect::inspect;
use super::{CONCURRENT, PowerCutOptions, PowerCutStatistics};

/// The number of ticks between two cuts.
const TICKS: std::ops::Range<u32> = 4..40;
const TICK: Duration = Duration::from_millis(5);

/// The shared memory of the database: it may exist after a cut, and must be ignored.
const SHARED_MEMORY: &str = "runs.db-shm";

/// Freezes workers under load, copies the files, and inspects each copy.
pub(super) async fn run(origin: &Workdir, options: &PowerCutOptions) -> Result<PowerCutStatistics> {
    let mut statistics = PowerCutStatistics::default();
    let mut chance = fastrand::Rng::with_seed(options.seed);
    while statistics.cuts < options.cuts {
        // A new database for each group of copies, since the database and its copies grow under load.
        let workdir = Workdir::new(&origin.folder().join(format!("frozen-{}", statistics.cuts)));
        std::fs::create_dir(workdir.folder())?;
        let count = CONCURRENT.min((options.cuts - statistics.cuts) as usize);
        let copies = copy(&workdir, options.seed, count, &mut chance).await?;
        for inspected in join_all(copies.iter().map(|copy| inspect_copy(copy, options.seed))).await {
            statistics = statistics.and(inspected?);
        }
        std::fs::remove_dir_all(workdir.folder())?;
        eprintln!("  frozen copy {} of {}", statistics.cuts, options.cuts);
    }
    Ok(statistics)
}

async fn inspect_copy(copy: &Workdir, seed: u64) -> Result<PowerCutStatistics> {
    let inspected = inspect(copy, seed).await;
    if inspected.is_ok() {
        std::fs::remove_dir_all(copy.folder())?;
    }
    inspected.map_err(|error| format!("{}: {error}", copy.folder().display()).into())
}

async fn copy(
    workdir: &Workdir,
    seed: u64,
    count: usize,
    chance: &mut fastrand::Rng,
) -> Result<Vec<Workdir>> {
    let logs = Arc::new(workdir.open(|_| None)?);
    let mut load_client = LoadClient::new(outlast::open(&workdir.url()).await?, logs.clone(), seed);
    let mut worker_pool = WorkerPool::start(workdir, logs, seed, 0, None)?;
    let mut copies = Vec::new();
    for number in 0..count {
        for _ in 0..chance.u32(TICKS) {
            worker_pool.kill_counts()?;
            load_client.tick().await?;
            sleep(TICK).await;
        }
        let (from, to) = (workdir.clone(), Workdir::new(&workdir.folder().join(format!("copy-{number}"))));
        let extra = chance.bool().then_some(SHARED_MEMORY);
        copies.push(to.clone());
        // The client is in this process, and waits here, so it writes nothing meanwhile.
        worker_pool.while_frozen(move || {
            std::fs::create_dir(to.folder())?;
            for name in DATABASE.into_iter().chain(LOG_FILES).chain(extra) {
                std::fs::copy(from.folder().join(name), to.folder().join(name))?;
            }
            Ok(())
        })?;
    }
    worker_pool.stop()?;
    Ok(copies)
}
