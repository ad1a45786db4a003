//! Migrations: the schema of a file is made and brought up to date, by one process at a time.
//!
//! Programs of two builds use one file while an upgrade is rolled out. The file has the number of its schema, and the
//! lowest schema that a program must know to use it. A migration that adds something keeps that lowest number: programs
//! that know an earlier schema go on, since their statements name their columns and new columns have defaults. A migration
//! that changes what is there raises it, and is refused while a worker is joined that it would lock out.

#[cfg(test)]
mod tests;

use std::path::Path;

use outlast_core::{SessionId, Timestamp, WorldError};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::connection::error::of_sqlite;
use crate::connection::file::retry_busy;
use crate::schema::row::{moment, word};
use crate::schema::sql;
use crate::sessions::session_locks::Locks;

/// "Outl" in ASCII: marks the file as ours.
const APPLICATION_ID: i64 = 0x4f75_746c;

/// The first schema that was released. Files with an earlier one are refused.
const BASELINE: i64 = 5;

/// One step of the schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    /// The lowest schema that a program must know to use the file after it.
    schema_min: i64,
    sql: &'static str,
}

/// Every schema since the first that was released, oldest first. Append only: files of each age are in use.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration { schema_min: BASELINE, sql: include_str!("../../migrations/0005_baseline.sql") },
    Migration { schema_min: BASELINE, sql: include_str!("../../migrations/0006_version.sql") },
];

/// The schema of this build.
pub(crate) const SCHEMA: i64 = latest(MIGRATIONS);

const fn latest(migrations: &[Migration]) -> i64 {
    BASELINE + migrations.len() as i64 - 1
}

/// How to tell whether the workers of a file live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others<'a> {
    pub(crate) locks: &'a Locks,
    pub(crate) now: Timestamp,
}

/// Refuses a file that this build cannot use: nothing of it is changed.
pub(crate) fn check_ours(connection: &Connection, path: &Path) -> Result<(), WorldError> {
    judge(connection, path, MIGRATIONS).map(|_| ())
}

/// Brings the file to the schema of these steps, unless it has it or a newer one. Another program's file, and one
/// that the program cannot use, are refused untouched. A copy that nobody else knows has no `others`.
pub(crate) fn bring_up(
    connection: &Connection,
    path: &Path,
    others: Option<Others<'_>>,
    migrations: &[Migration],
) -> Result<(), WorldError> {
    let refused = |error: rusqlite::Error| of_sqlite(&error, path);
    if judge(connection, path, migrations)? == Judged::Right {
        return Ok(());
    }
    if let Some(joined) = retry_busy(|| apply(connection, others, migrations)).map_err(refused)? {
        return Err(WorldError::Conflict(format!(
            "`{}` cannot be migrated to schema {}: workers of an old build are joined, which could not use it any more \
             ({joined}); stop them, then open it again",
            path.display(),
            latest(migrations)
        )));
    }
    // Another process may have been faster, with a newer build.
    judge(connection, path, migrations).map(|_| ())
}

/// Whether a file has to be migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    Right,
    Old,
}

fn judge(connection: &Connection, path: &Path, migrations: &[Migration]) -> Result<Judged, WorldError> {
    // One look: another process may be making the file between two.
    let found = retry_busy(|| Identity::of(connection)).map_err(|error| of_sqlite(&error, path))?;
    let (file, known) = (path.display(), latest(migrations));
    let Identity { application, version, schema_min, is_empty } = found;
    if application == 0 && is_empty {
        return Ok(Judged::Old);
    }
    if application != APPLICATION_ID {
        return Err(WorldError::Conflict(format!(
            "`{file}` is the SQLite file of another program; give the path of another file"
        )));
    }
    if version < BASELINE {
        return Err(WorldError::Conflict(format!(
            "`{file}` has schema {version} from before the first release, the oldest that this build knows is \
             {BASELINE}; let its runs end with the build that wrote it, and give the path of a new file"
        )));
    }
    if schema_min > known {
        return Err(WorldError::Conflict(format!(
            "`{file}` has schema {version}, which needs a build that knows schema {schema_min} or a later one, and this \
             build knows {known}; run a newer build"
        )));
    }
    Ok(if version < known { Judged::Old } else { Judged::Right })
}

/// Whose file it is, its schema, which one its users must know, and whether there is nothing in it.
struct Identity {
    application: i64,
    version: i64,
    schema_min: i64,
    is_empty: bool,
}

impl Identity {
    /// As of one moment.
    fn of(connection: &Connection) -> Result<Self, rusqlite::Error> {
        let sql = "SELECT (SELECT application_id FROM pragma_application_id), \
                   (SELECT user_version FROM pragma_user_version), \
                   NOT EXISTS (SELECT 1 FROM sqlite_schema)";
        let moment = connection.unchecked_transaction()?;
        let (application, version, is_empty) =
            moment.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let is_ours = application == APPLICATION_ID && version >= BASELINE;
        let schema_min = if is_ours { schema_min(&moment)? } else { 0 };
        Ok(Self { application, version, schema_min, is_empty })
    }
}

fn schema_min(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.query_row(sql::SCHEMA_MIN, [], |row| row.get(0))
}

/// Applies the steps that are missing, all or none. Answers why not, when it would lock out workers that are joined.
fn apply(
    connection: &Connection,
    others: Option<Others<'_>>,
    migrations: &[Migration],
) -> Result<Option<String>, rusqlite::Error> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let done: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // Another process may have been faster, even one of a newer build.
    for (version, migration) in (BASELINE..).zip(migrations).filter(|(version, _)| *version > done) {
        if version > BASELINE
            && let Some(others) = others
            && let Some(joined) = joined_below(&transaction, migration.schema_min, others)?
        {
            return Ok(Some(joined));
        }
        transaction.execute_batch(migration.sql)?;
        transaction.execute(sql::SCHEMA_MIN_SET, [migration.schema_min])?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", version)?;
    }
    transaction.commit()?;
    Ok(None)
}

/// The joined workers whose programs do not know this schema, for a person; `None` when there are none. One whose process
/// is gone is none: its session waits to be taken over.
fn joined_below(
    connection: &Connection,
    schema: i64,
    others: Others<'_>,
) -> Result<Option<String>, rusqlite::Error> {
    let mut statement = connection.prepare(sql::SESSION_BELOW)?;
    let mut rows = statement.query([schema])?;
    let mut joined = Vec::new();
    while let Some(row) = rows.next()? {
        let (session, expires_at): (SessionId, _) = (word(row, 0)?, moment(row, 3)?);
        let is_gone = if others.locks.has_file(session) {
            others.locks.is_abandoned(session)
        } else {
            expires_at <= others.now
        };
        if !is_gone {
            joined.push(format!("process {} on {}", row.get::<_, i64>(2)?, row.get::<_, String>(1)?));
        }
    }
    Ok((!joined.is_empty()).then(|| joined.join(", ")))
}

/// Makes the schema in a file of a unit test.
#[cfg(test)]
pub(crate) fn make_schema(connection: &Connection) -> Result<(), rusqlite::Error> {
    apply(connection, None, MIGRATIONS).map(|_| ())
}
