//! Migrations of files with earlier and later schemas, and programs of two builds that share one file.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::PathBuf;
use std::time::Duration;

use super::*;

/// A file in a temporary folder, and its session locks.
struct MigratedFile {
    _folder: tempfile::TempDir,
    path: PathBuf,
    locks: SessionLocks,
}

/// The time of every test.
const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// A migration after which older programs can still use the file, and one after which they cannot.
const ADDITIVE: Migration =
    Migration { schema_min: BASELINE, sql: "ALTER TABLE sessions ADD COLUMN note TEXT DEFAULT 'none'" };
const BREAKING: Migration =
    Migration { schema_min: BASELINE + 2, sql: "ALTER TABLE sessions RENAME COLUMN host TO machine" };

/// The statement with which a program joins that knows the first schema.
const JOIN: &str = "INSERT INTO sessions (id, host, pid, build, code, time, joined_at, beat_at, expires_at, queues, \
    rules, format, schema) VALUES (?1, 'host1', 4001, 'b', '[]', 1, ?2, ?2, ?3, '[]', 1, 1, ?4) ON CONFLICT DO NOTHING";

fn first_migration() -> Vec<Migration> {
    MIGRATIONS[..1].to_vec()
}

fn append(migrations: &[Migration], next: Migration) -> Vec<Migration> {
    migrations.iter().copied().chain([next]).collect()
}

impl MigratedFile {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world.db");
        Self { _folder: folder, locks: SessionLocks::for_database(&path, true), path }
    }

    /// Opens the file like a program that has these migrations.
    fn open(&self, migrations: &[Migration]) -> Result<Connection, WorldError> {
        let connection = Connection::open(&self.path).unwrap();
        migrate_to_latest(
            &connection,
            &self.path,
            Some(LivenessCheck { locks: &self.locks, now: NOW }),
            migrations,
        )?;
        Ok(connection)
    }

    /// Joins a worker of a program that knows the first schema.
    fn join(&self, connection: &Connection, expires_after: Duration) -> SessionId {
        let session = SessionId::from_bits(1);
        let values = rusqlite::params![
            session.to_string(),
            NOW.as_micros(),
            NOW.plus(expires_after).as_micros(),
            BASELINE
        ];
        connection.execute(JOIN, values).unwrap();
        session
    }
}

fn version(connection: &Connection) -> i64 {
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

fn count(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn an_older_file_is_migrated_and_keeps_its_rows() {
    let file = MigratedFile::new();
    let old = file.open(&first_migration()).unwrap();
    file.join(&old, Duration::from_secs(60));
    let new = file.open(&append(&first_migration(), ADDITIVE)).unwrap();
    assert_eq!(version(&new), BASELINE + 1);
    assert_eq!(count(&new, "SELECT count(*) FROM sessions WHERE note = 'none' AND pid = 4001"), 1);
    // The old program can still write, and so can one that is started now.
    assert_eq!(version(&old), BASELINE + 1);
    old.execute("DELETE FROM sessions", []).unwrap();
    file.join(&old, Duration::from_secs(60));
    file.join(&file.open(&first_migration()).unwrap(), Duration::from_secs(60));
    assert_eq!(count(&new, "SELECT count(*) FROM sessions WHERE note = 'none'"), 1);
}

#[test]
fn a_failing_migration_changes_nothing() {
    let file = MigratedFile::new();
    let old = file.open(&first_migration()).unwrap();
    let dump = || -> Vec<String> {
        let mut statement = old.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let before = dump();
    let failing = Migration { schema_min: BASELINE + 2, sql: "CREATE TABLE fine (a); CREATE TABLE runs (b)" };
    let error = file.open(&append(&append(&first_migration(), ADDITIVE), failing)).unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    assert_eq!((version(&old), schema_min(&old).unwrap()), (BASELINE, BASELINE));
    assert_eq!(dump(), before);
    file.open(&first_migration()).unwrap();
}

#[test]
fn a_program_that_is_too_old_for_a_file_gets_an_error_with_both_schemas() {
    let file = MigratedFile::new();
    file.open(&append(&append(&first_migration(), ADDITIVE), BREAKING)).unwrap();
    let error = file.open(&append(&first_migration(), ADDITIVE)).unwrap_err();
    let named =
        format!("has schema {}, which needs a build that knows schema {}", BASELINE + 2, BASELINE + 2);
    assert!(
        matches!(&error, WorldError::Conflict(why) if why.contains(&named)
            && why.contains(&format!("knows {}; run a newer build", BASELINE + 1))),
        "{error}"
    );
}

#[test]
fn a_migration_is_refused_while_it_would_lock_out_a_joined_worker() {
    let file = MigratedFile::new();
    let old = file.open(&first_migration()).unwrap();
    let session = file.join(&old, Duration::ZERO);
    file.locks.acquire(session).unwrap();
    let steps = append(&append(&first_migration(), ADDITIVE), BREAKING);
    let error = file.open(&steps).unwrap_err();
    assert!(
        matches!(&error, WorldError::Conflict(why) if why.contains("process 4001 on host1")
            && why.contains("stop them")),
        "{error}"
    );
    assert_eq!(version(&old), BASELINE, "the earlier migration is not applied either");
    file.locks.release(session);
    old.execute("DELETE FROM sessions", []).unwrap();
    assert_eq!(version(&file.open(&steps).unwrap()), BASELINE + 2);
}

#[test]
fn the_session_of_a_dead_worker_does_not_prevent_a_migration() {
    let steps = append(&append(&first_migration(), ADDITIVE), BREAKING);
    // Its lock file exists, and nobody holds the lock.
    let file = MigratedFile::new();
    let session = file.join(&file.open(&first_migration()).unwrap(), Duration::from_secs(60));
    let other = SessionLocks::for_database(&file.path, true);
    other.acquire(session).unwrap();
    assert!(file.open(&steps).is_err());
    drop(other);
    file.open(&steps).unwrap();
    // It has no lock file, so its expiry time counts.
    for (time, is_migrated) in [(Duration::ZERO, true), (Duration::from_secs(60), false)] {
        let file = MigratedFile::new();
        file.join(&file.open(&first_migration()).unwrap(), time);
        assert_eq!(file.open(&steps).is_ok(), is_migrated, "{time:?}");
    }
}

#[test]
fn a_worker_that_reports_no_version_is_listed_without_a_version() {
    let file = MigratedFile::new();
    let connection = file.open(&first_migration()).unwrap();
    file.join(&connection, Duration::from_secs(60));
    file.open(MIGRATIONS).unwrap();
    let workers = crate::read::views::workers(&connection).unwrap();
    assert_eq!((workers.len(), workers[0].pid, &workers[0].version), (1, 4_001, &None));
}
