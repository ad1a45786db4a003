//! Sessions in real time: a free lock shows that a process is dead, unless the server was restarted.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{
    NO_EXPIRY, TestSchema, claim, commit, completed, join, one_event_turn, start, try_claim, wait_until,
};
use outlast_core::{
    HeartbeatDetails, OpNumber, Payload, Report, RunId, SessionId, Status, Then, World, WorldError,
};
use outlast_testkit::TestClock;

const FIRST: SessionId = SessionId::from_bits(1);
const SECOND: SessionId = SessionId::from_bits(2);
const RUN: RunId = RunId::from_bits(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_of_a_dead_process_is_taken_over_after_a_second() {
    let test_schema = TestSchema::new(TestClock::new());
    let (first, second) = (test_schema.open_real_time().await, test_schema.open_real_time().await);
    join(&first, FIRST, NO_EXPIRY).await;
    join(&second, SECOND, NO_EXPIRY).await;
    start(&first, RUN).await;
    assert_eq!(claim(&first, FIRST).await.len(), 1);
    assert_eq!(second.takeover(SECOND).await, Ok(0), "the first world holds its lock");
    let died = Instant::now();
    drop(first);
    assert_eq!(second.takeover(SECOND).await, Ok(0), "the lock has just become free");
    // Nobody calls `takeover` but the world itself.
    let mut claimed = Vec::new();
    wait_until("taken over", async || {
        claimed = claim(&second, SECOND).await;
        !claimed.is_empty()
    })
    .await;
    assert!(died.elapsed() >= Duration::from_millis(950), "{:?}", died.elapsed());
    assert!(died.elapsed() < Duration::from_secs(5), "{:?}", died.elapsed());
    assert_eq!(claimed[0].columns.crashes, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_takes_its_lock_again_after_its_listener_connection_was_lost() {
    let test_schema = TestSchema::new(TestClock::new());
    let (first, second) = (test_schema.open_real_time().await, test_schema.open_real_time().await);
    join(&first, FIRST, NO_EXPIRY).await;
    join(&second, SECOND, NO_EXPIRY).await;
    let server = test_schema.connect().await;
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted \
                 AND ((classid::bigint << 32) | objid::bigint) = ";
    let key = format!("\"{}\".lock_key_v3('{FIRST}')", test_schema.schema);
    let count = async || server.query_one(&format!("{locks}{key}"), &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count().await, 1);
    let terminate = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' \
         AND ((classid::bigint << 32) | objid::bigint) = {key}"
    );
    server.query(&terminate, &[]).await.unwrap();
    wait_until("the lock is taken again", async || count().await == 1).await;
    assert_eq!(second.takeover(SECOND).await, Ok(0));
    first.beat(FIRST, &outlast_core::Report::default(), &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_the_server_frees_late_is_taken_when_it_becomes_free() {
    let test_schema = TestSchema::new(TestClock::new());
    let (first, second) = (test_schema.open_real_time().await, test_schema.open_real_time().await);
    join(&first, FIRST, NO_EXPIRY).await;
    join(&second, SECOND, NO_EXPIRY).await;
    // Another connection waits for the lock and gets it before the session does. It stands for the lost connection,
    // which may hold the lock for a while longer.
    let (server, late) = (test_schema.connect().await, test_schema.connect().await);
    let key = format!("\"{}\".lock_key_v3('{FIRST}')", test_schema.schema);
    let holders = format!(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted \
         AND ((classid::bigint << 32) | objid::bigint) = {key}"
    );
    let holder = async || server.query_opt(&holders, &[]).await.unwrap().map(|row| row.get::<_, i32>(0));
    let before = holder().await.unwrap();
    let late_pid = late.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get::<_, i32>(0);
    let lock = format!("SELECT pg_advisory_lock({key})");
    let terminate = async {
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1";
        wait_until("the connection waits", async || {
            server.query_one(waits, &[&late_pid]).await.unwrap().get::<_, i64>(0) == 1
        })
        .await;
        server.query("SELECT pg_terminate_backend($1)", &[&before]).await.unwrap();
    };
    let (locked, ()) = tokio::join!(late.batch_execute(&lock), terminate);
    locked.unwrap();
    assert_eq!(holder().await, Some(late_pid));
    let connected =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_try_advisory_lock%' AND query LIKE $1";
    let tried = format!("%{}%", test_schema.schema);
    wait_until("the session has tried to take its lock", async || {
        server.query_one(connected, &[&tried]).await.unwrap().get::<_, i64>(0) >= 2
    })
    .await;
    late.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    wait_until("the session has its lock", async || holder().await.is_some()).await;
    first.beat(FIRST, &outlast_core::Report::default(), &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_session_is_taken_over_although_its_lock_is_held() {
    let test_schema = TestSchema::new(TestClock::new());
    let (first, second) = (test_schema.open_real_time().await, test_schema.open_real_time().await);
    join(&first, FIRST, Duration::from_millis(500)).await;
    join(&second, SECOND, NO_EXPIRY).await;
    start(&first, RUN).await;
    let claimed = claim(&first, FIRST).await.remove(0);
    wait_until("taken over", async || {
        second.takeover(SECOND).await.unwrap();
        second.workers().await.unwrap().len() == 1
    })
    .await;
    // A process that was frozen and continues can write nothing.
    let error = commit(&first, FIRST, one_event_turn(RUN, claimed.turn, 1, 10, Then::Hold)).await;
    assert!(matches!(error, Err(WorldError::Fenced(_))), "{error:?}");
    let error = commit(&first, FIRST, one_event_turn(RUN, claimed.turn, 1, 11, Then::Release)).await;
    assert!(matches!(error, Err(WorldError::Fenced(_))), "{error:?}");
    let error = first.beat(FIRST, &outlast_core::Report::default(), &[]).await;
    assert!(matches!(error, Err(WorldError::Fenced(_))), "{error:?}");
    let error = try_claim(&first, FIRST).await;
    assert!(matches!(error, Err(WorldError::Fenced(_))), "{error:?}");
    let error = first.takeover(FIRST).await;
    assert!(matches!(error, Err(WorldError::Fenced(_))), "{error:?}");
    let reclaimed = claim(&second, SECOND).await.remove(0);
    assert_eq!(
        (reclaimed.turn, reclaimed.columns.crashes),
        (claimed.turn, 1),
        "the refused turns were not written"
    );
    commit(&second, SECOND, one_event_turn(RUN, reclaimed.turn, 1, 12, Then::Hold)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_the_server_sessions_have_their_full_time_again() {
    let mut server = throwaway::Postgres::builder().quick().start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    let (first, second) = (test_schema.open_real_time().await, test_schema.open_real_time().await);
    join(&first, FIRST, NO_EXPIRY).await;
    join(&second, SECOND, NO_EXPIRY).await;
    start(&first, RUN).await;
    let claimed = claim(&first, FIRST).await.remove(0);
    // Commit a turn: before the first one, a crash of the server may undo the claim.
    let started_at = one_event_turn(RUN, claimed.turn, 1, 10, Then::Hold);
    let turn = started_at.id;
    commit(&first, FIRST, started_at).await.unwrap();
    server.kill().unwrap();
    let lost = second.takeover(SECOND).await;
    assert!(matches!(lost, Err(WorldError::Unavailable(_))), "{lost:?}");
    server.start().unwrap();
    wait_until("the server answers", async || second.takeover(SECOND).await.is_ok()).await;
    let started_at = Instant::now();
    while started_at.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(second.takeover(SECOND).await, Ok(0), "the session is not taken over");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    wait_until("the first session continues", async || {
        commit(&first, FIRST, one_event_turn(RUN, turn, 2, 11, Then::Hold)).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_beat_works_outside_a_runtime() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open_real_time().await;
    join(&world, FIRST, NO_EXPIRY).await;
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
async fn details_of_an_ended_run_are_deleted_when_its_session_ends() {
    for is_lost in [false, true] {
        let test_schema = TestSchema::new(TestClock::new());
        let (first, second) = (test_schema.open().await, test_schema.open().await);
        join(&first, FIRST, Duration::from_secs(10)).await;
        join(&second, SECOND, NO_EXPIRY).await;
        start(&first, RUN).await;
        let claimed = claim(&first, FIRST).await.remove(0);
        let details = Some(Payload::json(&7).unwrap());
        let details = HeartbeatDetails { run: RUN, op: OpNumber(0), attempt: 1, details };
        first.beat(FIRST, &Report::default(), &[details]).await.unwrap();
        let mut last = one_event_turn(RUN, claimed.turn, 1, 10, Then::End(Status::Completed));
        last.events.push(completed());
        commit(&first, FIRST, last).await.unwrap();
        if is_lost {
            test_schema.clock.advance("10s");
            second.takeover(SECOND).await.unwrap();
        } else {
            first.leave(FIRST).await.unwrap();
        }
        let rows = format!("SELECT count(*) FROM \"{}\".heartbeats", test_schema.schema);
        let count = test_schema.connect().await.query_one(&rows, &[]).await.unwrap();
        assert_eq!(count.get::<_, i64>(0), 0, "lost: {is_lost}");
    }
}
