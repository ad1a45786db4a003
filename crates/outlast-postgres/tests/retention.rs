//! Forgetting what is old while work goes on: a part at a time, in nobody's way, wholly, and nothing else; and the
//! room that it leaves is found by the server's own vacuum.
//!
//! `OUTLAST_RETENTION_RUNS=1000000` makes it as large as one likes; the figures are printed.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "a test that tells how long calls took")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::big::Big;
use common::{LONG, Place, claim, commit, completed, join, new_start, start, step, until};
use outlast_core::{Report, RunId, RunQuery, SessionId, Status, Then, Turn, World, WorldError};
use outlast_postgres::PostgresWorld;
use outlast_testkit::TestClock;
use tokio_postgres::Client;

const SESSION: SessionId = SessionId::from_bits(1);

/// Turns of the run with a long history: more than one statement sweeps away.
const LONG_TURNS: u32 = 50_000;

fn size() -> Big {
    let ended = std::env::var("OUTLAST_RETENTION_RUNS").map_or(20_000, |runs| runs.parse().unwrap());
    Big { from: 0, ended, waiting: 2_000 }
}

async fn number(client: &Client, sql: String) -> i64 {
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

/// Makes the history of a run long.
async fn lengthen(client: &Client, place: &Place, run: RunId) {
    let sql = format!(
        "INSERT INTO {}.turns (run, seq, next_seq, id, at, build, events) \
         SELECT '{run}', n, n + 1, 'turn_' || n, 0, '', '[]' FROM generate_series(2, {LONG_TURNS}) AS n",
        place.schema
    );
    client.batch_execute(&sql).await.unwrap();
}

/// One run from its start to its end; answers the slowest of the calls.
async fn one_run(world: &PostgresWorld, number: u128) -> Duration {
    let mut slowest = Duration::ZERO;
    let mut watch = Instant::now();
    let mut lap = || {
        slowest = slowest.max(watch.elapsed());
        watch = Instant::now();
    };
    let run = RunId::from_bits(u128::MAX - number);
    start(world, run).await;
    lap();
    for claimed in claim(world, SESSION).await {
        lap();
        let hold = step(claimed.run, claimed.turn, claimed.seq, number << 8, Then::Hold);
        let end = step(claimed.run, hold.id, claimed.seq + 1, number << 8 | 1, Then::End(Status::Completed));
        commit(world, SESSION, hold).await.unwrap();
        lap();
        commit(world, SESSION, Turn { events: vec![completed()], ..end }).await.unwrap();
        lap();
    }
    world.beat(SESSION, &Report::default(), &[]).await.unwrap();
    lap();
    slowest
}

/// Works until it is told to stop; answers how many runs that were, and the slowest call.
async fn work(world: Arc<PostgresWorld>, stops: Arc<AtomicBool>) -> (u128, Duration) {
    let (mut runs, mut slowest) = (0, Duration::ZERO);
    while !stops.load(Ordering::Relaxed) {
        runs += 1;
        slowest = slowest.max(one_run(&world, runs).await);
    }
    (runs, slowest)
}

/// Forgets half of what ended, as a worker does; prints how long the calls took.
async fn forget(world: &PostgresWorld, big: Big) -> u64 {
    let (before, mut after, mut forgotten) = (big.at(big.ended / 2), None, 0);
    let mut times = Vec::new();
    loop {
        let watch = Instant::now();
        let pruned = world.prune(before, after, 100).await.unwrap();
        times.push(watch.elapsed());
        assert!(pruned.runs <= 100);
        forgotten += pruned.runs;
        after = pruned.next;
        if after.is_none_or(|run| run > big.id(big.ended)) {
            break;
        }
    }
    times.sort_unstable();
    let (median, slowest) = (times[times.len() / 2], times[times.len() - 1]);
    eprintln!("{forgotten} runs in {} calls; median {median:?}, slowest {slowest:?}", times.len());
    forgotten
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_runs_go_while_work_goes_on() {
    let server = throwaway::Postgres::builder().quick().setting("autovacuum_naptime", "1").start().unwrap();
    let place = Place::on(&server.url(), TestClock::new());
    let big = size();
    let world = Arc::new(place.open_real().await);
    big.fill(&place).await;
    let client = place.connect().await;
    lengthen(&client, &place, big.id(1_500)).await;
    join(&world, SESSION, LONG).await;
    let stops = Arc::new(AtomicBool::new(false));
    let working = tokio::spawn(work(world.clone(), stops.clone()));
    let forgotten = forget(&world, big).await;
    stops.store(true, Ordering::Relaxed);
    let (worked, slowest) = working.await.unwrap();
    eprintln!("meanwhile {worked} runs were done, the slowest call took {slowest:?}");

    assert_eq!(forgotten, u64::from(big.ended / 2));
    let schema = &place.schema;
    let runs = number(&client, format!("SELECT count(*) FROM {schema}.runs")).await;
    assert_eq!(runs, i64::from(big.ended / 2 + big.waiting) + worked as i64, "nothing else is forgotten");
    for table in ["turns", "inbox", "tags"] {
        let orphans = format!(
            "SELECT count(*) FROM {schema}.{table} t WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.id = t.run)"
        );
        assert_eq!(number(&client, orphans).await, 0, "of {table} all goes");
    }
    assert_eq!(number(&client, format!("SELECT count(*) FROM {schema}.leftovers")).await, 0);
    assert!(matches!(world.run(big.id(0)).await, Err(WorldError::NotFound(_))));
    world.run(big.id(big.ended / 2)).await.unwrap();
    vacuumed(&client, &place).await;
}

/// Waits until the dead rows are gone, and looks whether the rows that change all the time change in place.
async fn vacuumed(client: &Client, place: &Place) {
    let statistics = format!(
        "SELECT relname::text, n_dead_tup, n_live_tup, autovacuum_count, n_tup_upd, n_tup_hot_upd \
         FROM pg_stat_user_tables WHERE schemaname = '{}' AND relname = ANY ($1)",
        place.schema
    );
    until("the dead rows are vacuumed", async || {
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
        eprintln!("{name}: {in_place} of {updates} updates were in place");
        assert!(name == "runs" || in_place * 10 >= updates * 8, "{name}: {in_place} of {updates}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_what_is_being_forgotten() {
    let server = throwaway::Postgres::builder().quick().start().unwrap();
    let place = Place::on(&server.url(), TestClock::new());
    let big = Big { from: 0, ended: 2_000, waiting: 100 };
    let world = place.open_real().await;
    big.fill(&place).await;
    join(&world, SESSION, LONG).await;
    one_run(&world, 1).await;
    // A part that has been forgotten and is not committed yet, on a connection that counts elsewhere.
    let mut pruner = apart(&place).await;
    let forgetting = pruner.transaction().await.unwrap();
    let prune = format!("SELECT runs FROM {}.prune_v2($1, '', 1000, 20000)", place.schema);
    let forgotten: i64 = forgetting.query_one(&prune, &[&big.at(2_000).as_micros()]).await.unwrap().get(0);
    assert_eq!(forgotten, 1_000);
    // What had to wait would be given up in the end, and refused.
    one_run(&world, 2).await;
    world.start(vec![new_start(RunId::from_bits(u128::MAX))]).await.unwrap();
    world.takeover(SESSION).await.unwrap();
    let query = RunQuery { limit: 10, ..RunQuery::default() };
    assert_eq!(world.runs(query).await.unwrap().runs.len(), 10);
    world.run(big.id(0)).await.unwrap();
    world.counts().await.unwrap();
    forgetting.rollback().await.unwrap();
    world.run(big.id(0)).await.unwrap();
}

/// A connection that shares its slot of the counts with no other.
async fn apart(place: &Place) -> Client {
    loop {
        let client = place.connect().await;
        let shared = "SELECT count(*) FROM pg_stat_activity WHERE pid % 64 = pg_backend_pid() % 64";
        if number(&client, shared.into()).await == 1 {
            return client;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_started_again_has_nothing_of_what_was_left_of_it() {
    let place = Place::new(TestClock::new());
    let world = place.open().await;
    join(&world, SESSION, LONG).await;
    let keyed = |run: RunId| {
        let key = outlast_core::StartKey { text: run.to_string(), digest: 1, window: None };
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
    // A part of what they had is swept away: their messages and last turns go before the first turn does.
    let client = place.connect().await;
    let schema = &place.schema;
    let list = runs.iter().rev().map(|run| format!("'{run}'")).collect::<Vec<_>>().join(", ");
    let forget = format!(
        "INSERT INTO {schema}.turns SELECT run, n, n + 1, 'turn_' || n, at, build, events \
             FROM {schema}.turns, generate_series(1, 20) AS n; \
         INSERT INTO {schema}.inbox (run, position, id, at, kind) SELECT run, n, n, 0, 'wake' \
             FROM {schema}.turns, generate_series(1, 9) AS n WHERE seq = 0; \
         DELETE FROM {schema}.runs; INSERT INTO {schema}.leftovers SELECT DISTINCT run FROM {schema}.turns"
    );
    client.batch_execute(&forget).await.unwrap();
    let sweep = |rows: u32| format!("SELECT {schema}.sweep_v2(ARRAY[{list}], {rows}, true)");
    assert!(!client.query_one(&sweep(40), &[]).await.unwrap().get::<_, bool>(0));
    let first = format!("SELECT count(*) FROM {schema}.turns WHERE seq = 0");
    assert_eq!(number(&client, first.clone()).await, 3, "the first turns are the last to go");

    for starts in again {
        for answer in world.start(starts).await.unwrap() {
            answer.unwrap();
        }
    }
    assert_eq!(number(&client, first).await, 4);
    assert_eq!(number(&client, format!("SELECT count(*) FROM {schema}.turns")).await, 4);
    assert_eq!(number(&client, format!("SELECT count(*) FROM {schema}.inbox")).await, 0);
    // What is swept now finds nothing.
    client.query_one(&format!("SELECT {schema}.sweep_leftovers_v2(100)"), &[]).await.unwrap();
    assert_eq!(number(&client, format!("SELECT count(*) FROM {schema}.turns")).await, 4);
    assert_eq!(claim(&world, SESSION).await.len(), 4);
}
