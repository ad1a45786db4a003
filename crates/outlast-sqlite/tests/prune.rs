//! Pruning long histories: they are deleted in several transactions, and the next call completes an interrupted one.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use common::{TempDatabase, block_on, new_start};
use outlast_core::{RunId, World, WorldError};
use outlast_sqlite::SqliteWorld;
use rusqlite::Connection;

/// The number of turns of a run with the largest history, if it executed one step at a time.
const TURNS: i64 = 50_000;

fn rows(connection: &Connection, table: &str) -> i64 {
    connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// A world with a run that has ended and has a long history, and a run that has not ended.
fn long_history(database: &TempDatabase) -> (SqliteWorld, Connection, RunId) {
    let world = database.open();
    let (long, short) = (RunId::from_bits(1), RunId::from_bits(2));
    for started in block_on(world.start(vec![new_start(long), new_start(short)])).unwrap() {
        started.unwrap();
    }
    let connection = Connection::open(database.path()).unwrap();
    let end = "UPDATE runs SET status = 'completed', ended_at = 1, ready_at = NULL WHERE id = ?1";
    connection.execute(end, [long.to_string()]).unwrap();
    connection.execute_batch("UPDATE counts SET n = 1; INSERT INTO counts VALUES ('completed', 1)").unwrap();
    let turns = "INSERT INTO turns (run, seq, id, at, build, events) \
                 SELECT ?1, value * 2 - 1, 'turn_', 0, '', '[{\"kind\":\"step_dropped\",\"op\":1}]' \
                 FROM generate_series(1, ?2)";
    let series = "WITH RECURSIVE generate_series(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM \
                  generate_series WHERE value < ?2)";
    let turns = format!("{series} {}", turns.replace("generate_series(1, ?2)", "generate_series"));
    connection.execute(&turns, rusqlite::params![long.to_string(), TURNS]).unwrap();
    database.clock.advance("1h");
    (world, connection, long)
}

#[test]
fn a_long_history_is_deleted_completely() {
    let database = TempDatabase::new();
    let (world, connection, long) = long_history(&database);
    let pruned = block_on(world.prune(database.clock.now(), None, 10)).unwrap();
    assert_eq!((pruned.runs, pruned.next), (1, None));
    assert!(matches!(block_on(world.run(long)), Err(WorldError::NotFound(_))));
    assert_eq!((rows(&connection, "turns"), rows(&connection, "leftovers")), (1, 0));
    assert_eq!(block_on(world.counts()).unwrap().values().sum::<u64>(), 1);
}

#[test]
fn the_next_call_completes_a_call_that_was_dropped() {
    let database = TempDatabase::new();
    let (world, connection, long) = long_history(&database);
    {
        let mut prune = pin!(world.prune(database.clock.now(), None, 10));
        let mut cx = Context::from_waker(Waker::noop());
        // Poll until the row of the run is deleted, then drop the call: the history is too long for one transaction.
        while rows(&connection, "runs") == 2 {
            assert!(matches!(prune.as_mut().poll(&mut cx), Poll::Pending));
            std::thread::yield_now();
        }
    }
    assert!(matches!(block_on(world.run(long)), Err(WorldError::NotFound(_))));
    assert!(rows(&connection, "turns") > 1);
    assert_eq!(rows(&connection, "leftovers"), 1);
    let pruned = block_on(world.prune(database.clock.now(), None, 10)).unwrap();
    assert_eq!((pruned.runs, pruned.next), (0, None));
    assert_eq!((rows(&connection, "turns"), rows(&connection, "leftovers")), (1, 0));
}
