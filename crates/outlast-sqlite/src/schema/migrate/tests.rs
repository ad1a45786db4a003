//! Files of earlier and later schemas, and programs of two builds on one file.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::PathBuf;
use std::time::Duration;

use super::*;

/// A file, and the locks beside it.
struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
    locks: Locks,
}

/// The time of every test.
const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// A step that adds something, and one that earlier programs cannot live with.
const ADDITIVE: Migration =
    Migration { schema_min: BASELINE, sql: "ALTER TABLE sessions ADD COLUMN note TEXT DEFAULT 'none'" };
const BREAKING: Migration =
    Migration { schema_min: BASELINE + 2, sql: "ALTER TABLE sessions RENAME COLUMN host TO machine" };

/// How a program joins that knows the first schema.
const JOIN: &str = "INSERT INTO sessions (id, host, pid, build, code, time, joined_at, beat_at, expires_at, queues, \
    rules, format, schema) VALUES (?1, 'host1', 4001, 'b', '[]', 1, ?2, ?2, ?3, '[]', 1, 1, ?4) ON CONFLICT DO NOTHING";

fn first() -> Vec<Migration> {
    MIGRATIONS[..1].to_vec()
}

fn and(migrations: &[Migration], next: Migration) -> Vec<Migration> {
    migrations.iter().copied().chain([next]).collect()
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world.db");
        Self { _folder: folder, locks: Locks::beside(&path, true), path }
    }

    /// Opens the file as a program does that knows these steps.
    fn open(&self, migrations: &[Migration]) -> Result<Connection, WorldError> {
        let connection = Connection::open(&self.path).unwrap();
        bring_up(&connection, &self.path, Some(Others { locks: &self.locks, now: NOW }), migrations)?;
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
fn an_older_file_is_migrated_and_keeps_what_it_has() {
    let place = Place::new();
    let old = place.open(&first()).unwrap();
    place.join(&old, Duration::from_secs(60));
    let new = place.open(&and(&first(), ADDITIVE)).unwrap();
    assert_eq!(version(&new), BASELINE + 1);
    assert_eq!(count(&new, "SELECT count(*) FROM sessions WHERE note = 'none' AND pid = 4001"), 1);
    // The old program goes on, and so does one that is started now.
    assert_eq!(version(&old), BASELINE + 1);
    old.execute("DELETE FROM sessions", []).unwrap();
    place.join(&old, Duration::from_secs(60));
    place.join(&place.open(&first()).unwrap(), Duration::from_secs(60));
    assert_eq!(count(&new, "SELECT count(*) FROM sessions WHERE note = 'none'"), 1);
}

#[test]
fn a_failing_migration_changes_nothing() {
    let place = Place::new();
    let old = place.open(&first()).unwrap();
    let dump = || -> Vec<String> {
        let mut statement = old.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let before = dump();
    let failing = Migration { schema_min: BASELINE + 2, sql: "CREATE TABLE fine (a); CREATE TABLE runs (b)" };
    let error = place.open(&and(&and(&first(), ADDITIVE), failing)).unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    assert_eq!((version(&old), schema_min(&old).unwrap()), (BASELINE, BASELINE));
    assert_eq!(dump(), before);
    place.open(&first()).unwrap();
}

#[test]
fn a_program_that_a_file_is_too_new_for_is_told_both_schemas() {
    let place = Place::new();
    place.open(&and(&and(&first(), ADDITIVE), BREAKING)).unwrap();
    let error = place.open(&and(&first(), ADDITIVE)).unwrap_err();
    let named =
        format!("has schema {}, which needs a build that knows schema {}", BASELINE + 2, BASELINE + 2);
    assert!(
        matches!(&error, WorldError::Conflict(why) if why.contains(&named)
            && why.contains(&format!("knows {}; run a newer build", BASELINE + 1))),
        "{error}"
    );
}

#[test]
fn a_migration_is_refused_while_it_would_lock_out_a_worker() {
    let place = Place::new();
    let old = place.open(&first()).unwrap();
    let session = place.join(&old, Duration::ZERO);
    place.locks.acquire(session).unwrap();
    let steps = and(&and(&first(), ADDITIVE), BREAKING);
    let error = place.open(&steps).unwrap_err();
    assert!(
        matches!(&error, WorldError::Conflict(why) if why.contains("process 4001 on host1")
            && why.contains("stop them")),
        "{error}"
    );
    assert_eq!(version(&old), BASELINE, "not even the step before is applied");
    place.locks.release(session);
    old.execute("DELETE FROM sessions", []).unwrap();
    assert_eq!(version(&place.open(&steps).unwrap()), BASELINE + 2);
}

#[test]
fn the_session_of_a_dead_worker_does_not_hinder_a_migration() {
    let steps = and(&and(&first(), ADDITIVE), BREAKING);
    // Its lock is there, and nobody holds it.
    let place = Place::new();
    let session = place.join(&place.open(&first()).unwrap(), Duration::from_secs(60));
    let other = Locks::beside(&place.path, true);
    other.acquire(session).unwrap();
    assert!(place.open(&steps).is_err());
    drop(other);
    place.open(&steps).unwrap();
    // There is no lock: its time counts.
    for (time, is_migrated) in [(Duration::ZERO, true), (Duration::from_secs(60), false)] {
        let place = Place::new();
        place.join(&place.open(&first()).unwrap(), time);
        assert_eq!(place.open(&steps).is_ok(), is_migrated, "{time:?}");
    }
}

#[test]
fn a_worker_of_a_program_that_says_no_version_is_shown_without_one() {
    let place = Place::new();
    let connection = place.open(&first()).unwrap();
    place.join(&connection, Duration::from_secs(60));
    place.open(MIGRATIONS).unwrap();
    let workers = crate::read::views::workers(&connection).unwrap();
    assert_eq!((workers.len(), workers[0].pid, &workers[0].version), (1, 4_001, &None));
}
