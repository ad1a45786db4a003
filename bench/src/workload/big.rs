//! Large files, made quickly: the rows of two real runs are copied under other ids.
//!
//! The engine makes one run that has ended and one that sleeps. Their rows in `runs` and `turns` are then
//! copied by SQL, with other ids and times, and the maintained counts are raised, so that the file is what
//! the engine would have made of as many runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{RunId, Status, SystemClock, Timestamp};
use rusqlite::{Connection, params};

use super::counting::{add_one, count};
use super::sleeping::{Alarms, sleep, wake};
use crate::Result;
use crate::env::{Env, block_on, sqlite_url};
use crate::stopwatch::pause;

/// The time over which the starts of the runs are spread.
const AGE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Every so many runs have the same parent, and the same value of the tag.
pub(super) const FAMILY_EVERY: usize = 100;
pub(super) const TAG: (&str, &str) = ("shop", "7");

/// Runs that one transaction copies.
const COPIES_PER_COMMIT: usize = 50_000;

/// A file with so many runs; those that wait are the newest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Big {
    pub(super) finished: usize,
    pub(super) waiting: usize,
    /// When the first was started.
    first: Timestamp,
}

/// The file that was made, and the run that has children.
#[derive(Debug)]
pub(super) struct BigFile {
    pub(super) folder: PathBuf,
    pub(super) big: Big,
    pub(super) parent: RunId,
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

impl BigFile {
    /// Makes the file, in the folder of all rounds.
    pub(super) fn make(env: &Env, finished: usize, waiting: usize) -> Result<Self> {
        let folder = env.folder.join(format!("big-{finished}-{waiting}"));
        std::fs::create_dir_all(&folder)?;
        let first = Timestamp::from_micros(SystemClock.now().as_micros() - AGE.as_micros() as i64);
        let big = Big { finished, waiting, first };
        let (ended, asleep) = block_on(two_runs(&folder))?;
        let file = Connection::open(folder.join("bench.db"))?;
        file.pragma_update(None, "synchronous", "OFF")?;
        for from in (0..big.runs()).step_by(COPIES_PER_COMMIT) {
            let numbers = from..big.runs().min(from + COPIES_PER_COMMIT);
            copy(&file, &big, numbers, ended, asleep)?;
        }
        raise_counts(&file, &big)?;
        Ok(Self { folder, big, parent: ended })
    }
}

/// Lets the engine make a run that has ended and one that sleeps for a year.
async fn two_runs(folder: &Path) -> Result<(RunId, RunId)> {
    let world = outlast::open(&sqlite_url(folder)).await?;
    let worker = Worker::builder(world.clone())
        .state(Alarms::new(1))
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
    Ok((ended.id(), asleep.id()))
}

fn copy(
    file: &Connection,
    big: &Big,
    numbers: std::ops::Range<usize>,
    ended: RunId,
    asleep: RunId,
) -> Result<()> {
    let transaction = file.unchecked_transaction()?;
    {
        let mut run = transaction.prepare_cached(&copy_run(file)?)?;
        let mut turns = transaction.prepare_cached(
            "INSERT INTO turns (run, seq, id, at, build, events) \
             SELECT ?1, seq, id, ?2, build, events FROM turns WHERE run = ?3 ORDER BY seq",
        )?;
        let mut tag =
            transaction.prepare_cached("INSERT INTO tags (run, name, value) VALUES (?1, ?2, ?3)")?;
        for number in numbers {
            let (id, at) = (big.id(number).to_string(), big.at(number).as_micros());
            let of = if number < big.finished { ended } else { asleep }.to_string();
            let is_family = number.is_multiple_of(FAMILY_EVERY);
            run.execute(params![id, at, is_family.then(|| ended.to_string()), of])?;
            turns.execute(params![id, at, of])?;
            if is_family {
                tag.execute(params![id, TAG.0, TAG.1])?;
            }
        }
    }
    Ok(transaction.commit()?)
}

/// The statement that copies the row of a run, column by column.
fn copy_run(file: &Connection) -> Result<String> {
    let mut columns = file.prepare("SELECT name FROM pragma_table_info('runs') ORDER BY cid")?;
    let columns = columns.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let values = columns.iter().map(|column| match column.as_str() {
        "id" => "?1",
        "turn_at" | "created_at" | "updated_at" => "?2",
        "ended_at" => "iif(ended_at IS NULL, NULL, ?2)",
        "parent" | "root" => "?3",
        "parent_op" | "parent_awaits" => "iif(?3 IS NULL, NULL, 0)",
        other => other,
    });
    let values: Vec<&str> = values.collect();
    Ok(format!("INSERT INTO runs SELECT {} FROM runs WHERE id = ?4", values.join(", ")))
}

fn raise_counts(file: &Connection, big: &Big) -> Result<()> {
    for (status, runs) in [("completed", big.finished), ("waiting", big.waiting)] {
        file.execute("UPDATE counts SET n = n + ?2 WHERE status = ?1", params![status, runs as i64])?;
    }
    // The ids have exactly the time of the starts.
    file.execute("UPDATE skew SET lowest = min(lowest, 0), highest = max(highest, 0)", [])?;
    Ok(())
}
