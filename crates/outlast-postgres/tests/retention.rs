//! Pruning while workers work: it deletes old runs completely and nothing else, a part at a time, without delaying
//! other calls; and autovacuum reclaims the space.
//!
//! `OUTLAST_RETENTION_RUNS=1000000` sets the number of runs; the measured times are printed.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "measures how long calls take")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::large_schema::LargeSchema;
use common::{
    NO_EXPIRY, TestSchema, claim, commit, completed, join, new_start, one_event_turn, start, wait_until,
};
use outlast_core::{Report, RunId, RunQuery, SessionId, Status, Then, Turn, World, WorldError};
use outlast_postgres::PostgresWorld;
use outlast_testkit::TestClock;
use tokio_postgres::Client;

const SESSION: SessionId = SessionId::from_bits(1);

/// The number of turns of the run with a long history: more than one statement deletes.
const LONG_TURNS: u32 = 50_000;

fn configured_size() -> LargeSchema {
    let ended = std::env::var("OUTLAST_RETENTION_RUNS").map_or(20_000, |runs| runs.parse().unwrap());
    LargeSchema { from: 0, ended, waiting: 2_000 }
}

/// The number that a query returns.
async fn query_number(client: &Client, sql: String) -> i64 {
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

/// Adds many turns to the history of a run.
async fn add_turns(client: &Client, test_schema: &TestSchema, run: RunId) {
    let sql = format!(
        "INSERT INTO {}.turns (run, seq, next_seq, id, at, build, events) \
         SELECT '{run}', n, n + 1, 'turn_' || n, 0, '', '[]' FROM generate_series(2, {LONG_TURNS}) AS n",
        test_schema.schema
    );
    client.batch_execute(&sql).await.unwrap();
}

/// Executes one run from its start to its end. Returns the duration of the slowest call.
async fn one_run(world: &PostgresWorld, number: u128) -> Duration {
    let mut slowest = Duration::ZERO;
    let mut stopwatch = Instant::now();
    let mut measure = || {
        slowest = slowest.max(stopwatch.elapsed());
        stopwatch = Instant::now();
    };
    let run = RunId::from_bits(u128::MAX - number);
    start(world, run).await;
    measure();
    for claimed in claim(world, SESSION).await {
        measure();
        let hold = one_event_turn(claimed.run, claimed.turn, claimed.seq, number << 8, Then::Hold);
        let end = one_event_turn(
            claimed.run,
            hold.id,
            claimed.seq + 1,
            number << 8 | 1,
            Then::End(Status::Completed),
        );
        commit(world, SESSION, hold).await.unwrap();
        measure();
        commit(world, SESSION, Turn { events: vec![completed()], ..end }).await.unwrap();
        measure();
    }
    world.beat(SESSION, &Report::default(), &[]).await.unwrap();
    measure();
    slowest
}

/// Executes runs until `stop` is set. Returns their number, and the duration of the slowest call.
async fn work_until_stopped(world: Arc<PostgresWorld>, stop: Arc<AtomicBool>) -> (u128, Duration) {
    let (mut runs, mut slowest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        runs += 1;
        slowest = slowest.max(one_run(&world, runs).await);
    }
    (runs, slowest)
}

/// Deletes half of the ended runs, as a worker does. Prints how long the calls took.
async fn prune_half(world: &PostgresWorld, large: LargeSchema) -> u64 {
    let (before, mut after, mut deleted) = (large.at(large.ended / 2), None, 0);
    let mut times = Vec::new();
    loop {
        let stopwatch = Instant::now();
        let pruned = world.prune(before, after, 100).await.unwrap();
        times.push(stopwatch.elapsed());
        assert!(pruned.runs <= 100);
        deleted += pruned.runs;
        after = pruned.next;
        if after.is_none_or(|run| run > large.id(large.ended)) {
            break;
        }
    }
    times.sort_unstable();
    let (median, slowest) = (times[times.len() / 2], times[times.len() - 1]);
    eprintln!("{deleted} runs in {} calls; median {median:?}, slowest {slowest:?}", times.len());
    deleted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_runs_are_deleted_completely_while_workers_work() {
    let server = throwaway::Postgres::builder().quick().setting("autovacuum_naptime", "1").start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    let large = configured_size();
    let world = Arc::new(test_schema.open_real_time().await);
    large.fill(&test_schema).await;
    let client = test_schema.connect().await;
    add_turns(&client, &test_schema, large.id(1_500)).await;
    join(&world, SESSION, NO_EXPIRY).await;
    let stop = Arc::new(AtomicBool::new(false));
    let working = tokio::spawn(work_until_stopped(world.clone(), stop.clone()));
    let deleted = prune_half(&world, large).await;
    stop.store(true, Ordering::Relaxed);
    let (worked, slowest) = working.await.unwrap();
    eprintln!("meanwhile {worked} runs were executed, the slowest call took {slowest:?}");

    assert_eq!(deleted, u64::from(large.ended / 2));
    let schema = &test_schema.schema;
    let runs = query_number(&client, format!("SELECT count(*) FROM {schema}.runs")).await;
    assert_eq!(runs, i64::from(large.ended / 2 + large.waiting) + worked as i64, "nothing else is deleted");
    for table in ["turns", "inbox", "tags"] {
        let orphans = format!(
            "SELECT count(*) FROM {schema}.{table} t WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.id = t.run)"
        );
        assert_eq!(query_number(&client, orphans).await, 0, "no row of {table} is left");
    }
    assert_eq!(query_number(&client, format!("SELECT count(*) FROM {schema}.leftovers")).await, 0);
    assert!(matches!(world.run(large.id(0)).await, Err(WorldError::NotFound(_))));
    world.run(large.id(large.ended / 2)).await.unwrap();
    check_vacuumed(&client, &test_schema).await;
}

/// Waits until autovacuum has removed the dead rows, and checks that frequent updates are HOT updates.
async fn check_vacuumed(client: &Client, test_schema: &TestSchema) {
    let statistics = format!(
        "SELECT relname::text, n_dead_tup, n_live_tup, autovacuum_count, n_tup_upd, n_tup_hot_upd \
         FROM pg_stat_user_tables WHERE schemaname = '{}' AND relname = ANY ($1)",
        test_schema.schema
    );
    wait_until("the dead rows are vacuumed", async || {
        let tables =
            client.query(&statistics, &[&["runs", "turns", "tags", "inbox"].as_slice()]).await.unwrap();
        tables.iter().all(|table| {
            let [dead, live, vacuums] = [1, 2, 3].map(|column| table.get::<_, i64>(column));
            vacuums > 0 && dead <= 50 + live / 10
        })
    })
    .await;
    for table in client.query(&statistics, &[&["sessions", "counts", "runs"].as_slice()]).await.unwrap() {
        let (name, updates, in_place): (&str, i64, i64) = (table.get(0), table.get(4), table.get(5));
        eprintln!("{name}: {in_place} of {updates} updates were HOT updates");
        assert!(name == "runs" || in_place * 10 >= updates * 8, "{name}: {in_place} of {updates}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_waits_for_a_pruning_transaction() {
    let server = throwaway::Postgres::builder().quick().start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    let large = LargeSchema { from: 0, ended: 2_000, waiting: 100 };
    let world = test_schema.open_real_time().await;
    large.fill(&test_schema).await;
    join(&world, SESSION, NO_EXPIRY).await;
    one_run(&world, 1).await;
    // A transaction has deleted runs and is not committed yet. Its connection uses another slot of the counts.
    let mut pruner = connection_with_own_slot(&test_schema).await;
    let pruning = pruner.transaction().await.unwrap();
    let prune = format!("SELECT runs FROM {}.prune_v3($1, '', 1000, 20000)", test_schema.schema);
    let deleted: i64 = pruning.query_one(&prune, &[&large.at(2_000).as_micros()]).await.unwrap().get(0);
    assert_eq!(deleted, 1_000);
    // A call that had to wait would fail with a timeout.
    one_run(&world, 2).await;
    world.start(vec![new_start(RunId::from_bits(u128::MAX))]).await.unwrap();
    world.takeover(SESSION).await.unwrap();
    let query = RunQuery { limit: 10, ..RunQuery::default() };
    assert_eq!(world.runs(query).await.unwrap().runs.len(), 10);
    world.run(large.id(0)).await.unwrap();
    world.counts().await.unwrap();
    pruning.rollback().await.unwrap();
    world.run(large.id(0)).await.unwrap();
}

/// A connection that shares its slot of the counts with no other connection.
async fn connection_with_own_slot(test_schema: &TestSchema) -> Client {
    loop {
        let client = test_schema.connect().await;
        let shared = "SELECT count(*) FROM pg_stat_activity WHERE pid % 64 = pg_backend_pid() % 64";
        if query_number(&client, shared.into()).await == 1 {
            return client;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_started_again_has_no_leftovers_of_the_deleted_one() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open().await;
    join(&world, SESSION, NO_EXPIRY).await;
    let keyed = |run: RunId| {
        let key = outlast_core::StartKey {
            text: run.to_string(),
            digest: 1,
            window: None,
            policy: Default::default(),
        };
        outlast_core::Start { key: Some(key), ..new_start(run) }
    };
    let runs = [1, 2, 3, 4].map(RunId::from_bits);
    let again = [
        vec![new_start(runs[0])],
        vec![new_start(runs[1]), new_start(RunId::from_bits(9))],
        vec![keyed(runs[2])],
    ];
    for run in runs {
        start(&world, run).await;
    }
    // Delete a part of the leftovers: messages and the last turns are deleted before the first turn.
    let client = test_schema.connect().await;
    let schema = &test_schema.schema;
    let list = runs.iter().rev().map(|run| format!("'{run}'")).collect::<Vec<_>>().join(", ");
    let delete_runs = format!(
        "INSERT INTO {schema}.turns SELECT run, n, n + 1, 'turn_' || n, at, build, events \
             FROM {schema}.turns, generate_series(1, 20) AS n; \
         INSERT INTO {schema}.inbox (run, position, id, at, kind) SELECT run, n, n, 0, 'wake' \
             FROM {schema}.turns, generate_series(1, 9) AS n WHERE seq = 0; \
         DELETE FROM {schema}.runs; INSERT INTO {schema}.leftovers SELECT DISTINCT run FROM {schema}.turns"
    );
    client.batch_execute(&delete_runs).await.unwrap();
    let sweep = |rows: u32| format!("SELECT {schema}.sweep_v3(ARRAY[{list}], {rows}, true)");
    assert!(!client.query_one(&sweep(40), &[]).await.unwrap().get::<_, bool>(0));
    let first = format!("SELECT count(*) FROM {schema}.turns WHERE seq = 0");
    assert_eq!(query_number(&client, first.clone()).await, 3, "first turns are deleted last");

    for starts in again {
        for answer in world.start(starts).await.unwrap() {
            answer.unwrap();
        }
    }
    assert_eq!(query_number(&client, first).await, 4);
    assert_eq!(query_number(&client, format!("SELECT count(*) FROM {schema}.turns")).await, 4);
    assert_eq!(query_number(&client, format!("SELECT count(*) FROM {schema}.inbox")).await, 0);
    // There are no leftovers to delete any more.
    client.query_one(&format!("SELECT {schema}.sweep_leftovers_v3(100)"), &[]).await.unwrap();
    assert_eq!(query_number(&client, format!("SELECT count(*) FROM {schema}.turns")).await, 4);
    assert_eq!(claim(&world, SESSION).await.len(), 4);
}
