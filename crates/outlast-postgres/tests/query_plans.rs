//! The plan of every statement, including those inside functions, uses an index.
//!
//! The server logs every plan that it executes. The tables were never analysed, and a plan is made once: the plan for a
//! small table is still used when the table has grown.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;

use common::{NO_EXPIRY, TestSchema, claim, commit, join, new_start, one_event_turn, request, start};
use outlast_core::{
    ClaimRequest, FailureQuery, FlagFilter, Headers, ListOrder, MessageBody, MessageId, NewMessage,
    NewRecord, RecordQuery, RunId, RunQuery, SessionId, Start, Status, Tags, Then, Timestamp, Turn, TurnId,
    World,
};
use outlast_postgres::PostgresWorld;
use outlast_testkit::TestClock;

/// Tables that stay small, and may be scanned sequentially.
const SMALL: [&str; 7] = ["sessions", "counts", "skew", "leftovers", "settings", "migrations", "unmerged"];

const SESSION: SessionId = SessionId::from_bits(1);

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

/// Makes every call of a world at least once.
async fn call_everything(world: &PostgresWorld) {
    join(world, SESSION, NO_EXPIRY).await;
    let tagged: Tags = [("colour".to_owned(), "red".to_owned())].into();
    start(world, run(1)).await;
    let key = Some(outlast_core::StartKey {
        text: "k".into(),
        digest: 1,
        window: None,
        policy: Default::default(),
    });
    let later = Some(Timestamp::from_micros(i64::MAX / 2));
    let starts = vec![
        Start { key, tags: tagged.clone(), ..new_start(run(2)) },
        Start { not_before: later, ..new_start(run(3)) },
        new_start(run(4)),
    ];
    world.start(starts).await.unwrap();
    let body = MessageBody::Wake { op: None };
    let message = |id, to| NewMessage {
        id: MessageId::from_bits(id),
        run: run(to),
        body: body.clone(),
        headers: Headers::new(),
    };
    world.send(vec![message(1, 1), message(2, 4)]).await.unwrap();
    let claimed = claim(world, SESSION).await;
    assert_eq!(claimed.len(), 3);
    let turn = |to, then| {
        let turn = one_event_turn(run(to), TurnId::from_bits(to), 1, 100 + to, then);
        Turn { consumed: u64::from(to != 2), fired_until: Some(Timestamp::from_micros(1)), ..turn }
    };
    commit(world, SESSION, turn(1, Then::Wait { wake_at: None, waits: Vec::new() })).await.unwrap();
    commit(world, SESSION, turn(2, Then::Release)).await.unwrap();
    let outbox =
        outlast_core::Outbox { messages: vec![message(3, 1)], tags: tagged.clone(), ..Default::default() };
    let sending = Turn { outbox: Some(Box::new(outbox)), ..turn(4, Then::Hold) };
    commit(world, SESSION, sending).await.unwrap();
    world.held(SESSION).await.unwrap();
    assert_eq!(claim(world, SESSION).await.len(), 2);
    let details = Some(outlast_core::Payload::null());
    let op = outlast_core::OpNumber(1);
    let details = [outlast_core::HeartbeatDetails { run: run(4), op, attempt: 1, details }];
    world.beat(SESSION, &outlast_core::Report::default(), &details).await.unwrap();
    world.takeover(SESSION).await.unwrap();
    assert!(world.resume(run(1)).await.is_err());
    world.histories(&[run(1)]).await.unwrap();
    read_everything(world, &tagged).await;
    world.leave(SESSION).await.unwrap();
    world.prune(Timestamp::NEVER, None, 10).await.unwrap();
}

async fn read_everything(world: &PostgresWorld, tagged: &Tags) {
    let all = RunQuery { limit: 10, ..RunQuery::default() };
    let queries = [
        all.clone(),
        RunQuery { statuses: vec![Status::Running, Status::Pending], ..all.clone() },
        RunQuery { workflow: Some("w".into()), ..all.clone() },
        RunQuery { tags: tagged.clone(), ..all.clone() },
        RunQuery { parent: Some(run(1)), ..all.clone() },
        RunQuery { root: Some(run(1)), ..all.clone() },
        RunQuery { key: Some("k".into()), ..all.clone() },
        RunQuery { text: Some("w".into()), ..all.clone() },
        RunQuery { created_from: Some(Timestamp::from_micros(1)), ..all.clone() },
        RunQuery { ended_before: Some(Timestamp::NEVER), ..all.clone() },
        RunQuery { flag: Some(FlagFilter::Retrying), ..all.clone() },
        RunQuery { flag: Some(FlagFilter::Cancelling), ..all.clone() },
    ];
    for query in queries {
        world.runs(query).await.unwrap();
    }
    for fingerprint in [None, Some(1)] {
        world.failures(FailureQuery { fingerprint, limit: 10, ..FailureQuery::default() }).await.unwrap();
    }
    world.flag_counts().await.unwrap();
    world.queues().await.unwrap();
    use_records(world).await;
    world.runs_by_id(&[run(1), run(2)]).await.unwrap();
    world.event_count(run(1)).await.unwrap();
    world.run(run(1)).await.unwrap();
    world.history(run(1), 0, 10).await.unwrap();
    world.inbox(run(1), 0).await.unwrap();
    world.ended(run(1), Timestamp::from_micros(0)).await.unwrap();
    world.counts().await.unwrap();
    world.workers().await.unwrap();
}

async fn use_records(world: &PostgresWorld) {
    let record = |id: &str| NewRecord { id: id.into(), body: "{}".into() };
    world.put_records("s", vec![record("a"), record("b")]).await.unwrap();
    assert!(!world.put_record_if_absent("s", record("a")).await.unwrap());
    world.record("s", "a").await.unwrap();
    for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
        world.records(RecordQuery { order, ..RecordQuery::of_space("s") }).await.unwrap();
    }
    world.delete_records("s", &["a".into()]).await.unwrap();
}

/// The whole log of the server.
fn log(server: &throwaway::Postgres) -> String {
    let files = std::fs::read_dir(server.folder()).unwrap().flatten();
    let logs = files.filter(|file| file.file_name().to_string_lossy().contains("log"));
    logs.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
}

/// A server that logs every plan.
fn server_that_logs_plans() -> throwaway::postgres::Builder {
    throwaway::Postgres::builder()
        .quick()
        .setting("session_preload_libraries", "auto_explain")
        .setting("auto_explain.log_min_duration", "0")
        .setting("auto_explain.log_nested_statements", "on")
}

/// The table of inboxes has two indexes that begin with the run. Which of them Postgres prefers without statistics
/// depends on their sizes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_found_by_its_id_whatever_the_size_of_the_inbox_at_planning_time() {
    let server = server_that_logs_plans().setting("autovacuum", "off").start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    start(&test_schema.open_real_time().await, run(1)).await;
    let message = |id| {
        let body = MessageBody::Wake { op: None };
        NewMessage { id: MessageId::from_bits(id), run: run(1), body, headers: Headers::new() }
    };
    let mut next = 1;
    for size in [1, 10, 100, 300, 1_000] {
        // A new connection makes new plans.
        let world = test_schema.open_real_time().await;
        let sent = world.send((next..next + size).map(message).collect()).await.unwrap();
        assert!(sent.iter().all(Result::is_ok));
        next += size;
    }
    let log = log(&server);
    assert!(log.contains("using inbox_id on inbox"), "messages are looked up");
    let by_run: BTreeSet<&str> =
        log.lines().filter(|line| line.contains("Filter: (id = ")).map(str::trim).collect();
    assert!(by_run.is_empty(), "each send reads all messages of the run: {by_run:?}");
}

/// A claim returns the first turns of new runs. The cost of a join with all first turns depends on the size of the
/// table when the plan is made, and the plan stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_turn_of_a_new_run_is_found_by_its_run_whatever_the_size_of_the_table_at_planning_time() {
    let server = server_that_logs_plans().setting("autovacuum", "off").start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    join(&test_schema.open_real_time().await, SESSION, NO_EXPIRY).await;
    let mut next = 1;
    for size in [1, 10, 100, 300, 1_000] {
        // A new connection makes new plans.
        let world = test_schema.open_real_time().await;
        let starts = (next..next + size).map(|number| new_start(run(number))).collect();
        assert!(world.start(starts).await.unwrap().iter().all(Result::is_ok));
        let request = ClaimRequest { limit: 1_000, ..request() };
        assert_eq!(world.claim(SESSION, request).await.unwrap().claimed.len() as u128, size);
        next += size;
    }
    let log = log(&server);
    assert!(log.contains("using turns_pkey on turns"), "first turns are looked up");
    let of_all_runs: BTreeSet<&str> =
        log.lines().filter(|line| line.contains("Index Cond: (seq = 0)")).map(str::trim).collect();
    assert!(of_all_runs.is_empty(), "a claim reads the first turns of all runs: {of_all_runs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_scans_a_growing_table_sequentially() {
    let server = server_that_logs_plans().start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    let world = test_schema.open().await;
    call_everything(&world).await;
    drop(world);
    let log = log(&server);
    let visit_nodes: BTreeSet<&str> =
        log.lines().filter(|line| line.contains("Seq Scan on")).map(str::trim).collect();
    let bad = visit_nodes
        .iter()
        .filter(|line| !SMALL.iter().any(|small| line.contains(&format!("Scan on {small}"))));
    let bad: Vec<_> = bad.collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let used_indexes: BTreeSet<&str> =
        log.split("using ").skip(1).filter_map(|rest| rest.split_whitespace().next()).collect();
    let expected_indexes = [
        "runs_pkey",
        "runs_key",
        "runs_ready",
        "runs_ends_without_code",
        "runs_overdue",
        "runs_held",
        "runs_unread",
        "runs_by_status",
        "runs_by_workflow",
        "runs_by_parent",
        "runs_by_root",
        "runs_retrying",
        "runs_cancelling",
        "runs_failed",
        "runs_by_fingerprint",
        "tags_pkey",
        "tags_by_value",
        "turns_pkey",
        "inbox_pkey",
        "inbox_id",
        "heartbeats_pkey",
        "records_pkey",
    ];
    for index in expected_indexes {
        assert!(used_indexes.contains(index), "no statement uses {index}: {used_indexes:#?}");
    }
}
