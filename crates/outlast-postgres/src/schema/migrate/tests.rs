//! Rolling upgrades: programs of two interfaces use one schema, and functions in use are not dropped.

#![allow(clippy::unwrap_used, reason = "a test")]

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
use crate::schema::statements::INTERFACE;

/// How many runs each world starts.
const RUNS: u128 = 60;

/// An additive migration: a column, an index that is built concurrently, and a new set of functions.
fn next_migration(interface: u32) -> Migration {
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

/// The migrations of this build, followed by additive ones up to the one that creates this interface.
fn migrations_up_to(interface: u32) -> Vec<Migration> {
    let known = MIGRATIONS.iter().map(|known| Migration { ..*known });
    known.chain((INTERFACE + 1..=interface).map(next_migration)).collect()
}

async fn open(url: &str, interface: u32) -> Result<PostgresWorld, WorldError> {
    PostgresWorld::open(url, PostgresOptions { interface, ..PostgresOptions::new() }).await
}

/// The URL of a new schema on the test server, and the schema's name.
fn new_schema() -> (String, String) {
    let schema = throwaway::postgres::new_schema_name("upgrade");
    (throwaway::postgres::schema_url(throwaway::postgres::for_tests(), &schema) + "&pool=2", schema)
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
        requester: None,
        ending: None,
    }
}

/// Commits a turn. Tries again while a migration has the table locked.
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

/// Starts [`RUNS`] runs, and completes those that it claims.
async fn work_off(world: &PostgresWorld, session: SessionId, first: u128) {
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
    let (url, schema) = new_schema();
    let old = open(&url, INTERFACE).await.unwrap();
    let [first, second] = [1, 2].map(SessionId::from_bits);
    old.join(join(first, INTERFACE)).await.unwrap();
    // Migrate the schema while a worker of the old build works.
    let database = old.database().clone();
    let (migrated, ()) = futures_util::future::join(
        async { apply_missing(&database, &schema, &migrations_up_to(INTERFACE + 1)).await },
        work_off(&old, first, 1_000),
    )
    .await;
    migrated.unwrap();
    let new = open(&url, INTERFACE + 1).await.unwrap();
    new.join(join(second, INTERFACE + 1)).await.unwrap();
    futures_util::future::join(work_off(&old, first, 2_000), work_off(&new, second, 3_000)).await;
    let counts = new.counts().await.unwrap();
    assert_eq!(counts.values().sum::<u64>(), 3 * RUNS as u64, "{counts:?}");
    assert!(counts[&Status::Completed] > 2 * RUNS as u64 - 10, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_a_joined_worker_calls_are_not_dropped() {
    let (url, schema) = new_schema();
    let old = open(&url, INTERFACE).await.unwrap();
    let session = SessionId::from_bits(1);
    old.join(join(session, INTERFACE)).await.unwrap();
    let database = old.database().clone();
    apply_missing(&database, &schema, &migrations_up_to(INTERFACE + 1)).await.unwrap();
    let error = apply_missing(&database, &schema, &migrations_up_to(INTERFACE + 2)).await.unwrap_err();
    assert!(
        matches!(&error, WorldError::Conflict(why) if why.contains(&format!("process {} on host{INTERFACE}", 4_000 + INTERFACE))),
        "{error}"
    );
    old.leave(session).await.unwrap();
    apply_missing(&database, &schema, &migrations_up_to(INTERFACE + 2)).await.unwrap();
    let error = open(&url, INTERFACE).await.unwrap_err();
    assert!(matches!(&error, WorldError::Conflict(why) if why.contains("newer build")), "{error}");
    let remaining = "SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = $1 AND p.proname LIKE '%\\_v' || $2";
    let count = database.call(remaining, &[&schema, &INTERFACE.to_string()]).await.unwrap();
    assert_eq!(count[0].get::<_, i64>(0), 0);
    let new = open(&url, INTERFACE + 2).await.unwrap();
    new.join(join(session, INTERFACE + 2)).await.unwrap();
    work_off(&new, session, 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_the_first_interface_has_no_version() {
    let (url, schema) = new_schema();
    let world = open(&url, INTERFACE).await.unwrap();
    let [first, second] = [1, 2].map(SessionId::from_bits);
    world.join(join(first, 1)).await.unwrap();
    // What a program of that interface wrote, whose functions are dropped since.
    let forget = format!("UPDATE {}.sessions SET version = NULL WHERE id = $1", quoted(&schema));
    world.database().call(&forget, &[&first.to_string()]).await.unwrap();
    world.join(join(second, INTERFACE)).await.unwrap();
    let workers = world.workers().await.unwrap();
    let versions: Vec<_> = workers.into_iter().map(|worker| (worker.pid, worker.version)).collect();
    let version = format!("{}, interface {INTERFACE}", outlast_core::VERSION);
    assert_eq!(versions, [(4_001, None), (4_000 + INTERFACE, Some(version))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "others must work for longer than a migration waits for a lock")]
async fn a_migration_that_waits_for_a_lock_lets_others_work() {
    let (url, schema) = new_schema();
    let world = open(&url, INTERFACE).await.unwrap();
    let session = SessionId::from_bits(1);
    world.join(join(session, INTERFACE)).await.unwrap();
    // A dump of the database takes the same lock.
    let reader = open(&url, INTERFACE).await.unwrap();
    let connection = reader.database().pool.get().await.unwrap();
    let lock = format!("BEGIN; LOCK TABLE {}.runs IN ACCESS SHARE MODE", quoted(&schema));
    connection.batch_execute(&lock).await.unwrap();
    let (database, migrations_up_to) = (world.database().clone(), migrations_up_to(INTERFACE + 1));
    let migrated = tokio::spawn({
        let schema = schema.clone();
        async move { apply_missing(&database, &schema, &migrations_up_to).await }
    });
    // Work for several times as long as one attempt of the migration waits.
    let begun = std::time::Instant::now();
    let mut first = 1_000;
    while begun.elapsed() < LOCK_TIMEOUT * 8 {
        work_off(&world, session, first).await;
        first += RUNS;
    }
    assert!(!migrated.is_finished(), "the table is locked");
    connection.batch_execute("COMMIT").await.unwrap();
    migrated.await.unwrap().unwrap();
    work_off(&world, session, first).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_session_of_a_dead_worker_does_not_prevent_a_migration() {
    let (url, schema) = new_schema();
    let old = open(&url, INTERFACE).await.unwrap();
    let [dead, next] = [1, 2].map(SessionId::from_bits);
    old.join(Join { time: Duration::ZERO, ..join(dead, INTERFACE) }).await.unwrap();
    old.start(vec![new_start(1)]).await.unwrap().remove(0).unwrap();
    apply_missing(old.database(), &schema, &migrations_up_to(INTERFACE + 2)).await.unwrap();
    // The row of the session remains until another worker takes it over.
    let new = open(&url, INTERFACE + 2).await.unwrap();
    assert!(new.workers().await.unwrap().is_empty());
    new.join(join(next, INTERFACE + 2)).await.unwrap();
    new.takeover(next).await.unwrap();
    let count = format!("SELECT count(*) FROM {}.sessions", quoted(&schema));
    assert_eq!(new.database().call(&count, &[]).await.unwrap()[0].get::<_, i64>(0), 1);
}
