//! Migrations: creating the schema of a file, and upgrading it. One process at a time does this.
//!
//! While an upgrade is rolled out, programs of two builds use one file. The file stores the number of its schema, and
//! the lowest schema that a program must know to use it (`schema_min`). An additive migration keeps `schema_min`: older
//! programs can still use the file, because their statements name their columns and new columns have defaults. A
//! migration that changes existing columns raises `schema_min`, and is refused while a worker is joined that could not
//! use the file afterwards.

#[cfg(test)]
mod tests;

use std::path::Path;

use outlast_core::{SessionId, Timestamp, WorldError};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::connection::error::from_sqlite;
use crate::connection::file::retry_busy;
use crate::schema::row::{parsed, timestamp};
use crate::schema::sql;
use crate::sessions::session_locks::SessionLocks;

/// "Outl" in ASCII. It identifies the file as one of Outlast.
const APPLICATION_ID: i64 = 0x4f75_746c;

/// The first released schema. Files with an earlier one are refused.
const BASELINE: i64 = 5;

/// One step of the schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    /// The lowest schema that a program must know to use the file after this migration.
    schema_min: i64,
    sql: &'static str,
}

/// All migrations since the first released schema, oldest first. Only append to it: files of every schema are in use.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration { schema_min: BASELINE, sql: include_str!("../../migrations/0005_baseline.sql") },
    Migration { schema_min: BASELINE, sql: include_str!("../../migrations/0006_version.sql") },
    Migration { schema_min: BASELINE, sql: include_str!("../../migrations/0007_marks.sql") },
    Migration { schema_min: BASELINE, sql: include_str!("../../migrations/0008_generations.sql") },
    Migration { schema_min: BASELINE, sql: include_str!("../../migrations/0009_streams.sql") },
    Migration { schema_min: BASELINE, sql: include_str!("../../migrations/0014_views.sql") },
    Migration { schema_min: BASELINE, sql: include_str!("../../migrations/0015_tokens.sql") },
    Migration { schema_min: BASELINE, sql: include_str!("../../migrations/0018_records.sql") },
];

/// The schema of this build.
pub(crate) const SCHEMA: i64 = latest(MIGRATIONS);

const fn latest(migrations: &[Migration]) -> i64 {
    BASELINE + migrations.len() as i64 - 1
}

/// How to check whether the workers of a file are alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LivenessCheck<'a> {
    pub(crate) locks: &'a SessionLocks,
    pub(crate) now: Timestamp,
}

/// Refuses a file that this build cannot use, without changing it.
pub(crate) fn check_usable(connection: &Connection, path: &Path) -> Result<(), WorldError> {
    check_schema(connection, path, MIGRATIONS).map(|_| ())
}

/// Applies the migrations that the file lacks. A file of another program, and one that this build cannot use, are
/// refused without changing them. `liveness` is `None` for a copy that no other process uses.
pub(crate) fn migrate_to_latest(
    connection: &Connection,
    path: &Path,
    liveness: Option<LivenessCheck<'_>>,
    migrations: &[Migration],
) -> Result<(), WorldError> {
    let to_world_error = |error: rusqlite::Error| from_sqlite(&error, path);
    if check_schema(connection, path, migrations)? == SchemaAge::Current {
        return Ok(());
    }
    let locked_out =
        retry_busy(|| apply_missing(connection, liveness, migrations)).map_err(to_world_error)?;
    if let Some(workers) = locked_out {
        return Err(WorldError::conflict(format!(
            "`{}` cannot be migrated to schema {}: joined workers of an older build could not use it any more \
             ({workers}); stop them, then open the file again",
            path.display(),
            latest(migrations)
        )));
    }
    // A process with a newer build may have migrated the file before us.
    check_schema(connection, path, migrations).map(|_| ())
}

/// Whether a file has to be migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemaAge {
    /// It has the schema of this build, or a newer one that this build can use.
    Current,
    /// It has no schema, or an older one.
    Outdated,
}

/// Refuses a file that a program with these migrations cannot use, and returns whether it has to be migrated.
fn check_schema(
    connection: &Connection,
    path: &Path,
    migrations: &[Migration],
) -> Result<SchemaAge, WorldError> {
    // Read everything in one transaction, because another process may be creating the file.
    let found = retry_busy(|| FileIdentity::read(connection)).map_err(|error| from_sqlite(&error, path))?;
    let (file, known) = (path.display(), latest(migrations));
    let FileIdentity { application, version, schema_min, is_empty } = found;
    if application == 0 && is_empty {
        return Ok(SchemaAge::Outdated);
    }
    if application != APPLICATION_ID {
        return Err(WorldError::conflict(format!(
            "`{file}` is an SQLite file of another program; give the path of another file"
        )));
    }
    if version < BASELINE {
        return Err(WorldError::conflict(format!(
            "`{file}` has schema {version} from before the first release, and the oldest one that this build knows is \
             {BASELINE}; complete its runs with the build that wrote it, and give the path of a new file"
        )));
    }
    if schema_min > known {
        return Err(WorldError::conflict(format!(
            "`{file}` has schema {version}, which needs a build that knows schema {schema_min} or a later one, but this \
             build knows {known}; run a newer build"
        )));
    }
    Ok(if version < known { SchemaAge::Outdated } else { SchemaAge::Current })
}

/// What identifies a file and its schema.
struct FileIdentity {
    /// The program that the file belongs to.
    application: i64,
    /// The schema of the file.
    version: i64,
    /// The lowest schema that a program must know to use the file.
    schema_min: i64,
    /// Whether the file has no tables.
    is_empty: bool,
}

impl FileIdentity {
    /// Reads it in one transaction.
    fn read(connection: &Connection) -> Result<Self, rusqlite::Error> {
        let sql = "SELECT (SELECT application_id FROM pragma_application_id), \
                   (SELECT user_version FROM pragma_user_version), \
                   NOT EXISTS (SELECT 1 FROM sqlite_schema)";
        let snapshot = connection.unchecked_transaction()?;
        let (application, version, is_empty) =
            snapshot.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let is_ours = application == APPLICATION_ID && version >= BASELINE;
        let schema_min = if is_ours { schema_min(&snapshot)? } else { 0 };
        Ok(Self { application, version, schema_min, is_empty })
    }
}

fn schema_min(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.query_row(sql::SCHEMA_MIN, [], |row| row.get(0))
}

/// Applies the migrations that the file lacks, all or none. Returns the joined workers that a migration would lock out,
/// if there are any; then none is applied.
fn apply_missing(
    connection: &Connection,
    liveness: Option<LivenessCheck<'_>>,
    migrations: &[Migration],
) -> Result<Option<String>, rusqlite::Error> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let current: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // Another process may have migrated the file before us, even one with a newer build.
    for (version, migration) in (BASELINE..).zip(migrations).filter(|(version, _)| *version > current) {
        if version > BASELINE
            && let Some(liveness) = liveness
            && let Some(workers) = live_workers_below(&transaction, migration.schema_min, liveness)?
        {
            return Ok(Some(workers));
        }
        transaction.execute_batch(migration.sql)?;
        transaction.execute(sql::SCHEMA_MIN_SET, [migration.schema_min])?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", version)?;
    }
    transaction.commit()?;
    Ok(None)
}

/// The joined workers whose programs do not know this schema, for a person; `None` if there are none. A worker whose
/// process is dead does not count: its session will be taken over.
fn live_workers_below(
    connection: &Connection,
    schema: i64,
    liveness: LivenessCheck<'_>,
) -> Result<Option<String>, rusqlite::Error> {
    let mut statement = connection.prepare(sql::SESSIONS_BELOW_SCHEMA)?;
    let mut rows = statement.query([schema])?;
    let mut workers = Vec::new();
    while let Some(row) = rows.next()? {
        let (session, expires_at): (SessionId, _) = (parsed(row, 0)?, timestamp(row, 3)?);
        let is_dead = if liveness.locks.has_lock_file(session) {
            liveness.locks.is_abandoned(session)
        } else {
            expires_at <= liveness.now
        };
        if !is_dead {
            workers.push(format!("process {} on {}", row.get::<_, i64>(2)?, row.get::<_, String>(1)?));
        }
    }
    Ok((!workers.is_empty()).then(|| workers.join(", ")))
}

/// Creates the schema in the file of a unit test.
#[cfg(test)]
pub(crate) fn create_schema(connection: &Connection) -> Result<(), rusqlite::Error> {
    apply_missing(connection, None, MIGRATIONS).map(|_| ())
}
