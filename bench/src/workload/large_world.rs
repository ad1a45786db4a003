//! Large worlds, created quickly: the rows of two real runs are copied with other ids.
//!
//! The engine executes one run to its end, and one until it sleeps. Their rows in `runs` and `turns` are then copied by SQL
//! with other ids and times, and the stored counts are increased, so that the world is the same as after that many runs.

mod postgres;
mod sqlite;

use std::ops::Range;
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{RunId, Status, SystemClock, Timestamp};

use super::count_workflow::{add_one, count};
use super::sleep_workflow::{WakeDelays, sleep, wake};
use crate::Result;
use crate::environment::{Environment, block_on};
use crate::stopwatch::pause;

/// The time over which the starts of the runs are spread.
const AGE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The number of runs with the same parent and the same tag value.
pub(super) const CHILDREN_PER_PARENT: usize = 100;
pub(super) const TAG: (&str, &str) = ("shop", "7");

/// Runs that one transaction copies.
const COPIES_PER_COMMIT: usize = 50_000;

/// What the world beside the round's own is called.
const NAME: &str = "big";

/// A world with so many runs; those that wait are the newest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Big {
    pub(super) finished: usize,
    pub(super) waiting: usize,
    /// When the first was started.
    first: Timestamp,
}

/// The world that was made, and the run that has children.
#[derive(Debug)]
pub(super) struct LargeWorld {
    pub(super) url: String,
    pub(super) large_world: Big,
    pub(super) parent: RunId,
}

/// The runs whose rows are copied.
#[derive(Clone, Copy, Debug)]
struct Models {
    ended: RunId,
    asleep: RunId,
}

/// A store whose rows can be copied.
trait Copies {
    /// Makes the runs of these numbers, in one commit.
    fn copy(&mut self, large_world: &Big, numbers: Range<usize>, models: Models) -> Result<()>;
    /// Raises the counts by what was copied, and leaves the store as time would leave it.
    fn finish(&mut self, large_world: &Big) -> Result<()>;
}

impl Big {
    fn runs(&self) -> usize {
        self.finished + self.waiting
    }

    /// When the run of this number was started.
    pub(super) fn at(&self, number: usize) -> Timestamp {
        self.first.plus(AGE.mul_f64(number as f64 / self.runs() as f64))
    }

    /// The id of the run of this number.
    pub(super) fn id(&self, number: usize) -> RunId {
        let millis = (self.at(number).as_micros() / 1_000) as u128;
        RunId::from_bits((millis << 80) | (number as u128 + 1))
    }
}

impl LargeWorld {
    /// Makes the world, beside this round's own.
    pub(super) fn make(env: &Environment, finished: usize, waiting: usize) -> Result<Self> {
        let url = env.url_of(NAME);
        let first = Timestamp::from_micros(SystemClock.now().as_micros() - AGE.as_micros() as i64);
        let large_world = Big { finished, waiting, first };
        let models = block_on(two_runs(&url))?;
        let mut copies: Box<dyn Copies> = match &env.database {
            Some(database) => Box::new(postgres::Tables::of(database, NAME)?),
            None => Box::new(sqlite::File::open(&env.folder.join(format!("{NAME}.db")))?),
        };
        for from in (0..large_world.runs()).step_by(COPIES_PER_COMMIT) {
            copies.copy(&large_world, from..large_world.runs().min(from + COPIES_PER_COMMIT), models)?;
        }
        copies.finish(&large_world)?;
        Ok(Self { url, large_world, parent: models.ended })
    }
}

/// Lets the engine make a run that has ended and one that sleeps for a year.
async fn two_runs(url: &str) -> Result<Models> {
    let world = outlast::open(url).await?;
    let worker = Worker::builder(world.clone())
        .state(WakeDelays::new(1))
        .register((count, add_one, sleep, wake))
        .start()
        .await?;
    let client = Client::new(world);
    let ended = client.start(count, 1).await?;
    ended.output().await?;
    let year = SystemClock.now().plus(AGE * 12);
    let asleep = client.start(sleep, (0, year.as_micros())).await?;
    while asleep.view().await?.status != Status::Waiting {
        pause(Duration::from_millis(1));
    }
    worker.stop().await?;
    Ok(Models { ended: ended.id(), asleep: asleep.id() })
}

/// What stands in a column of a copied run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Its own id.
    Id,
    /// When it was started.
    At,
    /// When it was started, if the model has ended.
    AtIfEnded,
    /// The parent of the family, if it is one of them.
    Parent,
    /// The first operation of the parent, if it is one of the family.
    ParentOp,
    /// Whether the parent waits for it: no, if it is one of the family.
    ParentAwaits,
    /// The same as in the model.
    Same,
}

impl Content {
    /// What stands in the column of this name in the table `runs`.
    fn of(column: &str) -> Self {
        match column {
            "id" => Self::Id,
            "turn_at" | "created_at" | "updated_at" => Self::At,
            "ended_at" => Self::AtIfEnded,
            "parent" | "root" => Self::Parent,
            "parent_op" => Self::ParentOp,
            "parent_awaits" => Self::ParentAwaits,
            _ => Self::Same,
        }
    }
}
