//! Rolling upgrades: two interfaces are in use at the same time, and one that is in use is not dropped.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outlast_core::event::{FORMAT, RULES};
use outlast_core::queue::{default_queue, default_queues};
use outlast_core::turn::LastTurn;
use outlast_core::{
    ClaimRequest, Code, Event, Headers, Join, Payload, RunId, SessionId, Start, Status, SuspectRoom, Tags,
    Then, Timestamp, Turn, TurnId, World,
};

use super::*;
use crate::PostgresWorld;
use crate::sql::INTERFACE;

/// How many runs each world works off.
const RUNS: u128 = 60;

/// An additive step: a column, an index that is built while others write, and a new set of functions.
fn next_step(interface: u32) -> Migration {
    let column: &'static str =
        Box::leak(format!("ALTER TABLE {{schema}}.runs ADD COLUMN note_{interface} text").into_boxed_str());
    let index: &'static str = Box::leak(
        format!("CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_by_note_{interface} ON {{schema}}.runs (note_{interface})")
            .into_boxed_str(),
    );
    let functions = MIGRATIONS[MIGRATIONS.len() - 1].functions;
    Migration {
        interface,
        tables: Box::leak(Box::new([column])),
        functions,
        indexes: Box::leak(Box::new([index])),
    }
}

/// The steps of this build, and those of later ones up to the one that makes this interface.
fn steps(interface: u32) -> Vec<Migration> {
    let known = MIGRATIONS.iter().map(|known| Migration { ..*known });
    known.chain((INTERFACE + 1..=interface).map(next_step)).collect()
}

async fn open(url: &str, interface: u32) -> Result<PostgresWorld, WorldError> {
    PostgresWorld::open(url, PostgresOptions { interface, ..PostgresOptions::new() }).await
}

fn url() -> (String, String) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (server, number) = (throwaway::postgres::for_tests(), NEXT.fetch_add(1, Ordering::Relaxed));
    let schema = format!("upgrade_{}_{number}", std::process::id());
    let joint = if server.contains('?') { '&' } else { '?' };
    (format!("{server}{joint}schema={schema}&pool=2"), schema)
}

fn join(session: SessionId, interface: u32) -> Join {
    Join {
        session,
        host: format!("host{interface}"),
        pid: 4_000 + interface,
        build: "b".into(),
        code: [Code { workflow: "w".into(), version: 1 }].into(),
        queues: default_queues(),
        time: Duration::from_secs(3_600),
        rules: RULES,
        format: FORMAT,
    }
}

fn new_start(number: u128) -> Start {
    Start {
        run: RunId::from_bits(number),
        turn: TurnId::from_bits(number),
        workflow: "w".into(),
        version: 1,
        rules: RULES,
        queue: default_queue(),
        priority: 0,
        key: None,
        input: Payload::null(),
        headers: Headers::new(),
        tags: Tags::new(),
        parent: None,
        not_before: None,
        deadline: None,
        policy: None,
    }
}

/// Commits a turn, again while a migration has the table locked.
async fn commit(world: &PostgresWorld, session: SessionId, turn: Turn) {
    loop {
        match world.commit(session, std::slice::from_ref(&turn)).await.unwrap().remove(0) {
            Err(WorldError::Blocked(_)) => {}
            answer => {
                answer.unwrap();
                return;
            }
        }
    }
}

/// Starts runs and ends whichever it is given, until it has done its part.
async fn work(world: &PostgresWorld, session: SessionId, first: u128) {
    let mut done = 0;
    for number in 0..RUNS {
        world.start(vec![new_start(first + number)]).await.unwrap().remove(0).unwrap();
        let request = ClaimRequest {
            limit: 5,
            code: [Code { workflow: "w".into(), version: 1 }].into(),
            queues: default_queues(),
            build: "b".into(),
            format: FORMAT,
            suspects: SuspectRoom::Nothing,
            ends_overdue_from: Timestamp::NEVER,
        };
        let claimed = world.claim(session, request).await.unwrap().claimed;
        let turns: Vec<Turn> = claimed
            .iter()
            .map(|claimed| Turn {
                events: vec![Event::RunCompleted { output: Payload::null() }],
                then: Then::End(Status::Completed),
                ..Turn::following(
                    &LastTurn::new(claimed.run, claimed.turn, claimed.seq),
                    TurnId::from_bits(1_000_000 + claimed.run.bits()),
                    Timestamp::from_micros(1),
                    "b".into(),
                )
            })
            .collect();
        for turn in turns {
            commit(world, session, turn).await;
            done += 1;
        }
    }
    assert!(done > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_of_two_interfaces_use_one_schema_while_an_upgrade_is_rolled_out() {
    let (url, schema) = url();
    let old = open(&url, INTERFACE).await.unwrap();
    let [first, second] = [1, 2].map(SessionId::from_bits);
    old.join(join(first, INTERFACE)).await.unwrap();
    // The schema is migrated while a worker of the old build works.
    let store = old.store().clone();
    let (two, ()) = futures_util::future::join(
        async { bring_up(&store, &schema, &steps(INTERFACE + 1)).await },
        work(&old, first, 1_000),
    )
    .await;
    two.unwrap();
    let new = open(&url, INTERFACE + 1).await.unwrap();
    new.join(join(second, INTERFACE + 1)).await.unwrap();
    futures_util::future::join(work(&old, first, 2_000), work(&new, second, 3_000)).await;
    let counts = new.counts().await.unwrap();
    assert_eq!(counts.values().sum::<u64>(), 3 * RUNS as u64, "{counts:?}");
    assert!(counts[&Status::Completed] > 2 * RUNS as u64 - 10, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_a_joined_worker_calls_are_not_dropped() {
    let (url, schema) = url();
    let old = open(&url, INTERFACE).await.unwrap();
    let session = SessionId::from_bits(1);
    old.join(join(session, INTERFACE)).await.unwrap();
    let store = old.store().clone();
    bring_up(&store, &schema, &steps(INTERFACE + 1)).await.unwrap();
    let refused = bring_up(&store, &schema, &steps(INTERFACE + 2)).await.unwrap_err();
    assert!(
        matches!(&refused, WorldError::Conflict(why) if why.contains(&format!("process {} on host{INTERFACE}", 4_000 + INTERFACE))),
        "{refused}"
    );
    old.leave(session).await.unwrap();
    bring_up(&store, &schema, &steps(INTERFACE + 2)).await.unwrap();
    let gone = open(&url, INTERFACE).await.unwrap_err();
    assert!(matches!(&gone, WorldError::Conflict(why) if why.contains("newer build")), "{gone}");
    let rest = "SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = $1 AND p.proname LIKE '%\\_v' || $2";
    let left = store.call(rest, &[&schema, &INTERFACE.to_string()]).await.unwrap();
    assert_eq!(left[0].get::<_, i64>(0), 0);
    let new = open(&url, INTERFACE + 2).await.unwrap();
    new.join(join(session, INTERFACE + 2)).await.unwrap();
    work(&new, session, 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_of_the_first_interface_joins_and_is_shown_without_a_version() {
    let (url, schema) = url();
    let world = open(&url, INTERFACE).await.unwrap();
    // As the program of that interface calls it.
    let join_v1 = format!(
        "SELECT {}.join_v1(NULL, $1, 'host1', 4001, 'b', '[]', '[]', 1000000, false, {RULES}, {FORMAT}, 1)",
        quoted(&schema)
    );
    let [first, second] = [1, 2].map(SessionId::from_bits);
    world.store().call(&join_v1, &[&first.to_string()]).await.unwrap();
    world.join(join(second, INTERFACE)).await.unwrap();
    let workers = world.workers().await.unwrap();
    let versions: Vec<_> = workers.into_iter().map(|worker| (worker.pid, worker.version)).collect();
    let version = format!("{}, interface {INTERFACE}", outlast_core::VERSION);
    assert_eq!(versions, [(4_001, None), (4_000 + INTERFACE, Some(version))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "others have to work for longer than a step waits for a lock")]
async fn a_migration_that_waits_for_a_lock_lets_others_work() {
    let (url, schema) = url();
    let world = open(&url, INTERFACE).await.unwrap();
    let session = SessionId::from_bits(1);
    world.join(join(session, INTERFACE)).await.unwrap();
    // As a dump of the database has it for as long as it takes.
    let reader = open(&url, INTERFACE).await.unwrap();
    let connection = reader.store().pool.get().await.unwrap();
    let lock = format!("BEGIN; LOCK TABLE {}.runs IN ACCESS SHARE MODE", quoted(&schema));
    connection.batch_execute(&lock).await.unwrap();
    let (store, steps) = (world.store().clone(), steps(INTERFACE + 1));
    let migrated = tokio::spawn({
        let schema = schema.clone();
        async move { bring_up(&store, &schema, &steps).await }
    });
    // Many times as long as one try waits.
    let begun = std::time::Instant::now();
    let mut first = 1_000;
    while begun.elapsed() < LOCK_WAIT * 8 {
        work(&world, session, first).await;
        first += RUNS;
    }
    assert!(!migrated.is_finished(), "the table is locked");
    connection.batch_execute("COMMIT").await.unwrap();
    migrated.await.unwrap().unwrap();
    work(&world, session, first).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_of_a_dead_worker_does_not_hinder_a_migration_when_its_time_is_over() {
    let (url, schema) = url();
    let old = open(&url, INTERFACE).await.unwrap();
    let [dead, next] = [1, 2].map(SessionId::from_bits);
    old.join(Join { time: Duration::ZERO, ..join(dead, INTERFACE) }).await.unwrap();
    old.start(vec![new_start(1)]).await.unwrap().remove(0).unwrap();
    bring_up(old.store(), &schema, &steps(INTERFACE + 2)).await.unwrap();
    // Its row is there until somebody takes it over.
    let new = open(&url, INTERFACE + 2).await.unwrap();
    assert!(new.workers().await.unwrap().is_empty());
    new.join(join(next, INTERFACE + 2)).await.unwrap();
    new.takeover(next).await.unwrap();
    let left = format!("SELECT count(*) FROM {}.sessions", quoted(&schema));
    assert_eq!(new.store().call(&left, &[]).await.unwrap()[0].get::<_, i64>(0), 1);
}
