//! The power cut: what the disk may hold afterwards, at any instant of a life under load.
//!
//! * [`freeze`]: workers in processes of their own are frozen, all at the same instant, and the files are
//!   copied. That is what a disk holds that had written all it was given.
//! * [`disk`], [`recorder`]: one process writes through a file layer that records every write and every
//!   sync. A cut then keeps what was synced, and of the rest whatever chance says: nothing, all, some
//!   writes, some sectors of some writes. That is what `synchronous=FULL` has to survive.
//!
//! Either way the copy is opened, what was acknowledged before the instant must be in it and nothing else
//! may be odd, and a worker on it must finish everything, with every effect once.

mod disk;
mod freeze;
mod inspect;
mod recorder;
mod storm;

use std::path::PathBuf;

use outlast::SystemClock;
use outlast::core::Clock;

use super::Result;
use super::report::{Checks, Folder, print_table, seconds};

pub(crate) use storm::Durability;

/// Copies that are looked at together: most of the time they wait for old sessions to expire.
const TOGETHER: usize = 8;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Cuts of each kind.
    pub(crate) cuts: u32,
    pub(crate) seed: u64,
    pub(crate) sync: Durability,
    pub(crate) folder: Option<PathBuf>,
}

/// What the cuts came to.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Cuts after which all was as it should be.
    cuts: u32,
    /// Runs that were in the copies, and those that were finished there.
    runs: usize,
    finished: usize,
    checks: Checks,
}

/// Cuts the power, checks what is left, and prints a table.
pub(crate) async fn run(plan: &Plan) -> Result<()> {
    let Plan { cuts, seed, sync, folder } = plan;
    eprintln!("{cuts} power cuts of each kind, seed {seed}");
    let began = SystemClock.now();
    let folder = Folder::new(folder.as_deref())?;
    let done = both(&folder, plan).await;
    let sync = if *sync == Durability::Full { "" } else { " --sync normal" };
    let repeat = format!("cargo xtask chaos --power --cuts {cuts} --seed {seed}{sync}");
    let (frozen, recorded, writes) = folder.close(done, &repeat)?;
    let checks = frozen.checks.made + recorded.checks.made;
    let runs = |tally: &Tally| {
        format!("{} cuts, {} runs in the copies, {} finished there", tally.cuts, tally.runs, tally.finished)
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

async fn both(folder: &Folder, plan: &Plan) -> Result<(Tally, Tally, usize)> {
    // Frozen processes lose nothing, whatever commits wait for: there is nothing to show.
    let frozen = match plan.sync {
        Durability::Full => freeze::run(&folder.place(), plan).await?,
        Durability::Normal => Tally::default(),
    };
    let (recorded, writes) = storm::run(&folder.place(), plan).await?;
    Ok((frozen, recorded, writes))
}
