//! What cannot be opened or reached: an error that names it, says what to do, and keeps secrets.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{Place, new_start};
use outlast_core::{RunId, World, WorldError};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

async fn refusal(url: &str) -> WorldError {
    PostgresWorld::open(url, PostgresOptions::new()).await.unwrap_err()
}

#[tokio::test]
async fn what_will_not_mend_itself_is_said_at_once() {
    let place = Place::new(TestClock::new());
    let (server, _) =
        place.url().split_once('?').map(|(base, rest)| (base.to_owned(), rest.to_owned())).unwrap();
    let (base, _) = server.rsplit_once('/').unwrap();
    let missing = refusal(&format!("{base}/no_such_database")).await;
    assert!(matches!(&missing, WorldError::Invalid(why) if why.contains("no such database")), "{missing}");
    let unknown = refusal("postgres://a:secret@no-such-host.invalid/b").await;
    assert!(matches!(&unknown, WorldError::Invalid(why) if why.contains("not known")), "{unknown}");
    assert!(!unknown.to_string().contains("secret"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_waited_for_and_then_named() {
    let mut server = throwaway::Postgres::builder().quick().start().unwrap();
    let url = server.url();
    server.stop().unwrap();
    let refused = refusal(&url).await;
    assert!(
        matches!(&refused, WorldError::Unavailable(why) if why.contains("start the server")),
        "{refused}"
    );
    let opening =
        tokio::spawn(async move { PostgresWorld::open(&url, PostgresOptions::new()).await.map(drop) });
    server.start().unwrap();
    opening.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_goes_on_by_itself_after_a_crash_of_the_server() {
    let mut server = throwaway::Postgres::builder().quick().start().unwrap();
    let place = Place::on(&server.url(), TestClock::new());
    let world = place.open_real().await;
    common::start(&world, RunId::from_bits(1)).await;
    server.kill().unwrap();
    // What still runs of the server may answer for a moment.
    common::until("it is lost", async || match world.counts().await {
        Ok(_) => false,
        Err(WorldError::Unavailable(_)) => true,
        Err(error) => panic!("{error}"),
    })
    .await;
    server.start().unwrap();
    common::until("it answers", async || world.start(vec![new_start(RunId::from_bits(2))]).await.is_ok())
        .await;
    assert_eq!(world.counts().await.unwrap().values().sum::<u64>(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_frozen_is_not_waited_for_for_ever() {
    let server = throwaway::Postgres::builder().quick().start().unwrap();
    let place = Place::on(&server.url(), TestClock::new());
    let url = format!("{}&timeout=1", place.url());
    let world = PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap();
    // A lock that nobody gives up stands for a server that does not answer.
    let other = place.connect().await;
    other.batch_execute(&format!("BEGIN; LOCK TABLE {}.runs", place.schema)).await.unwrap();
    let began = Instant::now();
    let late = world.start(vec![new_start(RunId::from_bits(1))]).await;
    assert!(matches!(late, Err(WorldError::Unavailable(_))), "{late:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    other.batch_execute("ROLLBACK").await.unwrap();
    common::start(&world, RunId::from_bits(1)).await;
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused_alone() {
    let place = Place::new(TestClock::new());
    let world = place.open().await;
    let mut bad = new_start(RunId::from_bits(2));
    // Text that is no JSON: nobody but a faulty program makes such a payload.
    bad.input = outlast_core::Payload::from_json_text("\0");
    let starts = vec![new_start(RunId::from_bits(1)), bad, new_start(RunId::from_bits(3))];
    let answers = world.start(starts).await.unwrap();
    assert!(matches!(answers[1], Err(WorldError::Invalid(_))), "{answers:?}");
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
}
