//! Cuts of a recorded process: writes that were not synced are lost, kept or torn.

use std::sync::Arc;
use std::time::Duration;

use outlast::SystemClock;
use outlast::core::Clock;
use outlast::prelude::join_all;

use super::super::Result;
use super::super::load_client::LoadClient;
use super::super::transfer::{StepState, sleep, worker};
use super::super::workdir::{DATABASE, Workdir};
use super::disk::{DiskOp, PowerCut};
use super::inspect::inspect;
use super::{CONCURRENT, PowerCutOptions, PowerCutStatistics, recorder};

/// The number of recorded operations: enough for some checkpoints, one per thousand pages; more for more cuts.
const OPS: std::ops::Range<usize> = 4_000..16_000;
const OPS_PER_CUT: usize = 200;

/// The time limit.
const RECORDING_MAX: Duration = Duration::from_secs(60);

const TICK: Duration = Duration::from_millis(5);

/// When a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Durability {
    /// Always: the default of the world.
    Full,
    /// At checkpoints. The last commits may be lost, so the checks must fail: this tests the cuts themselves.
    Normal,
}

/// Records a process, cuts it at random times, and inspects the disk after each cut. Also returns the number of
/// operations.
pub(super) async fn run(origin: &Workdir, options: &PowerCutOptions) -> Result<(PowerCutStatistics, usize)> {
    let workdir = Workdir::new(&origin.folder().join("recorded"));
    std::fs::create_dir(workdir.folder())?;
    let ops = record(&workdir, options).await?;
    let mut chance = fastrand::Rng::with_seed(options.seed);
    let cuts: Vec<PowerCut> = (0..options.cuts).map(|_| PowerCut::random(&ops, &mut chance)).collect();
    let mut statistics = PowerCutStatistics::default();
    for cuts in cuts.chunks(CONCURRENT) {
        let inspections = cuts.iter().map(|cut| inspect_cut(&workdir, &ops, *cut, options.seed));
        for inspected in join_all(inspections).await {
            statistics = statistics.and(inspected?);
        }
        eprintln!("  cut {} of {}", statistics.cuts, options.cuts);
    }
    Ok((statistics, ops.len()))
}

async fn inspect_cut(
    workdir: &Workdir,
    ops: &[DiskOp],
    cut: PowerCut,
    seed: u64,
) -> Result<PowerCutStatistics> {
    let image = cut.image(ops);
    let name = format!("cut-{}-{:?}-{}", cut.after, cut.unsynced, cut.seed);
    let copy = Workdir::new(&workdir.folder().join(&name));
    image.restore(workdir.folder(), copy.folder())?;
    let inspected = inspect(&copy, seed).await;
    if inspected.is_err() {
        // Restore the original state, since a worker may have changed the copy.
        image.restore(workdir.folder(), &workdir.folder().join(format!("{name}-as-found")))?;
    } else {
        std::fs::remove_dir_all(copy.folder())?;
    }
    inspected.map_err(|error| format!("{cut:?} of {} operations: {error}", ops.len()).into())
}

/// Runs a worker and a client in this process until enough is recorded.
async fn record(workdir: &Workdir, options: &PowerCutOptions) -> Result<Vec<DiskOp>> {
    recorder::begin(DATABASE.iter().map(|name| workdir.folder().join(name)).collect())?;
    let log_callback = |name| -> Option<super::super::append_log::AppendCallback> {
        Some(Box::new(move |length| recorder::append(DiskOp::LogLength { name, length })))
    };
    let logs = Arc::new(workdir.open(log_callback)?);
    let sync = if options.sync == Durability::Full { "full" } else { "normal" };
    let world = outlast::open(&format!("{}?sync={sync}", workdir.url())).await?;
    let state = StepState { logs: logs.clone(), worker_number: 0 };
    let worker = worker(world.clone(), state, workdir.world().session()).start().await?;
    let mut load_client = LoadClient::new(world, logs, options.seed);
    let until = SystemClock.now().plus(RECORDING_MAX);
    let enough = OPS.end.min(OPS.start + OPS_PER_CUT * options.cuts as usize);
    while recorder::len() < enough {
        if SystemClock.now() > until {
            return Err(format!(
                "only {} operations were recorded within {RECORDING_MAX:?}",
                recorder::len()
            )
            .into());
        }
        load_client.tick().await?;
        sleep(TICK).await;
    }
    let ops = recorder::take();
    // The files stay: each cut restores the logs from them.
    worker.stop().await?;
    Ok(ops)
}
