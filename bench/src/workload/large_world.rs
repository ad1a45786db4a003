//! Large worlds, created quickly: the rows of two real runs are copied with other ids.
//!
//! The engine executes one run to its end, and one until it sleeps. Their rows in `runs` and `turns` are then copied
//! by SQL with other ids and times, and the stored counts are increased, so that the world is the same as after that
//! many runs.

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

/// Every `CHILD_EVERY`-th run has the same parent, and the same tag.
pub(super) const CHILD_EVERY: usize = 100;
pub(super) const TAG: (&str, &str) = ("shop", "7");

/// Runs that one transaction copies.
const COPIES_PER_COMMIT: usize = 50_000;

/// The name of the large world.
const NAME: &str = "big";

/// The number of runs, and their times; those that wait are the newest.
#[derive(Clone, Copy, Debug)]
pub(super) struct LargeWorldShape {
    pub(super) finished: usize,
    pub(super) waiting: usize,
    /// When the first was started.
    first: Timestamp,
}

/// A large world, and its run with children.
#[derive(Debug)]
pub(super) struct LargeWorld {
    pub(super) url: String,
    pub(super) shape: LargeWorldShape,
    pub(super) parent: RunId,
}

/// The runs whose rows are copied.
#[derive(Clone, Copy, Debug)]
struct ModelRuns {
    ended: RunId,
    asleep: RunId,
}

/// A store whose rows can be copied.
trait RowCopier {
    /// Creates the runs with these numbers, in one commit.
    fn copy(&mut self, shape: &LargeWorldShape, numbers: Range<usize>, models: ModelRuns) -> Result<()>;
    /// Increases the counts by the copies, and runs the maintenance that would have run over time.
    fn finish(&mut self, shape: &LargeWorldShape) -> Result<()>;
}

impl LargeWorldShape {
    /// All runs.
    pub(super) fn runs(&self) -> usize {
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
    /// Creates the world, beside the round's own.
    pub(super) fn make(env: &Environment, finished: usize, waiting: usize) -> Result<Self> {
        let url = env.url_of(NAME);
        let first = Timestamp::from_micros(SystemClock.now().as_micros() - AGE.as_micros() as i64);
        let shape = LargeWorldShape { finished, waiting, first };
        let models = block_on(two_runs(&url))?;
        let mut copies: Box<dyn RowCopier> = match &env.database {
            Some(database) => Box::new(postgres::PostgresTables::of(database, NAME)?),
            None => Box::new(sqlite::SqliteFile::open(&env.folder.join(format!("{NAME}.db")))?),
        };
        for from in (0..shape.runs()).step_by(COPIES_PER_COMMIT) {
            copies.copy(&shape, from..shape.runs().min(from + COPIES_PER_COMMIT), models)?;
        }
        copies.finish(&shape)?;
        Ok(Self { url, shape, parent: models.ended })
    }
}

/// Runs the engine until there is a run that has ended and one that sleeps for a year.
async fn two_runs(url: &str) -> Result<ModelRuns> {
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
    Ok(ModelRuns { ended: ended.id(), asleep: asleep.id() })
}

/// The content of a column of a copied run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnContent {
    /// Its own id.
    Id,
    /// When it was started.
    At,
    /// When it was started, if the model has ended.
    AtIfEnded,
    /// The parent, if it is a child.
    Parent,
    /// The first operation of the parent, if it is a child.
    ParentOp,
    /// Whether the parent waits for it: no, if it is a child.
    ParentAwaits,
    /// The same as in the model.
    Same,
}

impl ColumnContent {
    /// The content of the column of this name in the table `runs`.
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
