//! A server or database that cannot be reached or opened: the error names it and the remedy, and contains no password.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{TestSchema, new_start};
use outlast_core::{RunId, World, WorldError};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

async fn open_error(url: &str) -> WorldError {
    PostgresWorld::open(url, PostgresOptions::new()).await.unwrap_err()
}

#[tokio::test]
async fn an_error_that_does_not_pass_is_returned_immediately() {
    let test_schema = TestSchema::new(TestClock::new());
    let (server, _) =
        test_schema.url().split_once('?').map(|(base, rest)| (base.to_owned(), rest.to_owned())).unwrap();
    let (base, _) = server.rsplit_once('/').unwrap();
    let missing = open_error(&format!("{base}/no_such_database")).await;
    assert!(matches!(&missing, WorldError::Invalid(why) if why.contains("does not exist")), "{missing}");
    let unknown = open_error("postgres://a:secret@no-such-host.invalid/b").await;
    assert!(matches!(&unknown, WorldError::Invalid(why) if why.contains("is unknown")), "{unknown}");
    assert!(!unknown.to_string().contains("secret"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_waits_for_a_server_that_is_down_and_then_names_it() {
    let mut server = throwaway::Postgres::builder().quick().start().unwrap();
    let url = server.url();
    server.stop().unwrap();
    let error = open_error(&url).await;
    assert!(matches!(&error, WorldError::Unavailable(why) if why.contains("start the server")), "{error}");
    let opening =
        tokio::spawn(async move { PostgresWorld::open(&url, PostgresOptions::new()).await.map(drop) });
    server.start().unwrap();
    opening.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_continues_after_a_crash_of_the_server() {
    let mut server = throwaway::Postgres::builder().quick().start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    let world = test_schema.open_real_time().await;
    common::start(&world, RunId::from_bits(1)).await;
    server.kill().unwrap();
    // Processes of the server may still respond for a moment.
    common::wait_until("the server is lost", async || match world.counts().await {
        Ok(_) => false,
        Err(WorldError::Unavailable(_)) => true,
        Err(error) => panic!("{error}"),
    })
    .await;
    server.start().unwrap();
    common::wait_until("the server responds", async || {
        world.start(vec![new_start(RunId::from_bits(2))]).await.is_ok()
    })
    .await;
    assert_eq!(world.counts().await.unwrap().values().sum::<u64>(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_to_a_server_that_does_not_respond_has_a_timeout() {
    let server = throwaway::Postgres::builder().quick().start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    let url = format!("{}&timeout=1", test_schema.url());
    let world = PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap();
    // A lock that is not released stands for a server that does not respond.
    let other = test_schema.connect().await;
    other.batch_execute(&format!("BEGIN; LOCK TABLE {}.runs", test_schema.schema)).await.unwrap();
    let started_at = Instant::now();
    let late = world.start(vec![new_start(RunId::from_bits(1))]).await;
    assert!(matches!(late, Err(WorldError::Unavailable(_))), "{late:?}");
    assert!(started_at.elapsed() < Duration::from_secs(20), "{:?}", started_at.elapsed());
    other.batch_execute("ROLLBACK").await.unwrap();
    common::start(&world, RunId::from_bits(1)).await;
}

#[tokio::test]
async fn a_start_that_cannot_be_stored_is_refused_alone() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open().await;
    let mut bad = new_start(RunId::from_bits(2));
    // Text that is not JSON: only a faulty program creates such a payload.
    bad.input = outlast_core::Payload::from_json_text("\0");
    let starts = vec![new_start(RunId::from_bits(1)), bad, new_start(RunId::from_bits(3))];
    let answers = world.start(starts).await.unwrap();
    assert!(matches!(answers[1], Err(WorldError::Invalid(_))), "{answers:?}");
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
}
