//! A worker that hears of one start asks for that run alone, and gets it only if it may have it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::Duration;

use common::{LONG, Place, claim, join, new_start, request, start, until};
use outlast_core::{Claimed, RunId, SessionId, Start, Timestamp, TurnId, World};
use outlast_postgres::PostgresWorld;
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);
const OTHER: SessionId = SessionId::from_bits(2);

/// Two worlds of one place: a worker that has seen everything, and a client.
async fn worker_and_client(place: &Place) -> (PostgresWorld, PostgresWorld) {
    let (worker, client) = (place.open_real().await, place.open_real().await);
    join(&worker, SESSION, LONG).await;
    assert!(claim(&worker, SESSION).await.is_empty());
    (worker, client)
}

/// What the worker is given when it next hears of something, within a second.
async fn next(worker: &PostgresWorld, epoch: u64) -> Vec<Claimed> {
    let heard = worker.changed(epoch, Timestamp::NEVER);
    tokio::time::timeout(Duration::from_secs(10), heard).await.expect("it hears of it");
    claim(worker, SESSION).await
}

async fn epoch(worker: &PostgresWorld) -> u64 {
    worker.claim(SESSION, request()).await.unwrap().epoch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_the_worker_may_not_have_is_left_alone() {
    let place = Place::new(TestClock::new());
    let (worker, client) = worker_and_client(&place).await;
    let mine = new_start(RunId::from_bits(0));
    let cases = [
        ("workflow", Start { workflow: "x".into(), ..mine.clone() }),
        ("version", Start { version: 2, ..mine.clone() }),
        ("queue", Start { queue: "elsewhere".into(), ..mine }),
    ];
    for (number, (case, start)) in (100..).zip(cases) {
        let (run, turn) = (RunId::from_bits(number), TurnId::from_bits(number));
        let seen = epoch(&worker).await;
        client.start(vec![Start { run, turn, ..start }]).await.unwrap().remove(0).unwrap();
        assert!(next(&worker, seen).await.is_empty(), "another {case}");
    }
    let seen = epoch(&worker).await;
    start(&client, RunId::from_bits(1)).await;
    let claimed = next(&worker, seen).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.run).collect::<Vec<_>>(), [RunId::from_bits(1)]);
    assert_eq!(claimed[0].history.as_ref().unwrap().len(), 1, "it comes with its only turn");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_workers_that_hear_of_a_start_gets_the_run() {
    let place = Place::new(TestClock::new());
    let (worker, client) = worker_and_client(&place).await;
    let other = place.open_real().await;
    join(&other, OTHER, LONG).await;
    for number in 1..=20 {
        let run = RunId::from_bits(number);
        let seen = (epoch(&worker).await, other.claim(OTHER, request()).await.unwrap().epoch);
        start(&client, run).await;
        worker.changed(seen.0, Timestamp::NEVER).await;
        other.changed(seen.1, Timestamp::NEVER).await;
        let (mine, theirs) = tokio::join!(claim(&worker, SESSION), claim(&other, OTHER));
        let mut given = mine.len() + theirs.len();
        until("somebody has it", async || {
            given += claim(&worker, SESSION).await.len() + claim(&other, OTHER).await.len();
            given > 0
        })
        .await;
        assert_eq!(given, 1, "run {run}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_somebody_has_locked_is_looked_for_again_soon() {
    let place = Place::new(TestClock::new());
    let (worker, client) = worker_and_client(&place).await;
    let seen = epoch(&worker).await;
    let (run, mut locker) = (RunId::from_bits(1), place.connect().await);
    start(&client, run).await;
    let transaction = locker.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM {}.runs WHERE id = $1 FOR NO KEY UPDATE", place.schema);
    transaction.query_one(&lock, &[&run.to_string()]).await.unwrap();
    worker.changed(seen, Timestamp::NEVER).await;
    let work = worker.claim(SESSION, request()).await.unwrap();
    assert!(work.claimed.is_empty());
    let now = worker.clock().now();
    assert!(work.next_due.is_some_and(|due| due < now.plus(Duration::from_secs(1))), "{:?}", work.next_due);
    transaction.rollback().await.unwrap();
    until("it is claimed", async || !claim(&worker, SESSION).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_told_of_one_run_does_not_miss_others() {
    let place = Place::new(TestClock::new());
    let (worker, client) = worker_and_client(&place).await;
    let mut given = 0;
    for round in 0..20_u128 {
        let seen = epoch(&worker).await;
        // One alone, one by one, and all at once.
        let starts: Vec<_> =
            (0..3).map(|number| new_start(RunId::from_bits(1 + round * 3 + number))).collect();
        let (alone, together) = starts.split_at((round % 3) as usize);
        for start in alone {
            client.start(vec![start.clone()]).await.unwrap().remove(0).unwrap();
        }
        client.start(together.to_vec()).await.unwrap();
        worker.changed(seen, Timestamp::NEVER).await;
        until("all are claimed", async || {
            let work = worker.claim(SESSION, request()).await.unwrap();
            given += work.claimed.len();
            if given < (round as usize + 1) * 3 {
                worker.changed(work.epoch, work.next_due.unwrap_or(Timestamp::NEVER)).await;
            }
            given == (round as usize + 1) * 3
        })
        .await;
    }
}
