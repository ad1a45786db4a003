//! Sessions on the database's clock: locks tell that a process is gone, and a restart of the server does not.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{LONG, Place, claim, commit, join, start, step, until};
use outlast_core::{RunId, SessionId, Then, World, WorldError};
use outlast_testkit::TestClock;

const FIRST: SessionId = SessionId::from_bits(1);
const SECOND: SessionId = SessionId::from_bits(2);
const RUN: RunId = RunId::from_bits(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_process_is_gone_is_taken_over_after_a_second() {
    let place = Place::new(TestClock::new());
    let (first, second) = (place.open_real().await, place.open_real().await);
    join(&first, FIRST, LONG).await;
    join(&second, SECOND, LONG).await;
    start(&first, RUN).await;
    assert_eq!(claim(&first, FIRST).await.len(), 1);
    assert_eq!(second.takeover(SECOND).await, Ok(0), "the first world holds its lock");
    let died = Instant::now();
    drop(first);
    assert_eq!(second.takeover(SECOND).await, Ok(0), "a lock that is just free makes a suspect");
    // Nobody looks but the world itself.
    let mut claimed = Vec::new();
    until("taken over", async || {
        claimed = claim(&second, SECOND).await;
        !claimed.is_empty()
    })
    .await;
    assert!(died.elapsed() >= Duration::from_millis(950), "{:?}", died.elapsed());
    assert!(died.elapsed() < Duration::from_secs(5), "{:?}", died.elapsed());
    assert_eq!(claimed[0].crashes, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_listening_connection_was_cut_finds_its_lock_again() {
    let place = Place::new(TestClock::new());
    let (first, second) = (place.open_real().await, place.open_real().await);
    join(&first, FIRST, LONG).await;
    join(&second, SECOND, LONG).await;
    let server = place.connect().await;
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted \
                 AND ((classid::bigint << 32) | objid::bigint) = ";
    let key = format!("\"{}\".lock_key('{FIRST}')", place.schema);
    let count = async || server.query_one(&format!("{locks}{key}"), &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count().await, 1);
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' \
         AND ((classid::bigint << 32) | objid::bigint) = {key}"
    );
    server.query(&cut, &[]).await.unwrap();
    until("the lock is taken again", async || count().await == 1).await;
    assert_eq!(second.takeover(SECOND).await, Ok(0));
    first.beat(FIRST, &outlast_core::Report::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_session_is_taken_over_though_its_lock_is_held() {
    let place = Place::new(TestClock::new());
    let (first, second) = (place.open_real().await, place.open_real().await);
    join(&first, FIRST, Duration::from_millis(500)).await;
    join(&second, SECOND, LONG).await;
    start(&first, RUN).await;
    let claimed = claim(&first, FIRST).await.remove(0);
    until("taken over", async || second.takeover(SECOND).await.unwrap() == 1).await;
    let refused = commit(&first, FIRST, step(RUN, claimed.turn, 1, 10, Then::Hold)).await;
    assert!(matches!(refused, Err(WorldError::Fenced(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_the_server_sessions_have_their_time_again() {
    let mut server = throwaway::Postgres::builder().quick().start().unwrap();
    let place = Place::on(&server.url(), TestClock::new());
    let (first, second) = (place.open_real().await, place.open_real().await);
    join(&first, FIRST, LONG).await;
    join(&second, SECOND, LONG).await;
    start(&first, RUN).await;
    let claimed = claim(&first, FIRST).await.remove(0);
    server.kill().unwrap();
    let lost = second.takeover(SECOND).await;
    assert!(matches!(lost, Err(WorldError::Unavailable(_))), "{lost:?}");
    server.start().unwrap();
    until("the server answers", async || second.takeover(SECOND).await.is_ok()).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(second.takeover(SECOND).await, Ok(0), "it is no suspect");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    until("the first goes on", async || {
        commit(&first, FIRST, step(RUN, claimed.turn, 1, 10, Then::Hold)).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_beat_needs_no_runtime() {
    let place = Place::new(TestClock::new());
    let world = place.open_real().await;
    join(&world, FIRST, LONG).await;
    let beat = std::thread::spawn(move || {
        let report = outlast_core::Report::default();
        let mut beat = std::pin::pin!(world.beat(FIRST, &report));
        let waker = std::task::Waker::noop();
        loop {
            if let std::task::Poll::Ready(beat) =
                beat.as_mut().poll(&mut std::task::Context::from_waker(waker))
            {
                return beat;
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(beat.join().unwrap().unwrap().held, 0);
}
