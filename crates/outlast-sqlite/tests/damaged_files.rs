//! Damage to a file is detected, and damaged data is never returned as a result.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use common::{TempDatabase, block_on, new_start};
use outlast_core::{Payload, RunId, RunQuery, Start, World, WorldError};
use rusqlite::Connection;

const RUNS: u128 = 200;

fn start(world: &outlast_sqlite::SqliteWorld, run: u128) {
    let input = Payload::json(&"x".repeat(2_000)).unwrap();
    let start = Start { input, ..new_start(RunId::from_bits(run)) };
    block_on(world.start(vec![start])).unwrap().remove(0).unwrap();
}

/// A database with runs, all of them in the file itself instead of its write-ahead log.
fn filled_database() -> TempDatabase {
    let database = TempDatabase::new();
    let world = database.open();
    (1..=RUNS).for_each(|run| start(&world, run));
    drop(world);
    let connection = Connection::open(database.path()).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    database
}

/// Inverts bytes of a file.
fn invert_bytes(path: &Path, at: u64, length: usize) {
    let mut file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; length];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut bytes).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&bytes).unwrap();
}

/// Reads all histories and views, and returns the number of runs on the first page.
fn read_all(database: &TempDatabase) -> Result<usize, WorldError> {
    let world = database.try_open()?;
    for run in 1..=RUNS {
        let history = block_on(world.history(RunId::from_bits(run), 0, 10))?;
        assert_eq!(history.len(), 1, "a history that is returned is complete");
        block_on(world.run(RunId::from_bits(run)))?;
    }
    Ok(block_on(world.runs(RunQuery { limit: 100, ..RunQuery::default() }))?.runs.len())
}

#[test]
fn most_damaged_pages_are_reported_with_the_name_of_the_file() {
    let (mut detected, mut undetected) = (0, 0);
    let whole = filled_database();
    let pages = whole.path().metadata().unwrap().len() / 4096;
    // Damage the first bytes of a page, which contain its type. SQLite has no checksums, so a changed value in the
    // middle of a text is not detected.
    for page in (1..pages).step_by(7) {
        let database = TempDatabase::new();
        std::fs::copy(whole.path(), database.path()).unwrap();
        invert_bytes(&database.path(), page * 4096, 64);
        match read_all(&database) {
            Err(WorldError::Corrupt(message)) => {
                assert!(message.contains("world.db") && message.contains("restore a backup"), "{message}");
                detected += 1;
            }
            Err(other) => panic!("page {page}: {other:?}"),
            Ok(_) => undetected += 1,
        }
    }
    println!("{detected} damaged pages detected, {undetected} not read or not detected");
    assert!(detected > undetected, "{detected} {undetected}");
}

#[test]
fn damage_is_a_permanent_error_of_reads_and_writes() {
    let database = filled_database();
    let damaged = Connection::open(database.path()).unwrap();
    let page: i64 = damaged
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'turns_by_run'", [], |row| row.get(0))
        .unwrap();
    drop(damaged);
    invert_bytes(&database.path(), (page as u64 - 1) * 4096, 64);
    let world = database.open();
    let refused = block_on(world.history(RunId::from_bits(1), 0, 10)).unwrap_err();
    assert!(matches!(refused, WorldError::Corrupt(_)), "{refused:?}");
    let refused =
        block_on(world.start(vec![new_start(RunId::from_bits(999))])).unwrap().remove(0).unwrap_err();
    assert!(
        matches!(&refused, WorldError::Corrupt(message) if message.contains("is damaged")),
        "{refused:?}"
    );
    assert!(!refused.is_transient(), "it is not retried");
}

#[test]
fn a_file_with_a_damaged_header_is_not_an_sqlite_file() {
    let database = filled_database();
    invert_bytes(&database.path(), 0, 100);
    let refused = database.try_open().unwrap_err();
    assert!(
        matches!(&refused, WorldError::Corrupt(message) if message.contains("not an SQLite file")),
        "{refused:?}"
    );
}

/// Copies the file and its write-ahead log while a world has them open: the state that a crash leaves.
fn copy_as_is(database: &TempDatabase, to: &TempDatabase) {
    for name in ["world.db", "world.db-wal"] {
        std::fs::copy(database.path().with_file_name(name), to.path().with_file_name(name)).unwrap();
    }
}

#[test]
fn a_truncated_log_keeps_every_commit_before_the_cut() {
    let database = TempDatabase::new();
    let world = database.open();
    let log = database.path().with_file_name("world.db-wal");
    let mut ends = Vec::new();
    for run in 1..=30 {
        start(&world, run);
        ends.push(log.metadata().unwrap().len());
    }
    let whole = *ends.last().unwrap();
    for cut in (0..=whole).step_by(4_999) {
        let copy = TempDatabase::new();
        copy_as_is(&database, &copy);
        let file =
            std::fs::File::options().write(true).open(copy.path().with_file_name("world.db-wal")).unwrap();
        file.set_len(cut).unwrap();
        drop(file);
        let acknowledged = ends.iter().filter(|end| **end <= cut).count();
        let survivor = match copy.try_open() {
            Ok(survivor) => survivor,
            Err(error) => panic!("cut at {cut}: {error}"),
        };
        let counts: u64 = block_on(survivor.counts()).unwrap().values().sum();
        assert_eq!(counts, acknowledged as u64, "cut at {cut} of {whole}");
        for run in 1..=acknowledged as u128 {
            assert_eq!(block_on(survivor.history(RunId::from_bits(run), 0, 10)).unwrap().len(), 1);
        }
    }
}

#[test]
fn a_log_with_damage_in_the_middle_keeps_the_commits_before_it() {
    let database = TempDatabase::new();
    let world = database.open();
    let log = database.path().with_file_name("world.db-wal");
    let mut ends = Vec::new();
    for run in 1..=30 {
        start(&world, run);
        ends.push(log.metadata().unwrap().len());
    }
    let copy = TempDatabase::new();
    copy_as_is(&database, &copy);
    invert_bytes(&copy.path().with_file_name("world.db-wal"), ends[14] + 100, 8);
    let survivor = copy.open();
    let counts: u64 = block_on(survivor.counts()).unwrap().values().sum();
    assert_eq!(counts, 15, "the checksums of the log show which commits are complete");
}

#[test]
fn a_file_from_before_the_first_release_is_refused_unchanged() {
    let database = filled_database();
    let connection = Connection::open(database.path()).unwrap();
    connection.pragma_update(None, "user_version", 4).unwrap();
    let refused = database.try_open().unwrap_err();
    let WorldError::Conflict(message) = &refused else { panic!("{refused}") };
    assert!(message.contains("schema 4 from before the first release"), "{message}");
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 4);
}
