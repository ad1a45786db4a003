//! The power cut: the possible states of the disk after a power failure, at random times under load.
//!
//! * [`frozen_copies`]: all worker processes are frozen at the same time, and the files are copied. This is the state
//!   of a disk that has written everything.
//! * [`recorded_cuts`], [`disk`], [`recorder`]: one process writes through a file layer that records every write and
//!   sync. A cut keeps everything that was synced, and of the rest, at random: nothing, all, some writes, or some
//!   sectors of some writes. `synchronous=FULL` has to survive that.
//!
//! In both cases the copy is opened. It must contain everything that was acknowledged before, and pass all checks, and
//! a worker must finish all its runs, with every effect once.

mod disk;
mod frozen_copies;
mod inspect;
mod recorded_cuts;
mod recorder;

use std::path::PathBuf;

use outlast::SystemClock;
use outlast::core::Clock;

use super::Result;
use super::report::{Checks, TempFolder, print_table, seconds};

pub(crate) use recorded_cuts::Durability;

/// Copies that are inspected concurrently: most of the time they wait for old sessions to expire.
const CONCURRENT: usize = 8;

/// The options of this task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PowerCutOptions {
    /// Cuts of each kind.
    pub(crate) cuts: u32,
    pub(crate) seed: u64,
    pub(crate) sync: Durability,
    pub(crate) folder: Option<PathBuf>,
}

/// The results of the cuts.
#[derive(Clone, Copy, Debug, Default)]
struct PowerCutStatistics {
    /// The number of cuts that passed all checks.
    cuts: u32,
    /// Runs in the copies, and those that were finished there.
    runs: usize,
    finished: usize,
    checks: Checks,
}

/// Simulates power cuts, checks the copies, and prints a table.
pub(crate) async fn run(options: &PowerCutOptions) -> Result<()> {
    let PowerCutOptions { cuts, seed, sync, folder } = options;
    eprintln!("{cuts} power cuts of each kind, seed {seed}");
    let began = SystemClock.now();
    let folder = TempFolder::new(folder.as_deref())?;
    let done = cut_both_ways(&folder, options).await;
    let sync = if *sync == Durability::Full { "" } else { " --sync normal" };
    let repeat = format!("cargo xtask chaos --power --cuts {cuts} --seed {seed}{sync}");
    let (frozen, recorded, writes) = folder.close(done, &repeat)?;
    let checks = frozen.checks.made + recorded.checks.made;
    let runs = |statistics: &PowerCutStatistics| {
        format!(
            "{} cuts, {} runs in the copies, {} finished there",
            statistics.cuts, statistics.runs, statistics.finished
        )
    };
    print_table(
        "power cut: nothing acknowledged was lost, and every copy was finished",
        &[
            ("all processes frozen", runs(&frozen)),
            ("unsynced writes lost", format!("{}; {writes} writes recorded", runs(&recorded))),
            ("checks", checks.to_string()),
            ("wall time", seconds(SystemClock.now().since(began))),
        ],
    );
    Ok(())
}

async fn cut_both_ways(
    folder: &TempFolder,
    options: &PowerCutOptions,
) -> Result<(PowerCutStatistics, PowerCutStatistics, usize)> {
    // Frozen processes lose nothing with any `synchronous`: there is nothing to test.
    let frozen = match options.sync {
        Durability::Full => frozen_copies::run(&folder.workdir(), options).await?,
        Durability::Normal => PowerCutStatistics::default(),
    };
    let (recorded, writes) = recorded_cuts::run(&folder.workdir(), options).await?;
    Ok((frozen, recorded, writes))
}
