//! Opening the file, and the settings of every connection.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_core::{Backoff, WorldError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::connection::error::{from_sqlite, is_busy};
use crate::connection::opened_file::with_suffix;
use crate::connection::permissions::{folder_of, read_only_file};
use crate::connection::statement_counter::StatementCounter;
use crate::connection::thread::pause_before_retry;
use crate::options::Durability;
use crate::schema::migrate::{LivenessCheck, MIGRATIONS, check_usable, migrate_to_latest};

/// The lowest supported version of SQLite. Earlier versions can corrupt a file when one process resets the WAL while
/// another one runs a checkpoint.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// How long a lock is tried that another process holds. The writer has a time limit of its own.
const BUSY_TIME: Duration = Duration::from_secs(5);

/// The pauses between two attempts to get a lock. They do not grow: with the growing pauses of SQLite's own busy handler,
/// a process that has waited for long tries less often than a newcomer.
pub(crate) const BUSY_BACKOFF: Backoff = Backoff::constant(Duration::from_micros(1_300));

/// The size of the cache of prepared statements. It is larger than the number of statements in `sql/`.
const PREPARED_STATEMENTS_MAX: usize = 128;

/// The settings that all connections of a world share.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSettings {
    pub(crate) path: PathBuf,
    pub(crate) sync: Durability,
    pub(crate) statements: StatementCounter,
}

impl ConnectionSettings {
    /// The settings of a connection whose commits wait for the disk.
    pub(crate) fn durable(path: &Path) -> Self {
        Self { path: path.into(), sync: Durability::Full, statements: StatementCounter::default() }
    }
}

/// Opens the file, creates it if it does not exist, and migrates its schema. With a `liveness` check, a migration is
/// refused while it would lock out a joined worker.
pub(crate) fn open(
    settings: &ConnectionSettings,
    liveness: Option<LivenessCheck<'_>>,
) -> Result<Connection, WorldError> {
    let path = &*settings.path;
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(WorldError::invalid(format!(
            "SQLite {} can damage files; build with version 3.51.3 or later (the bundled one is)",
            rusqlite::version()
        )));
    }
    check_file(path)?;
    let connection = connect(settings, IfMissing::Create)?;
    check_usable(&connection, path)?;
    set_wal(&connection, path)?;
    migrate_to_latest(&connection, path, liveness, MIGRATIONS)?;
    Ok(connection)
}

/// Opens a read-only connection to a file that [`open`] has opened before.
pub(crate) fn open_reader(settings: &ConnectionSettings) -> Result<Connection, WorldError> {
    let connection = connect(settings, IfMissing::Fail)?;
    connection
        .pragma_update(None, "query_only", true)
        .map_err(|error| from_sqlite(&error, &settings.path))?;
    Ok(connection)
}

/// Opens another connection with the settings of a world, to a file that [`open`] has opened before.
pub(crate) fn open_writer(settings: &ConnectionSettings) -> Result<Connection, WorldError> {
    connect(settings, IfMissing::Fail)
}

/// Opens another connection to the file of a world. The file must exist.
pub(crate) fn open_existing(path: &Path) -> Result<Connection, WorldError> {
    if !path.is_file() {
        return Err(WorldError::unavailable(format!(
            "`{}` does not exist any more; restore it, or open another file",
            path.display()
        )));
    }
    connect(&ConnectionSettings::durable(path), IfMissing::Fail)
}

/// What a connection does if the file does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfMissing {
    Create,
    Fail,
}

/// Repeats an attempt while another process holds the lock that it needs, for about five seconds.
pub(crate) fn retry_busy<T>(
    mut attempt: impl FnMut() -> Result<T, rusqlite::Error>,
) -> Result<T, rusqlite::Error> {
    let (mut backoff, mut waited) = (BUSY_BACKOFF, Duration::ZERO);
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && waited < BUSY_TIME => waited += pause_before_retry(&mut backoff),
            other => return other,
        }
    }
}

/// Refuses a path at which there is no writable file and none can be created.
fn check_file(path: &Path) -> Result<(), WorldError> {
    check_folder(path)?;
    let file = path.display();
    let Ok(metadata) = path.metadata() else { return check_no_log(path, "does not exist") };
    if metadata.is_dir() {
        return Err(WorldError::invalid(format!("`{file}` is a folder; give the path of a file in it")));
    }
    if !metadata.is_file() {
        return Err(WorldError::invalid(format!("`{file}` is not a regular file; choose another path")));
    }
    if metadata.permissions().readonly() {
        return Err(read_only_file(path));
    }
    if metadata.len() == 0 { check_no_log(path, "is empty") } else { Ok(()) }
}

/// Refuses a file without content whose write-ahead log has some: SQLite would delete the log, and with it changes
/// that were acknowledged.
fn check_no_log(path: &Path, problem: &str) -> Result<(), WorldError> {
    let log = with_suffix(path, "-wal");
    let bytes = log.metadata().map_or(0, |metadata| metadata.len());
    if bytes == 0 {
        return Ok(());
    }
    Err(WorldError::corrupt(format!(
        "`{}` {problem}, but its write-ahead log `{}` has {bytes} bytes of changes; put the file back next to its log, \
         or restore a backup; to begin with an empty world, move the log away",
        path.display(),
        log.display()
    )))
}

/// Refuses a path whose folder does not exist.
pub(crate) fn check_folder(path: &Path) -> Result<(), WorldError> {
    let folder = folder_of(path);
    if !folder.is_dir() {
        return Err(WorldError::invalid(format!(
            "the folder `{}` for `{}` does not exist; create it first",
            folder.display(),
            path.display()
        )));
    }
    Ok(())
}

/// Opens a connection, and sets its options.
fn connect(settings: &ConnectionSettings, if_missing: IfMissing) -> Result<Connection, WorldError> {
    let path = &*settings.path;
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, if_missing == IfMissing::Create);
    let to_world_error = |error: rusqlite::Error| from_sqlite(&error, path);
    let mut connection = Connection::open_with_flags(path, flags).map_err(to_world_error)?;
    // SQLite opens a file that this user cannot write, for reading only.
    if connection.is_readonly("main").map_err(to_world_error)? {
        return Err(read_only_file(path));
    }
    // Another process may be creating or recovering the file.
    retry_busy(|| configure(&connection, settings.sync)).map_err(to_world_error)?;
    settings.statements.attach(&mut connection).map_err(to_world_error)?;
    Ok(connection)
}

/// Sets the options of the connection. It does not change the file.
fn configure(connection: &Connection, sync: Durability) -> Result<(), rusqlite::Error> {
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS_MAX);
    // Make query plans independent of parameters. Otherwise SQLite may prepare a statement again whenever a parameter
    // gets another value, which would be most of the cost of a claim.
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
    // Overwriting the log is flushed faster than appending to it, so checkpoint early to reuse its start.
    connection.pragma_update(None, "wal_autocheckpoint", 1_000)?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)
}

/// Switches the file to write-ahead logging, which SQLite then keeps.
fn set_wal(connection: &Connection, path: &Path) -> Result<(), WorldError> {
    let mode = retry_busy(|| {
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
    })
    .map_err(|error| from_sqlite(&error, path))?;
    if mode == "wal" {
        return Ok(());
    }
    Err(WorldError::invalid(format!(
        "`{}` is on a file system without shared memory (its journal mode stays `{mode}`); put it on a local disk",
        path.display()
    )))
}
