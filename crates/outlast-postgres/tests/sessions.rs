//! Sessions on the database's clock: locks tell that a process is gone, and a restart of the server does not.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{LONG, Place, claim, commit, completed, join, start, step, try_claim, until};
use outlast_core::{
    HeartbeatDetails, OpNumber, Payload, Report, RunId, SessionId, Status, Then, World, WorldError,
};
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
    assert_eq!(claimed[0].columns.crashes, 1);
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
    let key = format!("\"{}\".lock_key_v2('{FIRST}')", place.schema);
    let count = async || server.query_one(&format!("{locks}{key}"), &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count().await, 1);
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' \
         AND ((classid::bigint << 32) | objid::bigint) = {key}"
    );
    server.query(&cut, &[]).await.unwrap();
    until("the lock is taken again", async || count().await == 1).await;
    assert_eq!(second.takeover(SECOND).await, Ok(0));
    first.beat(FIRST, &outlast_core::Report::default(), &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_the_server_frees_late_is_taken_as_soon_as_it_is_free() {
    let place = Place::new(TestClock::new());
    let (first, second) = (place.open_real().await, place.open_real().await);
    join(&first, FIRST, LONG).await;
    join(&second, SECOND, LONG).await;
    // Another connection waits for the lock and has it before the session can: as the one that was lost may
    // have it for a while longer.
    let (server, late) = (place.connect().await, place.connect().await);
    let key = format!("\"{}\".lock_key_v2('{FIRST}')", place.schema);
    let holders = format!(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted \
         AND ((classid::bigint << 32) | objid::bigint) = {key}"
    );
    let holder = async || server.query_opt(&holders, &[]).await.unwrap().map(|row| row.get::<_, i32>(0));
    let before = holder().await.unwrap();
    let late_pid = late.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get::<_, i32>(0);
    let lock = format!("SELECT pg_advisory_lock({key})");
    let cut = async {
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1";
        until("it waits", async || {
            server.query_one(waits, &[&late_pid]).await.unwrap().get::<_, i64>(0) == 1
        })
        .await;
        server.query("SELECT pg_terminate_backend($1)", &[&before]).await.unwrap();
    };
    let (locked, ()) = tokio::join!(late.batch_execute(&lock), cut);
    locked.unwrap();
    assert_eq!(holder().await, Some(late_pid));
    let connected =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_try_advisory_lock%' AND query LIKE $1";
    let tried = format!("%{}%", place.schema);
    until("it has tried in vain", async || {
        server.query_one(connected, &[&tried]).await.unwrap().get::<_, i64>(0) >= 2
    })
    .await;
    late.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    until("it has its lock", async || holder().await.is_some()).await;
    first.beat(FIRST, &outlast_core::Report::default(), &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_session_is_taken_over_though_its_lock_is_held() {
    let place = Place::new(TestClock::new());
    let (first, second) = (place.open_real().await, place.open_real().await);
    join(&first, FIRST, Duration::from_millis(500)).await;
    join(&second, SECOND, LONG).await;
    start(&first, RUN).await;
    let claimed = claim(&first, FIRST).await.remove(0);
    until("taken over", async || {
        second.takeover(SECOND).await.unwrap();
        second.workers().await.unwrap().len() == 1
    })
    .await;
    // What was frozen and wakes can write nothing, whatever it does first.
    let refused = commit(&first, FIRST, step(RUN, claimed.turn, 1, 10, Then::Hold)).await;
    assert!(matches!(refused, Err(WorldError::Fenced(_))), "{refused:?}");
    let refused = commit(&first, FIRST, step(RUN, claimed.turn, 1, 11, Then::Release)).await;
    assert!(matches!(refused, Err(WorldError::Fenced(_))), "{refused:?}");
    let refused = first.beat(FIRST, &outlast_core::Report::default(), &[]).await;
    assert!(matches!(refused, Err(WorldError::Fenced(_))), "{refused:?}");
    let refused = try_claim(&first, FIRST).await;
    assert!(matches!(refused, Err(WorldError::Fenced(_))), "{refused:?}");
    let refused = first.takeover(FIRST).await;
    assert!(matches!(refused, Err(WorldError::Fenced(_))), "{refused:?}");
    let again = claim(&second, SECOND).await.remove(0);
    assert_eq!((again.turn, again.columns.crashes), (claimed.turn, 1), "nothing of it is there");
    commit(&second, SECOND, step(RUN, again.turn, 1, 12, Then::Hold)).await.unwrap();
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
    // Up to its first turn a crash may forget that the run was given: nothing was done for it.
    let began = step(RUN, claimed.turn, 1, 10, Then::Hold);
    let turn = began.id;
    commit(&first, FIRST, began).await.unwrap();
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
        commit(&first, FIRST, step(RUN, turn, 2, 11, Then::Hold)).await.is_ok()
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
        let mut beat = std::pin::pin!(world.beat(FIRST, &report, &[]));
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

#[tokio::test]
async fn details_of_an_ended_run_are_forgotten_when_its_session_ends() {
    for is_lost in [false, true] {
        let place = Place::new(TestClock::new());
        let (first, second) = (place.open().await, place.open().await);
        join(&first, FIRST, Duration::from_secs(10)).await;
        join(&second, SECOND, LONG).await;
        start(&first, RUN).await;
        let claimed = claim(&first, FIRST).await.remove(0);
        let details = Some(Payload::json(&7).unwrap());
        let details = HeartbeatDetails { run: RUN, op: OpNumber(0), attempt: 1, details };
        first.beat(FIRST, &Report::default(), &[details]).await.unwrap();
        let mut last = step(RUN, claimed.turn, 1, 10, Then::End(Status::Completed));
        last.events.push(completed());
        commit(&first, FIRST, last).await.unwrap();
        if is_lost {
            place.clock.advance("10s");
            second.takeover(SECOND).await.unwrap();
        } else {
            first.leave(FIRST).await.unwrap();
        }
        let rows = format!("SELECT count(*) FROM \"{}\".heartbeats", place.schema);
        let count = place.connect().await.query_one(&rows, &[]).await.unwrap();
        assert_eq!(count.get::<_, i64>(0), 0, "lost: {is_lost}");
    }
}
