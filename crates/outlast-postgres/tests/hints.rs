//! Hints: what one process does is heard by the others at once, not when they look the next time.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{LONG, Place, claim, commit, completed, join, new_start, request, start, step, until};
use outlast_core::{ClaimRequest, RunId, SessionId, Status, Then, Timestamp, World};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);

/// Looks for what nobody says come every two seconds for ends, and every twenty for work: so many rounds would
/// take far longer than this.
const ROUNDS: u128 = 20;
const ENOUGH: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_starts_a_run_and_leaves_at_once_is_heard() {
    let place = Place::new(TestClock::new());
    let worker = place.open_real().await;
    join(&worker, SESSION, LONG).await;
    let begun = Instant::now();
    for run in 1..=ROUNDS {
        let epoch = worker.claim(SESSION, request()).await.unwrap().epoch;
        let client = place.open_real().await;
        start(&client, RunId::from_bits(run)).await;
        drop(client);
        worker.changed(epoch, Timestamp::NEVER).await;
        until("claimed", async || !claim(&worker, SESSION).await.is_empty()).await;
    }
    assert!(begun.elapsed() < ENOUGH, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_is_heard_of_whether_somebody_waits_already_or_not_yet() {
    let place = Place::new(TestClock::new());
    let (client, worker) = (place.open_real().await, place.open_real().await);
    join(&worker, SESSION, LONG).await;
    let begun = Instant::now();
    for round in 1..=ROUNDS {
        let run = RunId::from_bits(round);
        start(&client, run).await;
        let mut claimed = Vec::new();
        until("claimed", async || {
            claimed = claim(&worker, SESSION).await;
            !claimed.is_empty()
        })
        .await;
        let mut end = step(run, claimed[0].turn, 1, 1_000 + round, Then::End(Status::Completed));
        end.events = vec![completed()];
        let wait = client.ended(run, Timestamp::NEVER);
        if round % 2 == 0 {
            let (ended, done) = tokio::join!(wait, commit(&worker, SESSION, end));
            done.unwrap();
            assert_eq!(ended.unwrap().unwrap().run, run);
        } else {
            commit(&worker, SESSION, end).await.unwrap();
            // Sometimes the end is heard of before somebody waits for it, sometimes behind.
            tokio::time::sleep(Duration::from_micros(100) * round as u32).await;
            assert_eq!(wait.await.unwrap().unwrap().run, run);
        }
    }
    assert!(begun.elapsed() < ENOUGH, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_just_opened_its_world_hears_of_an_end() {
    let place = Place::new(TestClock::new());
    let worker = place.open_real().await;
    join(&worker, SESSION, LONG).await;
    let mut late = 0;
    for run in (1..=2 * ROUNDS).map(RunId::from_bits) {
        let client = place.open_real().await;
        start(&client, run).await;
        let work = async {
            let mut claimed = Vec::new();
            until("claimed", async || {
                claimed = claim(&worker, SESSION).await;
                !claimed.is_empty()
            })
            .await;
            let mut end = step(run, claimed[0].turn, 1, 1_000 + run.bits(), Then::End(Status::Completed));
            end.events = vec![completed()];
            commit(&worker, SESSION, end).await.unwrap();
            Instant::now()
        };
        let (ended, done) = tokio::join!(client.ended(run, Timestamp::NEVER), work);
        assert_eq!(ended.unwrap().unwrap().run, run);
        late += u32::from(done.elapsed() > Duration::from_millis(1_200));
    }
    // Without a look as soon as it listens, a third of them waits for the slow poll.
    assert!(late <= 3, "{late} waited for the poll");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_build_has_no_name_gets_runs() {
    let place = Place::new(TestClock::new());
    let world = place.open_real().await;
    join(&world, SESSION, LONG).await;
    start(&world, RunId::from_bits(1)).await;
    let work = world.claim(SESSION, ClaimRequest { build: "".into(), ..request() }).await.unwrap();
    assert_eq!(work.claimed.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_repeated_behind_the_end_waits_for_nothing() {
    let place = Place::new(TestClock::new());
    // With a clock of its own the worker says nothing, as if it had been said long ago.
    let (worker, late) = (place.open().await, place.open_real().await);
    join(&worker, SESSION, LONG).await;
    let begun = Instant::now();
    for round in 1..=ROUNDS {
        let run = RunId::from_bits(round);
        start(&worker, run).await;
        let claimed = claim(&worker, SESSION).await;
        let mut end = step(run, claimed[0].turn, 1, 1_000 + round, Then::End(Status::Completed));
        end.events = vec![completed()];
        commit(&worker, SESSION, end).await.unwrap();
        // Also among others, which are new.
        let mut starts = vec![new_start(run)];
        if round % 2 == 0 {
            starts.push(new_start(RunId::from_bits(1_000 + round)));
        }
        let answers = late.start(starts).await.unwrap();
        assert!(answers.into_iter().all(|answer| answer.unwrap().is_new), "a repeat is answered alike");
        if round % 2 == 0 {
            until("the other is claimed", async || !claim(&worker, SESSION).await.is_empty()).await;
        }
        assert_eq!(late.ended(run, Timestamp::NEVER).await.unwrap().unwrap().run, run);
    }
    assert!(begun.elapsed() < ENOUGH, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_that_is_closed_while_its_own_connection_is_away_is_heard() {
    let server = throwaway::Postgres::builder().quick().start().unwrap();
    let admin = Place::on(&server.url(), TestClock::new()).connect().await;
    admin.batch_execute("CREATE DATABASE shop").await.unwrap();
    let (base, _) =
        server.url().rsplit_once('/').map(|(base, rest)| (base.to_owned(), rest.to_owned())).unwrap();
    let place = Place::on(&format!("{base}/shop"), TestClock::new());
    let worker = place.open_real().await;
    let begun = Instant::now();
    join(&worker, SESSION, LONG).await;
    let url = format!("{}&application_name=client", place.url());
    let client = PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap();
    // It has connections in its pool, and cannot make new ones.
    let epoch = worker.claim(SESSION, request()).await.unwrap().epoch;
    start(&client, RunId::from_bits(1)).await;
    worker.changed(epoch, Timestamp::NEVER).await;
    until("claimed", async || !claim(&worker, SESSION).await.is_empty()).await;
    let epoch = worker.claim(SESSION, request()).await.unwrap().epoch;
    admin.batch_execute("ALTER DATABASE shop ALLOW_CONNECTIONS false").await.unwrap();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'client' AND (query LIKE '%LISTEN%' OR query LIKE 'NOTIFY%')";
    assert_eq!(admin.query_one(cut, &[]).await.unwrap().get::<_, i64>(0), 1);
    until("it is away", async || admin.query_one(cut, &[]).await.unwrap().get::<_, i64>(0) == 0).await;
    start(&client, RunId::from_bits(2)).await;
    drop(client);
    worker.changed(epoch, Timestamp::NEVER).await;
    assert!(begun.elapsed() < ENOUGH, "{:?}", begun.elapsed());
    assert_eq!(claim(&worker, SESSION).await.len(), 1);
}
