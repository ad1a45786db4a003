//! Claim hints: a worker that is notified of one start claims only that run, and gets it only if it may have it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{
    NO_EXPIRY, TestSchema, claim, commit, completed, join, new_start, one_event_turn, request, start,
    wait_until,
};
use outlast_core::ClaimedHistory;
use outlast_core::{
    Claimed, Event, RunId, SessionId, Start, Status, Then, Timestamp, Turn, TurnId, World, WorldError,
};
use outlast_postgres::PostgresWorld;
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);
const OTHER: SessionId = SessionId::from_bits(2);

/// Two worlds of one schema: a worker whose last claim was a full one, and a client.
async fn worker_and_client(test_schema: &TestSchema) -> (PostgresWorld, PostgresWorld) {
    let (worker, client) = (test_schema.open_real_time().await, test_schema.open_real_time().await);
    join(&worker, SESSION, NO_EXPIRY).await;
    assert!(claim(&worker, SESSION).await.is_empty());
    (worker, client)
}

/// The runs that the worker claims after the next change.
async fn claim_after_change(worker: &PostgresWorld, epoch: u64) -> Vec<Claimed> {
    let changed = worker.changed(epoch, Timestamp::NEVER);
    tokio::time::timeout(Duration::from_secs(10), changed).await.expect("the worker is notified");
    claim(worker, SESSION).await
}

async fn epoch(worker: &PostgresWorld) -> u64 {
    worker.claim(SESSION, request()).await.unwrap().epoch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_the_worker_may_not_have_is_not_claimed() {
    let test_schema = TestSchema::new(TestClock::new());
    let (worker, client) = worker_and_client(&test_schema).await;
    let template = new_start(RunId::from_bits(0));
    let cases = [
        ("workflow", Start { workflow: "x".into(), ..template.clone() }),
        ("version", Start { version: 2, ..template.clone() }),
        ("queue", Start { queue: "elsewhere".into(), ..template }),
    ];
    for (number, (case, start)) in (100..).zip(cases) {
        let (run, turn) = (RunId::from_bits(number), TurnId::from_bits(number));
        let epoch_before = epoch(&worker).await;
        client.start(vec![Start { run, turn, ..start }]).await.unwrap().remove(0).unwrap();
        assert!(claim_after_change(&worker, epoch_before).await.is_empty(), "another {case}");
    }
    let epoch_before = epoch(&worker).await;
    start(&client, RunId::from_bits(1)).await;
    let claimed = claim_after_change(&worker, epoch_before).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.run).collect::<Vec<_>>(), [RunId::from_bits(1)]);
    let ClaimedHistory::Whole(history) = &claimed[0].history else { panic!("{claimed:?}") };
    assert_eq!(history.len(), 1, "the claim contains its only turn");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_workers_that_are_notified_of_a_start_gets_the_run() {
    let test_schema = TestSchema::new(TestClock::new());
    let (worker, client) = worker_and_client(&test_schema).await;
    let other = test_schema.open_real_time().await;
    join(&other, OTHER, NO_EXPIRY).await;
    for number in 1..=20 {
        let run = RunId::from_bits(number);
        let epoch_before = (epoch(&worker).await, other.claim(OTHER, request()).await.unwrap().epoch);
        start(&client, run).await;
        worker.changed(epoch_before.0, Timestamp::NEVER).await;
        other.changed(epoch_before.1, Timestamp::NEVER).await;
        let (claimed, other_claimed) = tokio::join!(claim(&worker, SESSION), claim(&other, OTHER));
        let mut claimed_runs = claimed.len() + other_claimed.len();
        wait_until("one of them has it", async || {
            claimed_runs += claim(&worker, SESSION).await.len() + claim(&other, OTHER).await.len();
            claimed_runs > 0
        })
        .await;
        assert_eq!(claimed_runs, 1, "run {run}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_another_transaction_has_locked_is_claimed_again_soon() {
    let test_schema = TestSchema::new(TestClock::new());
    let (worker, client) = worker_and_client(&test_schema).await;
    let epoch_before = epoch(&worker).await;
    let (run, mut locker) = (RunId::from_bits(1), test_schema.connect().await);
    start(&client, run).await;
    let transaction = locker.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM {}.runs WHERE id = $1 FOR NO KEY UPDATE", test_schema.schema);
    transaction.query_one(&lock, &[&run.to_string()]).await.unwrap();
    worker.changed(epoch_before, Timestamp::NEVER).await;
    let work = worker.claim(SESSION, request()).await.unwrap();
    assert!(work.claimed.is_empty());
    let now = worker.clock().now();
    assert!(work.next_due.is_some_and(|due| due < now.plus(Duration::from_secs(1))), "{:?}", work.next_due);
    transaction.rollback().await.unwrap();
    wait_until("it is claimed", async || !claim(&worker, SESSION).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_notified_of_one_start_does_not_miss_others() {
    let test_schema = TestSchema::new(TestClock::new());
    let (worker, client) = worker_and_client(&test_schema).await;
    let mut claimed_runs = 0;
    for round in 0..20_u128 {
        let epoch_before = epoch(&worker).await;
        // All in one call, or one or two in calls of their own.
        let starts: Vec<_> =
            (0..3).map(|number| new_start(RunId::from_bits(1 + round * 3 + number))).collect();
        let (alone, together) = starts.split_at((round % 3) as usize);
        for start in alone {
            client.start(vec![start.clone()]).await.unwrap().remove(0).unwrap();
        }
        client.start(together.to_vec()).await.unwrap();
        worker.changed(epoch_before, Timestamp::NEVER).await;
        wait_until("all are claimed", async || {
            let work = worker.claim(SESSION, request()).await.unwrap();
            claimed_runs += work.claimed.len();
            if claimed_runs < (round as usize + 1) * 3 {
                worker.changed(work.epoch, work.next_due.unwrap_or(Timestamp::NEVER)).await;
            }
            claimed_runs == (round as usize + 1) * 3
        })
        .await;
    }
}

/// A client dies after its commit and before its notification; then another start is notified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_notification_is_lost_is_found_within_seconds() {
    let test_schema = TestSchema::new(TestClock::new());
    let (worker, client) = worker_and_client(&test_schema).await;
    let mut epoch_before = epoch(&worker).await;
    let lost = RunId::from_bits(77);
    let mut events = String::new();
    Event::write_all(&[new_start(lost).event()], &mut events);
    let (schema, turn) = (&test_schema.schema, TurnId::from_bits(77));
    let new_run = format!(
        r#"{{"run":"{lost}","turn":"{turn}","born":0,"rules":1,"workflow":"w","version":1,"format":1,"queue":"default","priority":0}}"#
    );
    let start_without_notification = format!("SELECT {schema}.start_one_v3(NULL, '{new_run}', '{events}')");
    test_schema.connect().await.batch_execute(&start_without_notification).await.unwrap();
    let started_at = Instant::now();
    start(&client, RunId::from_bits(78)).await;
    let mut due = Timestamp::NEVER;
    let mut found = Vec::new();
    while !found.contains(&lost) {
        worker.changed(epoch_before, due).await;
        let work = worker.claim(SESSION, request()).await.unwrap();
        found.extend(work.claimed.iter().map(|claimed| claimed.run));
        (epoch_before, due) = (work.epoch, work.next_due.unwrap_or(Timestamp::NEVER));
    }
    assert!(started_at.elapsed() < Duration::from_secs(15), "found after {:?}", started_at.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_may_not_have_a_run_writes_nothing_and_does_not_try_again() {
    let test_schema = TestSchema::new(TestClock::new());
    let (worker, client) = worker_and_client(&test_schema).await;
    let epoch_before = epoch(&worker).await;
    let raw = test_schema.connect().await;
    let lock = format!("SELECT xmax::text FROM {}.sessions", test_schema.schema);
    let before: String = raw.query_one(&lock, &[]).await.unwrap().get(0);
    let elsewhere = Start { queue: "elsewhere".into(), ..new_start(RunId::from_bits(5)) };
    client.start(vec![elsewhere]).await.unwrap().remove(0).unwrap();
    worker.changed(epoch_before, Timestamp::NEVER).await;
    let work = worker.claim(SESSION, request()).await.unwrap();
    let after: String = raw.query_one(&lock, &[]).await.unwrap().get(0);
    assert_eq!(before, after, "the claim has not locked the session's row");
    let soon = worker.clock().now().plus(Duration::from_secs(1));
    assert!(work.next_due.is_none_or(|due| due > soon), "{:?}", work.next_due);
}

/// The claim of a new run does not wait for the disk, so a crash of the server may undo it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_claim_a_crash_undid_is_claimed_again_and_only_its_new_holder_can_commit() {
    let mut server =
        throwaway::Postgres::builder().quick().setting("wal_writer_delay", "10s").start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    let (worker, client) = worker_and_client(&test_schema).await;
    let other = test_schema.open_real_time().await;
    join(&other, OTHER, NO_EXPIRY).await;
    let run = RunId::from_bits(1);
    let epoch_before = epoch(&worker).await;
    start(&client, run).await;
    let claimed = claim_after_change(&worker, epoch_before).await.remove(0);
    server.kill().unwrap();
    server.start().unwrap();
    wait_until("the server answers", async || client.counts().await.is_ok()).await;
    let is_claim_undone = client.run(run).await.unwrap().status == Status::Pending;
    let (holder, session) = if is_claim_undone { (&other, OTHER) } else { (&worker, SESSION) };
    if is_claim_undone {
        wait_until("it is claimed again", async || {
            holder.claim(session, request()).await.is_ok_and(|work| !work.claimed.is_empty())
        })
        .await;
        let mut answer = Err(WorldError::unavailable(""));
        while matches!(answer, Err(WorldError::Unavailable(_))) {
            answer = commit(&worker, SESSION, one_event_turn(run, claimed.turn, 1, 100, Then::Hold)).await;
        }
        assert!(matches!(answer, Err(WorldError::Fenced(_))), "{answer:?}");
    }
    let end = Turn {
        events: vec![completed()],
        ..one_event_turn(run, claimed.turn, 1, 200, Then::End(Status::Completed))
    };
    wait_until("the run ends", async || commit(holder, session, end.clone()).await.is_ok()).await;
    let counts = client.counts().await.unwrap();
    assert_eq!(
        counts.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(),
        [(Status::Completed, 1)]
    );
}
