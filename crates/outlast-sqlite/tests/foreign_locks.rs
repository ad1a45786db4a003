//! A process that holds the write lock of the file: calls wait for a limited time, and their errors say for what.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{TempDatabase, block_on, new_start};
use outlast_core::{RunId, Started, World, WorldError};
use outlast_sqlite::{SqliteOptions, SqliteWorld};
use rusqlite::Connection;

fn open(database: &TempDatabase, timeout: Duration) -> SqliteWorld {
    let options = SqliteOptions::new(Arc::new(database.clock.clone())).lock_timeout(timeout);
    SqliteWorld::open(database.path().to_str().unwrap(), options).unwrap()
}

fn start(world: &SqliteWorld, run: u128) -> Result<Started, WorldError> {
    block_on(world.start(vec![new_start(RunId::from_bits(run))])).unwrap().remove(0)
}

#[test]
fn a_call_gives_up_after_the_timeout_and_names_the_holder_and_the_file() {
    let database = TempDatabase::new();
    let world = open(&database, Duration::from_millis(100));
    let other = Connection::open(database.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for run in 1..=2 {
        let error = start(&world, run).unwrap_err();
        let WorldError::Unavailable(text) = &error else { panic!("{error:?}") };
        let holder = if cfg!(target_os = "linux") && std::fs::exists("/proc/locks").unwrap() {
            "another connection of this process has held the write lock of `"
        } else {
            "another process has held the write lock of `"
        };
        assert!(text.starts_with(holder), "{text}");
        assert!(text.contains("world.db` for ") && text.contains("raise `timeout` in the URL"), "{text}");
    }
    // Reads do not wait for it.
    assert_eq!(block_on(world.counts()).unwrap().values().sum::<u64>(), 0);
    other.execute_batch("ROLLBACK").unwrap();
    start(&world, 1).unwrap();
    start(&world, 2).unwrap();
}

#[test]
fn a_call_within_the_timeout_waits() {
    let database = TempDatabase::new();
    let world = open(&database, Duration::from_secs(60));
    let other = Connection::open(database.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = std::thread::spawn(move || start(&world, 1));
    other.execute_batch("COMMIT").unwrap();
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_request_that_was_queued_later_waits_longer() {
    let database = TempDatabase::new();
    let world = Arc::new(open(&database, Duration::from_secs(2)));
    let other = Connection::open(database.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let start_in_thread = |run| {
        let world = world.clone();
        std::thread::spawn(move || start(&world, run))
    };
    let first = start_in_thread(1);
    // The other two are queued while the writer waits for the first one, and are in one batch afterwards.
    std::thread::park_timeout(Duration::from_millis(700));
    let second = start_in_thread(2);
    std::thread::park_timeout(Duration::from_millis(700));
    let third = start_in_thread(3);
    assert!(matches!(first.join().unwrap(), Err(WorldError::Unavailable(_))));
    assert!(matches!(second.join().unwrap(), Err(WorldError::Unavailable(_))));
    other.execute_batch("COMMIT").unwrap();
    third.join().unwrap().unwrap();
}
