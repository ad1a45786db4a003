//! The raw limits: what SQLite does on this disk with no engine in between.
//!
//! The connection is configured as `SqliteWorld` configures its own, so that the difference is the engine.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::Result;
use crate::stats::median;
use crate::stopwatch::Stopwatch;

/// The bytes of one row.
const ROW_BYTES: usize = 300;

/// Commits of one row that are timed; the median counts.
const SINGLE_COMMITS: usize = 500;

/// Commits that are made before, so that the file and its log exist and statements are prepared.
const WARM_UP_COMMITS: usize = 50;

/// The rows of a large commit.
const ROWS_PER_COMMIT: usize = 100;

/// Large commits that are timed together: enough for one checkpoint to fall among them.
const LARGE_COMMITS: usize = 500;

const INSERT: &str = "INSERT INTO rows (body) VALUES (?1)";

/// The raw limits, as measured once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Raw {
    /// C1: the time of one commit of one row, in microseconds.
    pub(crate) c1_us: f64,
    /// R100: rows per second in commits of 100 rows.
    pub(crate) r100_rows_s: f64,
}

impl Raw {
    /// Measures in a file of its own in `folder`, and removes it.
    pub(crate) fn measure(folder: &Path) -> Result<Self> {
        let place = tempfile::Builder::new().prefix("raw-").tempdir_in(folder)?;
        let connection = open(&place.path().join("raw.db"))?;
        let body = [b'x'; ROW_BYTES];
        let single =
            |count| -> Result<Vec<f64>> { (0..count).map(|_| one_row(&connection, &body)).collect() };
        single(WARM_UP_COMMITS)?;
        let c1_us = median(&single(SINGLE_COMMITS)?);
        let watch = Stopwatch::start();
        for _ in 0..LARGE_COMMITS {
            many_rows(&connection, &body)?;
        }
        let rows = (LARGE_COMMITS * ROWS_PER_COMMIT) as f64;
        Ok(Self { c1_us, r100_rows_s: rows / watch.seconds() })
    }

    /// The median of each limit.
    pub(crate) fn median(all: &[Self]) -> Self {
        let of = |pick: fn(&Self) -> f64| median(&all.iter().map(pick).collect::<Vec<_>>());
        Self { c1_us: of(|raw| raw.c1_us), r100_rows_s: of(|raw| raw.r100_rows_s) }
    }
}

fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 1_000, |_| Ok(()))?;
    connection.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")?;
    Ok(connection)
}

/// The time of one commit of one row, in microseconds.
fn one_row(connection: &Connection, body: &[u8]) -> Result<f64> {
    let mut insert = connection.prepare_cached(INSERT)?;
    let watch = Stopwatch::start();
    insert.execute(params![body])?;
    Ok(watch.micros())
}

fn many_rows(connection: &Connection, body: &[u8]) -> Result<()> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let mut insert = connection.prepare_cached(INSERT)?;
    for _ in 0..ROWS_PER_COMMIT {
        insert.execute(params![body])?;
    }
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_own_median() {
        let all =
            [(1.0, 30.0), (2.0, 10.0), (9.0, 20.0)].map(|(c1_us, r100_rows_s)| Raw { c1_us, r100_rows_s });
        assert_eq!(Raw::median(&all), Raw { c1_us: 2.0, r100_rows_s: 20.0 });
    }

    #[test]
    fn a_large_commit_writes_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        let connection = open(&folder.path().join("raw.db")).unwrap();
        many_rows(&connection, &[0; ROW_BYTES]).unwrap();
        one_row(&connection, &[0; ROW_BYTES]).unwrap();
        let rows: i64 = connection.query_row("SELECT count(*) FROM rows", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 101);
    }
}
