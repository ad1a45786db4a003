//! The file: opening it, and what belongs to every connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outlast_core::WorldError;
use rusqlite::config::DbConfig;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, OpenFlags};

use crate::connection::error::{is_busy, of_sqlite};
use crate::options::Durability;
use crate::schema::migrate::{MIGRATIONS, Others, bring_up, check_ours};

/// Earlier versions can corrupt a file when a WAL is reset while another process checkpoints.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// How long another process may write before we give up, in tries of [`BUSY_PAUSE`].
pub(crate) const BUSY_TRIES_MAX: u32 = 5_000;

/// SQLite's own busy handler waits longer and longer, so that late comers starve.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Statements that stay prepared; more than there are in `sql/`.
const STATEMENTS_MAX: usize = 128;

/// What is opened, and how: the same for all connections of a world.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) path: PathBuf,
    pub(crate) sync: Durability,
    /// Counts every statement but those that only begin and end transactions, if someone wants to know.
    pub(crate) statements: Option<Arc<AtomicU64>>,
}

impl Opening {
    /// One connection to a file, which waits for the disk.
    pub(crate) fn of(path: &Path) -> Self {
        Self { path: path.into(), sync: Durability::Full, statements: None }
    }
}

/// Opens the file, makes it if it is not there, and brings its schema up to date. `others` are the workers that may be
/// joined.
pub(crate) fn open(opening: &Opening, others: Option<Others<'_>>) -> Result<Connection, WorldError> {
    let path = &*opening.path;
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(WorldError::Invalid(format!(
            "SQLite {} can damage files; build with version 3.51.3 or later (the bundled one is)",
            rusqlite::version()
        )));
    }
    check_place(path)?;
    let connection = connect(opening)?;
    check_ours(&connection, path)?;
    set_wal(&connection, path)?;
    bring_up(&connection, path, others, MIGRATIONS)?;
    Ok(connection)
}

/// One more connection that reads a file which [`open`] has opened.
pub(crate) fn open_reader(opening: &Opening) -> Result<Connection, WorldError> {
    let connection = connect(opening)?;
    connection.pragma_update(None, "query_only", true).map_err(|error| of_sqlite(&error, &opening.path))?;
    Ok(connection)
}

/// One more connection to a world's file, which must be there.
pub(crate) fn open_existing(path: &Path) -> Result<Connection, WorldError> {
    if !path.is_file() {
        return Err(WorldError::Unavailable(format!("`{}` is not there any more", path.display())));
    }
    connect(&Opening::of(path))
}

/// Tries again, for a while, as long as another process is in the way.
pub(crate) fn retry_busy<T>(
    mut attempt: impl FnMut() -> Result<T, rusqlite::Error>,
) -> Result<T, rusqlite::Error> {
    for _ in 1..BUSY_TRIES_MAX {
        match attempt() {
            Err(error) if is_busy(&error) => std::thread::park_timeout(BUSY_PAUSE),
            other => return other,
        }
    }
    attempt()
}

fn check_place(path: &Path) -> Result<(), WorldError> {
    check_folder(path)?;
    let file = path.display();
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    if metadata.is_dir() {
        return Err(WorldError::Invalid(format!("`{file}` is a folder; give the path of a file in it")));
    }
    if metadata.permissions().readonly() {
        return Err(WorldError::Invalid(format!("`{file}` is read-only; make it writable for this user")));
    }
    Ok(())
}

/// The folder for a file must be there.
pub(crate) fn check_folder(path: &Path) -> Result<(), WorldError> {
    let file = path.display();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(WorldError::Invalid(format!(
            "the folder `{}` for `{file}` does not exist; create it first",
            folder.display()
        )));
    }
    Ok(())
}

fn connect(opening: &Opening) -> Result<Connection, WorldError> {
    let path = &*opening.path;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let refused = |error: rusqlite::Error| of_sqlite(&error, path);
    let mut connection = Connection::open_with_flags(path, flags).map_err(refused)?;
    // Another process may be making or recovering the file at this moment.
    retry_busy(|| configure(&connection, opening.sync)).map_err(refused)?;
    if let Some(statements) = opening.statements.clone() {
        let count = move |event: TraceEvent<'_>| {
            if let TraceEvent::Stmt(_, sql) = event
                && !matches!(sql, "BEGIN" | "BEGIN IMMEDIATE" | "COMMIT")
            {
                statements.fetch_add(1, Ordering::Relaxed);
            }
        };
        connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(count)).map_err(refused)?;
    }
    Ok(connection)
}

/// Sets what belongs to the connection; the file itself is not touched.
fn configure(connection: &Connection, sync: Durability) -> Result<(), rusqlite::Error> {
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Plans do not depend on parameters. Otherwise SQLite may prepare a statement again whenever one is
    // bound to another value, which is most of what a claim would cost.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    match sync {
        Durability::Full => {
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "fullfsync", true)?;
        }
        Durability::Normal => connection.pragma_update(None, "synchronous", "NORMAL")?,
    }
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // A log that is written over is flushed faster than one that grows, so begin again early.
    connection.pragma_update(None, "wal_autocheckpoint", 1_000)?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)
}

fn set_wal(connection: &Connection, path: &Path) -> Result<(), WorldError> {
    let mode = retry_busy(|| {
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
    })
    .map_err(|error| of_sqlite(&error, path))?;
    if mode == "wal" {
        return Ok(());
    }
    Err(WorldError::Invalid(format!(
        "`{}` is on a file system without shared memory (it stays in mode `{mode}`); put it on a local disk",
        path.display()
    )))
}
