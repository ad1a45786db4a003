//! A worker that hears of one start asks for that run alone, and gets it only if it may have it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{LONG, Place, claim, commit, completed, join, new_start, request, start, step, until};
use outlast_core::ClaimedHistory;
use outlast_core::{
    Claimed, Event, RunId, SessionId, Start, Status, Then, Timestamp, Turn, TurnId, World, WorldError,
};
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
    let ClaimedHistory::Whole(history) = &claimed[0].history else { panic!("{claimed:?}") };
    assert_eq!(history.len(), 1, "it comes with its only turn");
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

/// A client that dies between its commit and its hint; then a start of somebody else is heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_hint_is_lost_is_found_within_seconds() {
    let place = Place::new(TestClock::new());
    let (worker, client) = worker_and_client(&place).await;
    let mut seen = epoch(&worker).await;
    let lost = RunId::from_bits(77);
    let mut events = String::new();
    Event::write_all(&[new_start(lost).event()], &mut events);
    let (schema, turn) = (&place.schema, TurnId::from_bits(77));
    let new_run = format!(
        r#"{{"run":"{lost}","turn":"{turn}","born":0,"rules":1,"workflow":"w","version":1,"format":1,"queue":"default","priority":0}}"#
    );
    let quiet = format!("SELECT {schema}.start_one_v2(NULL, '{new_run}', '{events}')");
    place.connect().await.batch_execute(&quiet).await.unwrap();
    let began = Instant::now();
    start(&client, RunId::from_bits(78)).await;
    let mut due = Timestamp::NEVER;
    let mut found = Vec::new();
    while !found.contains(&lost) {
        worker.changed(seen, due).await;
        let work = worker.claim(SESSION, request()).await.unwrap();
        found.extend(work.claimed.iter().map(|claimed| claimed.run));
        (seen, due) = (work.epoch, work.next_due.unwrap_or(Timestamp::NEVER));
    }
    assert!(began.elapsed() < Duration::from_secs(15), "found after {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_have_a_run_writes_nothing_and_does_not_look_again() {
    let place = Place::new(TestClock::new());
    let (worker, client) = worker_and_client(&place).await;
    let seen = epoch(&worker).await;
    let raw = place.connect().await;
    let lock = format!("SELECT xmax::text FROM {}.sessions", place.schema);
    let before: String = raw.query_one(&lock, &[]).await.unwrap().get(0);
    let elsewhere = Start { queue: "elsewhere".into(), ..new_start(RunId::from_bits(5)) };
    client.start(vec![elsewhere]).await.unwrap().remove(0).unwrap();
    worker.changed(seen, Timestamp::NEVER).await;
    let work = worker.claim(SESSION, request()).await.unwrap();
    let after: String = raw.query_one(&lock, &[]).await.unwrap().get(0);
    assert_eq!(before, after, "who locked the session's row last");
    let soon = worker.clock().now().plus(Duration::from_secs(1));
    assert!(work.next_due.is_none_or(|due| due > soon), "{:?}", work.next_due);
}

/// The claim of a run that had no turn does not wait for the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_claim_a_crash_forgot_is_claimed_again_and_only_its_new_holder_goes_on() {
    let mut server =
        throwaway::Postgres::builder().quick().setting("wal_writer_delay", "10s").start().unwrap();
    let place = Place::on(&server.url(), TestClock::new());
    let (worker, client) = worker_and_client(&place).await;
    let other = place.open_real().await;
    join(&other, OTHER, LONG).await;
    let run = RunId::from_bits(1);
    let seen = epoch(&worker).await;
    start(&client, run).await;
    let claimed = next(&worker, seen).await.remove(0);
    server.kill().unwrap();
    server.start().unwrap();
    until("the server answers", async || client.counts().await.is_ok()).await;
    let forgotten = client.run(run).await.unwrap().status == Status::Pending;
    let (holder, session) = if forgotten { (&other, OTHER) } else { (&worker, SESSION) };
    if forgotten {
        until("it is claimed again", async || {
            holder.claim(session, request()).await.is_ok_and(|work| !work.claimed.is_empty())
        })
        .await;
        let mut late = Err(WorldError::Unavailable(String::new()));
        while matches!(late, Err(WorldError::Unavailable(_))) {
            late = commit(&worker, SESSION, step(run, claimed.turn, 1, 100, Then::Hold)).await;
        }
        assert!(matches!(late, Err(WorldError::Fenced(_))), "{late:?}");
    }
    let end =
        Turn { events: vec![completed()], ..step(run, claimed.turn, 1, 200, Then::End(Status::Completed)) };
    until("it ends", async || commit(holder, session, end.clone()).await.is_ok()).await;
    let counts = client.counts().await.unwrap();
    assert_eq!(
        counts.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(),
        [(Status::Completed, 1)]
    );
}
