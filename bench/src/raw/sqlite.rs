//! The raw limits of SQLite. The connection is configured as `SqliteWorld` configures its own.

use std::path::Path;

use rusqlite::{Connection, params};

use super::{Limit, ROW, ROWS_PER_COMMIT};
use crate::Result;

const INSERT: &str = "INSERT INTO rows (body) VALUES (?1)";

/// A file of its own in a folder, removed afterwards.
#[derive(Debug)]
pub(super) struct RawFile {
    connection: Connection,
    /// Removed last.
    _place: tempfile::TempDir,
}

impl RawFile {
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let place = tempfile::Builder::new().prefix("raw-").tempdir_in(folder)?;
        let connection = Connection::open(place.path().join("raw.db"))?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "cache_size", -32_768)?;
        connection.pragma_update_and_check(None, "wal_autocheckpoint", 1_000, |_| Ok(()))?;
        connection.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")?;
        Ok(Self { connection, _place: place })
    }
}

impl Limit for RawFile {
    fn one_row(&mut self) -> Result<()> {
        self.connection.prepare_cached(INSERT)?.execute(params![ROW])?;
        Ok(())
    }

    fn many_rows(&mut self) -> Result<()> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut insert = self.connection.prepare_cached(INSERT)?;
        for _ in 0..ROWS_PER_COMMIT {
            insert.execute(params![ROW])?;
        }
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    fn rows(&mut self) -> Result<i64> {
        Ok(self.connection.query_row("SELECT count(*) FROM rows", [], |row| row.get(0))?)
    }
}
