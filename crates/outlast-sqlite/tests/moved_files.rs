//! A world whose file is moved, replaced or removed stops: it acknowledges nothing that is not in the file at its path.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{FixedClock, TempDatabase, block_on, new_start};
use outlast_core::{RunId, RunQuery, Started, Timestamp, World, WorldError};
use outlast_sqlite::{SqliteOptions, SqliteWorld};

fn start(world: &SqliteWorld, run: u128) -> Result<Started, WorldError> {
    block_on(world.start(vec![new_start(RunId::from_bits(run))])).unwrap().remove(0)
}

/// How a file gets lost, by name.
type Loss = (&'static str, fn(&Path));

const LOSSES: [Loss; 5] = [
    ("removed", |path| std::fs::remove_file(path).unwrap()),
    ("renamed", |path| std::fs::rename(path, path.with_file_name("old.db")).unwrap()),
    ("replaced by a copy", |path| {
        let copy = path.with_file_name("copy.db");
        std::fs::copy(path, &copy).unwrap();
        std::fs::rename(copy, path).unwrap();
    }),
    ("without its log", |path| std::fs::remove_file(path.with_file_name("world.db-wal")).unwrap()),
    ("moved with its folder", |path| {
        let folder = path.parent().unwrap();
        std::fs::rename(folder, folder.with_extension("moved")).unwrap();
        // The folder is removed with the test's temporary folder.
        std::fs::create_dir(folder).unwrap();
        std::fs::rename(folder.with_extension("moved"), folder.join("moved")).unwrap();
    }),
];

#[track_caller]
fn assert_lost(error: &WorldError, how: &str) {
    let WorldError::Gone(text) = error else { panic!("{how}: {error:?}") };
    assert!(text.contains("world.db` was moved, replaced or removed while it was open"), "{how}: {text}");
    assert!(text.contains("restore a backup"), "{how}: {text}");
    assert!(!error.is_transient(), "{how}: it is not retried");
}

#[test]
fn a_change_of_a_lost_file_is_not_acknowledged_and_the_world_stops() {
    for (how, lose) in LOSSES {
        let database = TempDatabase::new();
        let world = database.open();
        start(&world, 1).unwrap();
        lose(&database.path());
        let refused = start(&world, 2).unwrap_err();
        assert_lost(&refused, how);
        // Every later call returns the same error, whatever it does.
        assert_eq!(start(&world, 3).unwrap_err(), refused, "{how}");
        assert_eq!(block_on(world.run(RunId::from_bits(1))).unwrap_err(), refused, "{how}");
        assert_eq!(block_on(world.runs(RunQuery::default())).unwrap_err(), refused, "{how}");
        assert_eq!(block_on(world.resume(RunId::from_bits(1))).unwrap_err(), refused, "{how}");
        let backup = block_on(world.backup(database.path().with_file_name("backup.db")));
        assert_eq!(backup.unwrap_err(), refused, "{how}");
    }
}

#[test]
fn every_element_of_a_batch_in_a_lost_file_is_refused() {
    let database = TempDatabase::new();
    let world = database.open();
    std::fs::remove_file(database.path()).unwrap();
    let starts = (1..=100).map(|run| new_start(RunId::from_bits(run))).collect();
    let answers = block_on(world.start(starts)).unwrap();
    assert_eq!(answers.len(), 100);
    answers.iter().for_each(|answer| assert_lost(answer.as_ref().unwrap_err(), "in a batch"));
}

#[test]
fn a_process_that_only_reads_notices_the_loss() {
    for (how, lose) in LOSSES {
        let database = TempDatabase::new();
        let world = database.open();
        start(&world, 1).unwrap();
        lose(&database.path());
        assert_lost(&block_on(world.counts()).unwrap_err(), how);
        assert_lost(&block_on(world.ended(RunId::from_bits(1), Timestamp::NEVER)).unwrap_err(), how);
    }
}

#[test]
fn a_caller_that_waits_notices_the_loss() {
    for mode in ["", "?doorbell=off"] {
        let database = TempDatabase::new();
        let url = format!("sqlite:{}{mode}", database.path().display());
        let world = SqliteWorld::open(&url, SqliteOptions::new(Arc::new(FixedClock))).unwrap();
        start(&world, 1).unwrap();
        let waiting = std::thread::spawn(move || {
            let ended = block_on(world.ended(RunId::from_bits(1), Timestamp::NEVER));
            (ended, world)
        });
        std::fs::remove_file(database.path()).unwrap();
        let (ended, _world) = waiting.join().unwrap();
        assert_lost(&ended.unwrap_err(), mode);
    }
}

#[test]
fn a_transaction_of_the_caller_is_refused_for_a_world_that_has_lost_its_file() {
    let database = TempDatabase::new();
    let world = database.open();
    for (from, to) in [("world.db", "old.db"), ("world.db-wal", "old.db-wal"), ("world.db-shm", "old.db-shm")]
    {
        let from = database.path().with_file_name(from);
        std::fs::rename(&from, from.with_file_name(to)).unwrap();
    }
    // Another world at the same path.
    let other = database.open();
    let mut connection = rusqlite::Connection::open(database.path()).unwrap();
    let transaction = connection.transaction().unwrap();
    let start = new_start(RunId::from_bits(1));
    let refused = outlast_sqlite::start_within(&transaction, &world, start.clone()).unwrap_err();
    assert_lost(&refused, "within a transaction");
    outlast_sqlite::start_within(&transaction, &other, start).unwrap();
}

#[test]
fn other_names_of_the_same_file_do_not_matter() {
    let database = TempDatabase::new();
    let world = database.open();
    let moved = database.path().with_file_name("moved.db");
    std::fs::rename(database.path(), &moved).unwrap();
    std::fs::rename(&moved, database.path()).unwrap();
    std::fs::hard_link(database.path(), &moved).unwrap();
    start(&world, 1).unwrap();
    assert_eq!(block_on(world.counts()).unwrap().values().sum::<u64>(), 1);
}

#[test]
fn a_log_without_its_file_is_refused_unchanged() {
    let database = TempDatabase::new();
    let world = database.open();
    start(&world, 1).unwrap();
    for is_empty in [false, true] {
        let copy = TempDatabase::new();
        let log = copy.path().with_file_name("world.db-wal");
        std::fs::copy(database.path().with_file_name("world.db-wal"), &log).unwrap();
        if is_empty {
            std::fs::write(copy.path(), "").unwrap();
        }
        let before = std::fs::read(&log).unwrap();
        let error = copy.try_open().unwrap_err();
        let WorldError::Corrupt(text) = &error else { panic!("{error:?}") };
        let problem = if is_empty { "world.db` is empty, but" } else { "world.db` does not exist, but" };
        assert!(text.contains(problem) && text.contains("world.db-wal` has"), "{text}");
        assert!(text.contains("put the file back next to its log"), "{text}");
        assert_eq!(std::fs::read(&log).unwrap(), before, "nothing is lost");
        // With its file, the log is complete.
        std::fs::copy(database.path(), copy.path()).unwrap();
        assert_eq!(block_on(copy.open().counts()).unwrap().values().sum::<u64>(), 1);
    }
}

#[test]
fn an_empty_log_without_a_file_becomes_a_world() {
    let database = TempDatabase::new();
    std::fs::write(database.path().with_file_name("world.db-wal"), "").unwrap();
    database.open();
}
