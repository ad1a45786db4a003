//! Cuts of processes that are frozen at the same instant.

use std::sync::Arc;
use std::time::Duration;

use outlast::prelude::join_all;

use super::super::Result;
use super::super::fleet::Fleet;
use super::super::place::{DATABASE, NOTEBOOKS, Place};
use super::super::teller::Teller;
use super::super::transfer::pass;
use super::inspect::inspect;
use super::{Plan, TOGETHER, Tally};

/// Work between two cuts, in ticks.
const TICKS: std::ops::Range<u32> = 4..40;
const TICK: Duration = Duration::from_millis(5);

/// The shared memory of the database: after a cut it may be there, and means nothing.
const SHARED_MEMORY: &str = "runs.db-shm";

/// Freezes workers under load, copies the files, and looks at each copy.
pub(super) async fn run(origin: &Place, plan: &Plan) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut chance = fastrand::Rng::with_seed(plan.seed);
    while tally.cuts < plan.cuts {
        // A new database for every few, since one under load grows, and each copy with it.
        let place = Place::new(&origin.folder().join(format!("frozen-{}", tally.cuts)));
        std::fs::create_dir(place.folder())?;
        let count = TOGETHER.min((plan.cuts - tally.cuts) as usize);
        let copies = copy(&place, plan.seed, count, &mut chance).await?;
        for seen in join_all(copies.iter().map(|copy| look(copy, plan.seed))).await {
            tally = tally.and(seen?);
        }
        std::fs::remove_dir_all(place.folder())?;
        eprintln!("  frozen copy {} of {}", tally.cuts, plan.cuts);
    }
    Ok(tally)
}

async fn look(copy: &Place, seed: u64) -> Result<Tally> {
    let seen = inspect(copy, seed).await;
    if seen.is_ok() {
        std::fs::remove_dir_all(copy.folder())?;
    }
    seen.map_err(|error| format!("{}: {error}", copy.folder().display()).into())
}

async fn copy(place: &Place, seed: u64, count: usize, chance: &mut fastrand::Rng) -> Result<Vec<Place>> {
    let books = Arc::new(place.open(|_| None)?);
    let mut teller = Teller::new(outlast::open(&place.url()).await?, books.clone(), seed);
    let mut fleet = Fleet::start(place, books, seed, 0, None)?;
    let mut copies = Vec::new();
    for number in 0..count {
        for _ in 0..chance.u32(TICKS) {
            fleet.losses()?;
            teller.work().await?;
            pass(TICK).await;
        }
        let (from, to) = (place.clone(), Place::new(&place.folder().join(format!("copy-{number}"))));
        let extra = chance.bool().then_some(SHARED_MEMORY);
        copies.push(to.clone());
        // This process writes nothing meanwhile: it is the teller's, which waits here.
        fleet.frozen(move || {
            std::fs::create_dir(to.folder())?;
            for name in DATABASE.into_iter().chain(NOTEBOOKS).chain(extra) {
                std::fs::copy(from.folder().join(name), to.folder().join(name))?;
            }
            Ok(())
        })?;
    }
    fleet.stop()?;
    Ok(copies)
}
