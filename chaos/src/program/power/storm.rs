//! Cuts of a recorded life: what was not synced is lost, kept or torn.

use std::sync::Arc;
use std::time::Duration;

use outlast::SystemClock;
use outlast::core::Clock;
use outlast::prelude::join_all;

use super::super::Result;
use super::super::place::{DATABASE, Place};
use super::super::teller::Teller;
use super::super::transfer::{Branch, pass, worker};
use super::disk::{Cut, Deed};
use super::inspect::inspect;
use super::{Plan, TOGETHER, Tally, recorder};

/// How much is recorded: enough for some checkpoints, which come every thousand pages; more for more cuts.
const DEEDS: std::ops::Range<usize> = 4_000..16_000;
const DEEDS_PER_CUT: usize = 200;

/// How long that may take.
const RECORDING_MAX: Duration = Duration::from_secs(60);

const TICK: Duration = Duration::from_millis(5);

/// When a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Durability {
    /// Always: the default of the world.
    Full,
    /// At checkpoints. The last commits may be lost, so this fails; it shows that the cuts can tell.
    Normal,
}

/// Records a life, cuts it at random instants, and looks at what each cut leaves. Tells the deeds too.
pub(super) async fn run(origin: &Place, plan: &Plan) -> Result<(Tally, usize)> {
    let place = Place::new(&origin.folder().join("recorded"));
    std::fs::create_dir(place.folder())?;
    let deeds = record(&place, plan).await?;
    let mut chance = fastrand::Rng::with_seed(plan.seed);
    let cuts: Vec<Cut> = (0..plan.cuts).map(|_| Cut::random(&deeds, &mut chance)).collect();
    let mut tally = Tally::default();
    for cuts in cuts.chunks(TOGETHER) {
        let looks = cuts.iter().map(|cut| look(&place, &deeds, *cut, plan.seed));
        for seen in join_all(looks).await {
            tally = tally.and(seen?);
        }
        eprintln!("  cut {} of {}", tally.cuts, plan.cuts);
    }
    Ok((tally, deeds.len()))
}

async fn look(place: &Place, deeds: &[Deed], cut: Cut, seed: u64) -> Result<Tally> {
    let image = cut.image(deeds);
    let name = format!("cut-{}-{:?}-{}", cut.after, cut.unsynced, cut.seed);
    let copy = Place::new(&place.folder().join(&name));
    image.restore(place.folder(), copy.folder())?;
    let seen = inspect(&copy, seed).await;
    if seen.is_err() {
        // As it was found, since a worker may have changed the copy.
        image.restore(place.folder(), &place.folder().join(format!("{name}-as-found")))?;
    } else {
        std::fs::remove_dir_all(copy.folder())?;
    }
    seen.map_err(|error| format!("{cut:?} of {} deeds: {error}", deeds.len()).into())
}

/// Lets a worker and a client of this process work until enough is recorded.
async fn record(place: &Place, plan: &Plan) -> Result<Vec<Deed>> {
    recorder::begin(DATABASE.iter().map(|name| place.folder().join(name)).collect())?;
    let told = |name| -> Option<super::super::notebook::Mark> {
        Some(Box::new(move |length| recorder::note(Deed::Told { name, length })))
    };
    let books = Arc::new(place.open(told)?);
    let sync = if plan.sync == Durability::Full { "full" } else { "normal" };
    let world = outlast::open(&format!("{}?sync={sync}", place.url())).await?;
    let branch = Branch { books: books.clone(), life: 0 };
    let worker = worker(world.clone(), branch, place.world().session()).start().await?;
    let mut teller = Teller::new(world, books, plan.seed);
    let until = SystemClock.now().plus(RECORDING_MAX);
    let enough = DEEDS.end.min(DEEDS.start + DEEDS_PER_CUT * plan.cuts as usize);
    while recorder::len() < enough {
        if SystemClock.now() > until {
            return Err(
                format!("only {} deeds were recorded within {RECORDING_MAX:?}", recorder::len()).into()
            );
        }
        teller.work().await?;
        pass(TICK).await;
    }
    let deeds = recorder::take();
    // The files stay where they are: what the outside knew is taken from them, cut by cut.
    worker.stop().await?;
    Ok(deeds)
}
