//! Attacks.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use common::{LONG, Place, claim, commit, completed, join, new_start, request, start, step, until};
use outlast_core::{RunId, SessionId, Start, Status, Then, Timestamp, Turn, TurnId, World, WorldError};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);
const OTHER: SessionId = SessionId::from_bits(2);

/// A run whose hint is lost (its client died between the commit and the NOTIFY), then a start that is heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_hint() {
    let place = Place::new(TestClock::new());
    let (worker, client) = (place.open_real().await, place.open_real().await);
    join(&worker, SESSION, LONG).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(claim(&worker, SESSION).await.is_empty());
    let work = worker.claim(SESSION, request()).await.unwrap();
    let lost = RunId::from_bits(77);
    let raw = place.connect().await;
    let sql = format!(
        "SELECT {s}.start_one(NULL, 1, '{lost}', '{t}', 0, 'w', 1, 'default', 0::smallint, \
         (SELECT '[]'), NULL, NULL, NULL, NULL, NULL, NULL)",
        s = place.schema,
        t = TurnId::from_bits(77)
    );
    raw.batch_execute(&sql).await.unwrap();
    let began = Instant::now();
    start(&client, RunId::from_bits(78)).await;
    worker.changed(work.epoch, Timestamp::NEVER).await;
    let mut seen = Vec::new();
    // As the pump does.
    while !seen.contains(&lost) && began.elapsed() < Duration::from_secs(60) {
        let work = worker.claim(SESSION, request()).await;
        let work = match work {
            Ok(work) => work,
            Err(error) => {
                println!("{error} after {:?}", began.elapsed());
                seen.push(lost);
                break;
            }
        };
        seen.extend(work.claimed.iter().map(|claimed| claimed.run));
        println!("{:?}: {seen:?} next due {:?}", began.elapsed(), work.next_due);
        if seen.contains(&lost) {
            break;
        }
        let idle = worker.clock().now().plus(Duration::from_secs(30));
        worker.changed(work.epoch, work.next_due.unwrap_or(idle).min(idle)).await;
    }
    assert!(began.elapsed() < Duration::from_secs(7), "found after {:?}", began.elapsed());
}

/// Who may not have a run writes nothing when it hears of its start, and has no reason to look again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_for_this_worker() {
    let place = Place::new(TestClock::new());
    let (worker, client) = (place.open_real().await, place.open_real().await);
    join(&worker, SESSION, LONG).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(claim(&worker, SESSION).await.is_empty());
    let work = worker.claim(SESSION, request()).await.unwrap();
    let raw = place.connect().await;
    let xmax = format!("SELECT xmax::text FROM {}.sessions", place.schema);
    let before: String = raw.query_one(&xmax, &[]).await.unwrap().get(0);
    let elsewhere = Start { queue: "elsewhere".into(), ..new_start(RunId::from_bits(5)) };
    client.start(vec![elsewhere]).await.unwrap().remove(0).unwrap();
    worker.changed(work.epoch, Timestamp::NEVER).await;
    let work = worker.claim(SESSION, request()).await.unwrap();
    let after: String = raw.query_one(&xmax, &[]).await.unwrap().get(0);
    println!("xmax {before} -> {after}; next_due {:?}", work.next_due);
    assert_eq!(before, after);
    let soon = worker.clock().now().plus(Duration::from_secs(2));
    assert!(work.next_due.is_none_or(|due| due > soon), "{:?}", work.next_due);
}

/// A server that crashes right after a claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_after_a_claim() {
    let mut server = throwaway::Postgres::builder()
        .quick()
        .setting("wal_writer_delay", "10s")
        .setting("fsync", "on")
        .start()
        .unwrap();
    let place = Place::on(&server.url(), TestClock::new());
    let (worker, client, other) = (place.open_real().await, place.open_real().await, place.open_real().await);
    join(&worker, SESSION, LONG).await;
    join(&other, OTHER, LONG).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut forgotten = 0;
    for number in 1..=6_u128 {
        let run = RunId::from_bits(number);
        let mut epoch = worker.claim(SESSION, request()).await.unwrap().epoch;
        start(&client, run).await;
        let claimed = loop {
            worker.changed(epoch, worker.clock().now().plus(Duration::from_secs(1))).await;
            let mut work = worker.claim(SESSION, request()).await.unwrap();
            epoch = work.epoch;
            if !work.claimed.is_empty() {
                break work.claimed.remove(0);
            }
        };
        let waiter = client.ended(run, client.clock().now().plus(Duration::from_secs(60)));
        let attack = async {
            server.kill().unwrap();
            server.start().unwrap();
            until("the server answers", async || client.counts().await.is_ok()).await;
            let view = client.run(run).await.unwrap();
            let counts = client.counts().await.unwrap();
            println!("{number}: {:?} {counts:?}", view.status);
            let end = |id: u128, from: TurnId| Turn {
                events: vec![completed()],
                ..step(run, from, 1, id, Then::End(Status::Completed))
            };
            if view.status == Status::Pending {
                forgotten += 1;
                // Somebody else is quicker, or the worker itself.
                let (world, session) = if number % 2 == 0 { (&other, OTHER) } else { (&worker, SESSION) };
                let mut again = Vec::new();
                if number % 3 == 0 {
                    let mut refused = commit(&worker, SESSION, end(100 + number, claimed.turn)).await;
                    while matches!(refused, Err(WorldError::Unavailable(_))) {
                        refused = commit(&worker, SESSION, end(100 + number, claimed.turn)).await;
                    }
                    assert!(matches!(refused, Err(WorldError::Fenced(_))), "{refused:?}");
                }
                until("it is claimed again", async || {
                    again =
                        world.claim(session, request()).await.map(|work| work.claimed).unwrap_or_default();
                    !again.is_empty()
                })
                .await;
                assert_eq!((again.len(), again[0].turn, again[0].seq), (1, claimed.turn, 1));
                let late = commit(&worker, SESSION, end(200 + number, claimed.turn)).await;
                if session == SESSION {
                    late.unwrap();
                } else {
                    assert!(matches!(late, Err(WorldError::Fenced(_))), "{late:?}");
                    commit(&other, OTHER, end(300 + number, claimed.turn)).await.unwrap();
                }
            } else {
                until("the worker goes on", async || {
                    commit(&worker, SESSION, end(200 + number, claimed.turn)).await.is_ok()
                })
                .await;
            }
        };
        let (ended, ()) = tokio::join!(waiter, attack);
        println!("waiter: {ended:?}");
        let counts = client.counts().await.unwrap();
        println!("{counts:?}");
    }
    println!("forgotten {forgotten}");
    let raw = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(raw.1);
    let rows = raw
        .0
        .query(&format!("SELECT status, count(*) FROM {}.runs GROUP BY 1", place.schema), &[])
        .await
        .unwrap();
    for row in rows {
        println!("really {} {}", row.get::<_, &str>(0), row.get::<_, i64>(1));
    }
}
