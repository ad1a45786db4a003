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
    let place = Place::new(&origin.folder().join("frozen"));
    std::fs::create_dir(place.folder())?;
    let copies = copy(&place, plan).await?;
    let mut tally = Tally::default();
    for together in copies.chunks(TOGETHER) {
        for seen in join_all(together.iter().map(|copy| look(copy, plan.seed))).await {
            tally = tally.and(seen?);
        }
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

async fn copy(place: &Place, plan: &Plan) -> Result<Vec<Place>> {
    let mut chance = fastrand::Rng::with_seed(plan.seed);
    let books = Arc::new(place.open(|_| None)?);
    let mut teller = Teller::new(outlast::open(&place.url()).await?, books.clone(), plan.seed);
    let mut fleet = Fleet::start(place, books, plan.seed, 0)?;
    let mut copies = Vec::new();
    for number in 0..plan.cuts {
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
