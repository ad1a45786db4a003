//! A look at a copy: is all there that was acknowledged, and can everything be finished?

use std::sync::Arc;
use std::time::Duration;

use outlast::SystemClock;
use outlast::core::Clock;

use super::super::Result;
use super::super::audit::{self, Gone};
use super::super::picture::Picture;
use super::super::place::Place;
use super::super::teller::Teller;
use super::super::transfer::{Branch, pass, worker};
use super::Tally;

/// The life of the worker that finishes what is left in a copy.
const FINISHER: u32 = 1_000_000;

/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(120);

const TICK: Duration = Duration::from_millis(10);

/// Checks a copy, finishes everything in it, and checks it again.
pub(super) async fn inspect(place: &Place, seed: u64) -> Result<Tally> {
    let mut tally = Tally { cuts: 1, ..Tally::default() };
    let checks = &mut tally.checks;
    audit::check_database(place, checks).await?;
    let world = outlast::open(&place.url()).await?;
    let books = Arc::new(place.open(|_| None)?);
    let mut teller = Teller::new(world.clone(), books.clone(), seed);
    let picture = Picture::take(teller.client(), checks).await?;
    picture.check_always(checks)?;
    audit::check_told(place, &picture, checks)?;
    let gone = Gone::of(&place.diary()?).and_all(&place.attempts()?);
    tally.finished = picture.runs.values().filter(|run| !run.view.status.is_final()).count();

    let worker = worker(world, Branch { books, life: FINISHER }, place.world().session()).start().await?;
    let until = SystemClock.now().plus(PATIENCE);
    // Also the sessions of those who were cut off have to be taken over.
    while teller.serve().await? > 0 || teller.client().workers().await?.len() > 1 {
        if SystemClock.now() > until {
            let open = teller.open_runs().await?;
            return Err(format!("not finished within {PATIENCE:?}: {open:#?}").into());
        }
        pass(TICK).await;
    }
    worker.stop().await?;
    let audit = audit::check_end(place, teller.client(), seed, &gone, &mut tally.checks).await?;
    tally.runs = audit.runs;
    Ok(tally)
}

impl Tally {
    /// Both together.
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
