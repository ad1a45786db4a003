//! Notifications: other processes learn of a change immediately, not by their next poll.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{
    NO_EXPIRY, TestSchema, claim, commit, completed, join, new_start, one_event_turn, request, start,
    wait_until,
};
use outlast_core::{ClaimRequest, RunId, SessionId, Status, Then, Timestamp, World};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);

/// Ends are polled every two seconds, and work every twenty. Without notifications, this number of rounds would take
/// far longer than the time limit.
const ROUNDS: u128 = 20;
const TIME_LIMIT: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_is_notified_although_its_process_closes_the_world_immediately() {
    let test_schema = TestSchema::new(TestClock::new());
    let worker = test_schema.open_real_time().await;
    join(&worker, SESSION, NO_EXPIRY).await;
    let started_at = Instant::now();
    for run in 1..=ROUNDS {
        let epoch = worker.claim(SESSION, request()).await.unwrap().epoch;
        let client = test_schema.open_real_time().await;
        start(&client, RunId::from_bits(run)).await;
        drop(client);
        worker.changed(epoch, Timestamp::NEVER).await;
        wait_until("claimed", async || !claim(&worker, SESSION).await.is_empty()).await;
    }
    assert!(started_at.elapsed() < TIME_LIMIT, "{:?}", started_at.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_is_notified_to_waiters_that_register_before_and_after_it() {
    let test_schema = TestSchema::new(TestClock::new());
    let (client, worker) = (test_schema.open_real_time().await, test_schema.open_real_time().await);
    join(&worker, SESSION, NO_EXPIRY).await;
    let started_at = Instant::now();
    for round in 1..=ROUNDS {
        let run = RunId::from_bits(round);
        start(&client, run).await;
        let mut claimed = Vec::new();
        wait_until("claimed", async || {
            claimed = claim(&worker, SESSION).await;
            !claimed.is_empty()
        })
        .await;
        let mut end = one_event_turn(run, claimed[0].turn, 1, 1_000 + round, Then::End(Status::Completed));
        end.events = vec![completed()];
        let wait = client.ended(run, Timestamp::NEVER);
        if round % 2 == 0 {
            let (ended, done) = tokio::join!(wait, commit(&worker, SESSION, end));
            done.unwrap();
            assert_eq!(ended.unwrap().unwrap().run, run);
        } else {
            commit(&worker, SESSION, end).await.unwrap();
            // The notification arrives before or after the waiter registers.
            tokio::time::sleep(Duration::from_micros(100) * round as u32).await;
            assert_eq!(wait.await.unwrap().unwrap().run, run);
        }
    }
    assert!(started_at.elapsed() < TIME_LIMIT, "{:?}", started_at.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_just_opened_its_world_learns_of_an_end() {
    let test_schema = TestSchema::new(TestClock::new());
    let worker = test_schema.open_real_time().await;
    join(&worker, SESSION, NO_EXPIRY).await;
    let mut late = 0;
    for run in (1..=2 * ROUNDS).map(RunId::from_bits) {
        let client = test_schema.open_real_time().await;
        start(&client, run).await;
        let work = async {
            let mut claimed = Vec::new();
            wait_until("claimed", async || {
                claimed = claim(&worker, SESSION).await;
                !claimed.is_empty()
            })
            .await;
            let mut end =
                one_event_turn(run, claimed[0].turn, 1, 1_000 + run.bits(), Then::End(Status::Completed));
            end.events = vec![completed()];
            commit(&worker, SESSION, end).await.unwrap();
            Instant::now()
        };
        let (ended, done) = tokio::join!(client.ended(run, Timestamp::NEVER), work);
        assert_eq!(ended.unwrap().unwrap().run, run);
        late += u32::from(done.elapsed() > Duration::from_millis(1_200));
    }
    // If the listener did not poll once after `LISTEN`, a third of them would wait for the slow poll.
    assert!(late <= 3, "{late} waited for the poll");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_an_empty_build_name_claims_runs() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open_real_time().await;
    join(&world, SESSION, NO_EXPIRY).await;
    start(&world, RunId::from_bits(1)).await;
    let work = world.claim(SESSION, ClaimRequest { build: "".into(), ..request() }).await.unwrap();
    assert_eq!(work.claimed.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_repeated_after_the_end_does_not_wait_for_a_notification() {
    let test_schema = TestSchema::new(TestClock::new());
    // A world with a virtual clock sends no notifications.
    let (worker, client) = (test_schema.open().await, test_schema.open_real_time().await);
    join(&worker, SESSION, NO_EXPIRY).await;
    let started_at = Instant::now();
    for round in 1..=ROUNDS {
        let run = RunId::from_bits(round);
        start(&worker, run).await;
        let claimed = claim(&worker, SESSION).await;
        let mut end = one_event_turn(run, claimed[0].turn, 1, 1_000 + round, Then::End(Status::Completed));
        end.events = vec![completed()];
        commit(&worker, SESSION, end).await.unwrap();
        // In every second round together with a new run.
        let mut starts = vec![new_start(run)];
        if round % 2 == 0 {
            starts.push(new_start(RunId::from_bits(1_000 + round)));
        }
        let answers = client.start(starts).await.unwrap();
        assert!(
            answers.into_iter().all(|answer| answer.unwrap().is_new),
            "a repeated start has the same answer"
        );
        if round % 2 == 0 {
            wait_until("the other is claimed", async || !claim(&worker, SESSION).await.is_empty()).await;
        }
        assert_eq!(client.ended(run, Timestamp::NEVER).await.unwrap().unwrap().run, run);
    }
    assert!(started_at.elapsed() < TIME_LIMIT, "{:?}", started_at.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_that_is_closed_while_its_listener_connection_is_lost_sends_its_notifications() {
    let server = throwaway::Postgres::builder().quick().start().unwrap();
    let admin = TestSchema::on(&server.url(), TestClock::new()).connect().await;
    admin.batch_execute("CREATE DATABASE shop").await.unwrap();
    let (base, _) =
        server.url().rsplit_once('/').map(|(base, rest)| (base.to_owned(), rest.to_owned())).unwrap();
    let test_schema = TestSchema::on(&format!("{base}/shop"), TestClock::new());
    let worker = test_schema.open_real_time().await;
    let started_at = Instant::now();
    join(&worker, SESSION, NO_EXPIRY).await;
    let url = format!("{}&application_name=client", test_schema.url());
    let client = PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap();
    // The client has connections in its pool, and cannot make new ones later.
    let epoch = worker.claim(SESSION, request()).await.unwrap().epoch;
    start(&client, RunId::from_bits(1)).await;
    worker.changed(epoch, Timestamp::NEVER).await;
    wait_until("claimed", async || !claim(&worker, SESSION).await.is_empty()).await;
    let epoch = worker.claim(SESSION, request()).await.unwrap().epoch;
    admin.batch_execute("ALTER DATABASE shop ALLOW_CONNECTIONS false").await.unwrap();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'client' AND (query LIKE '%LISTEN%' OR query LIKE 'NOTIFY%')";
    assert_eq!(admin.query_one(cut, &[]).await.unwrap().get::<_, i64>(0), 1);
    wait_until("the connection is lost", async || {
        admin.query_one(cut, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    start(&client, RunId::from_bits(2)).await;
    drop(client);
    worker.changed(epoch, Timestamp::NEVER).await;
    assert!(started_at.elapsed() < TIME_LIMIT, "{:?}", started_at.elapsed());
    assert_eq!(claim(&worker, SESSION).await.len(), 1);
}

/// More notifications than the listener keeps while it is busy.
const TOO_MANY: i32 = 3_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_receives_more_notifications_than_it_keeps_looks_for_all_work() {
    let test_schema = TestSchema::new(TestClock::new());
    let (schema, admin) = (&test_schema.schema, test_schema.connect().await);
    let url = format!("{}&application_name={schema}", test_schema.url());
    let worker = Arc::new(PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap());
    let channel_of = "SELECT substring(query from '(outlast_[0-9a-f]{16})') FROM pg_stat_activity \
                      WHERE application_name = $1 AND query ~ 'LISTEN outlast_'";
    let mut channel = None;
    wait_until("it listens", async || {
        let row = admin.query_opt(channel_of, &[schema]).await.unwrap();
        channel = row.map(|row| row.get::<_, String>(0));
        channel.is_some()
    })
    .await;
    join(&worker, SESSION, NO_EXPIRY).await;
    start(&worker, RunId::from_bits(1)).await;
    assert_eq!(claim(&worker, SESSION).await.len(), 1);
    let waiting = worker.clone();
    tokio::spawn(async move { waiting.ended(RunId::from_bits(1), Timestamp::NEVER).await });
    let epoch = worker.claim(SESSION, request()).await.unwrap().epoch;

    // The listener is busy: it polls for the awaited end, and waits for a lock.
    let locker = test_schema.connect().await;
    locker.batch_execute(&format!("BEGIN; LOCK TABLE {schema}.turns")).await.unwrap();
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'";
    wait_until("it waits", async || admin.query_one(waits, &[schema]).await.unwrap().get::<_, i64>(0) > 0)
        .await;
    // All of these are different: equal ones of one transaction would be merged.
    let notify = "SELECT count(pg_notify($1, 'f - x' || n)) FROM generate_series(1, $2) AS n";
    admin.query_one(notify, &[&channel, &TOO_MANY]).await.unwrap();
    admin.execute("SELECT pg_notify($1, 'f w')", &[&channel]).await.unwrap();
    // Its connection receives them meanwhile.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (changed, started_at) = (worker.changed(epoch, Timestamp::NEVER), Instant::now());
    locker.batch_execute("COMMIT").await.unwrap();
    changed.await;
    // Work is polled every twenty seconds.
    assert!(started_at.elapsed() < Duration::from_secs(8), "{:?}", started_at.elapsed());
}
