//! The raw limits: the store on this disk, without the engine.

mod postgres;
mod sqlite;

use std::path::Path;

use self::postgres::RawTable;
use self::sqlite::RawFile;
use crate::Result;
use crate::server::Database;
use crate::stats::median;
use crate::stopwatch::Stopwatch;

/// One row.
static ROW: [u8; 300] = [b'x'; 300];

/// Commits of one row that are timed; the median counts.
const SINGLE_COMMITS: usize = 500;

/// Commits that are made before, so that the file and its log exist and statements are prepared.
const WARM_UP_COMMITS: usize = 50;

/// The rows of a large commit.
const ROWS_PER_COMMIT: usize = 100;

/// Large commits that are timed together: enough for one checkpoint of SQLite to fall among them.
const LARGE_COMMITS: usize = 500;

/// A store of rows. Each call is one commit, which is on the disk when the call returns.
trait Limit {
    fn one_row(&mut self) -> Result<()>;
    fn many_rows(&mut self) -> Result<()>;
    /// How many rows there are.
    fn rows(&mut self) -> Result<i64>;
}

/// The raw limits of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RawLimits {
    /// C1: the time of one commit of one row, in microseconds.
    pub(crate) c1_us: f64,
    /// R100: rows per second in commits of 100 rows.
    pub(crate) r100_rows_s: f64,
}

impl RawLimits {
    /// Measures in a table of its own in the database, or else in a file of its own in `folder`, and
    /// removes it.
    pub(crate) fn measure(folder: &Path, database: Option<&Database>) -> Result<Self> {
        match database {
            Some(database) => measure(&mut RawTable::make(database)?),
            None => measure(&mut RawFile::make(folder)?),
        }
    }

    /// The median of each limit.
    pub(crate) fn median(all: &[Self]) -> Self {
        let of = |pick: fn(&Self) -> f64| median(&all.iter().map(pick).collect::<Vec<_>>());
        Self { c1_us: of(|raw| raw.c1_us), r100_rows_s: of(|raw| raw.r100_rows_s) }
    }
}

fn measure(limit: &mut dyn Limit) -> Result<RawLimits> {
    let mut single = |count| -> Result<Vec<f64>> {
        (0..count)
            .map(|_| {
                let watch = Stopwatch::start();
                limit.one_row()?;
                Ok(watch.micros())
            })
            .collect()
    };
    single(WARM_UP_COMMITS)?;
    let c1_us = median(&single(SINGLE_COMMITS)?);
    let watch = Stopwatch::start();
    for _ in 0..LARGE_COMMITS {
        limit.many_rows()?;
    }
    let rows = LARGE_COMMITS * ROWS_PER_COMMIT;
    let r100_rows_s = rows as f64 / watch.seconds();
    let expected = (WARM_UP_COMMITS + SINGLE_COMMITS + rows) as i64;
    match limit.rows()? {
        found if found == expected => Ok(RawLimits { c1_us, r100_rows_s }),
        found => Err(format!("{expected} rows were committed, but {found} exist").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_own_median() {
        let all = [(1.0, 30.0), (2.0, 10.0), (9.0, 20.0)]
            .map(|(c1_us, r100_rows_s)| RawLimits { c1_us, r100_rows_s });
        assert_eq!(RawLimits::median(&all), RawLimits { c1_us: 2.0, r100_rows_s: 20.0 });
    }

    fn check_a_large_commit(limit: &mut dyn Limit) {
        limit.many_rows().unwrap();
        limit.one_row().unwrap();
        assert_eq!(limit.rows().unwrap(), 101);
    }

    #[test]
    fn a_large_commit_writes_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        check_a_large_commit(&mut RawFile::make(folder.path()).unwrap());
    }

    #[test]
    fn a_large_commit_on_a_server_writes_its_rows() {
        let database = crate::server::Server::start(&std::env::temp_dir()).unwrap().database().unwrap();
        check_a_large_commit(&mut RawTable::make(&database).unwrap());
    }
}
