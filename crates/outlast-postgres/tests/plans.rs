//! How Postgres runs each statement, those inside the functions included: it seeks, however many runs there are.
//!
//! The server itself writes down every plan that it runs. They are those of tables that were never analysed,
//! and are made once: what is chosen for a small table is kept when it has grown.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;

use common::{LONG, Place, claim, commit, join, new_start, start, step};
use outlast_core::{
    Headers, MessageBody, MessageId, NewMessage, RunId, RunQuery, SessionId, Start, Status, Tags, Then,
    Timestamp, Turn, TurnId, World,
};
use outlast_postgres::PostgresWorld;
use outlast_testkit::TestClock;

/// Tables that stay small, so that reading all of one is no harm.
const SMALL: [&str; 7] = ["sessions", "counts", "skew", "leftovers", "settings", "migrations", "unmerged"];

const SESSION: SessionId = SessionId::from_bits(1);

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

/// Does everything that a world can do, at least once.
async fn do_everything(world: &PostgresWorld) {
    join(world, SESSION, LONG).await;
    let tagged: Tags = [("colour".to_owned(), "red".to_owned())].into();
    start(world, run(1)).await;
    let key = Some(outlast_core::StartKey { text: "k".into(), digest: 1, window: None });
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
        let turn = step(run(to), TurnId::from_bits(to), 1, 100 + to, then);
        Turn { consumed: u64::from(to != 2), fired_until: Some(Timestamp::from_micros(1)), ..turn }
    };
    commit(world, SESSION, turn(1, Then::Wait { wake_at: None, waits: Vec::new() })).await.unwrap();
    commit(world, SESSION, turn(2, Then::Release)).await.unwrap();
    let outbox =
        outlast_core::Outbox { messages: vec![message(3, 1)], tags: tagged.clone(), ..Default::default() };
    let far = Turn { outbox: Some(Box::new(outbox)), ..turn(4, Then::Hold) };
    commit(world, SESSION, far).await.unwrap();
    world.held(SESSION).await.unwrap();
    assert_eq!(claim(world, SESSION).await.len(), 2);
    let details = Some(outlast_core::Payload::null());
    let op = outlast_core::OpNumber(1);
    let details = [outlast_core::HeartbeatDetails { run: run(4), op, attempt: 1, details }];
    world.beat(SESSION, &outlast_core::Report::default(), &details).await.unwrap();
    world.takeover(SESSION).await.unwrap();
    assert!(world.resume(run(1)).await.is_err());
    world.histories(&[run(1)]).await.unwrap();
    look_at_everything(world, &tagged).await;
    world.leave(SESSION).await.unwrap();
    world.prune(Timestamp::NEVER, None, 10).await.unwrap();
}

async fn look_at_everything(world: &PostgresWorld, tagged: &Tags) {
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
    ];
    for query in queries {
        world.runs(query).await.unwrap();
    }
    world.run(run(1)).await.unwrap();
    world.history(run(1), 0, 10).await.unwrap();
    world.inbox(run(1), 0).await.unwrap();
    world.ended(run(1), Timestamp::from_micros(0)).await.unwrap();
    world.counts().await.unwrap();
    world.workers().await.unwrap();
}

/// All that the server has written down.
fn log(server: &throwaway::Postgres) -> String {
    let files = std::fs::read_dir(server.folder()).unwrap().flatten();
    let logs = files.filter(|file| file.file_name().to_string_lossy().contains("log"));
    logs.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
}

/// A server that writes down every plan.
fn explaining() -> throwaway::postgres::Builder {
    throwaway::Postgres::builder()
        .quick()
        .setting("session_preload_libraries", "auto_explain")
        .setting("auto_explain.log_min_duration", "0")
        .setting("auto_explain.log_nested_statements", "on")
}

/// Inboxes have two indexes that begin with the run. Which one a planner without statistics prefers depends on how large
/// they happen to be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_looked_for_by_its_id_however_many_there_are_when_that_is_planned() {
    let server = explaining().setting("autovacuum", "off").start().unwrap();
    let place = Place::on(&server.url(), TestClock::new());
    start(&place.open_real().await, run(1)).await;
    let message = |id| {
        let body = MessageBody::Wake { op: None };
        NewMessage { id: MessageId::from_bits(id), run: run(1), body, headers: Headers::new() }
    };
    let mut next = 1;
    for size in [1, 10, 100, 300, 1_000] {
        // Plans belong to connections, and these are new.
        let world = place.open_real().await;
        let sent = world.send((next..next + size).map(message).collect()).await.unwrap();
        assert!(sent.iter().all(Result::is_ok));
        next += size;
    }
    let log = log(&server);
    assert!(log.contains("using inbox_id on inbox"), "messages are looked for");
    let by_run: BTreeSet<&str> =
        log.lines().filter(|line| line.contains("Filter: (id = ")).map(str::trim).collect();
    assert!(by_run.is_empty(), "every message of the run is read for each one that is sent: {by_run:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_reads_a_table_that_grows() {
    let server = explaining().start().unwrap();
    let place = Place::on(&server.url(), TestClock::new());
    let world = place.open().await;
    do_everything(&world).await;
    drop(world);
    let log = log(&server);
    let scans: BTreeSet<&str> =
        log.lines().filter(|line| line.contains("Seq Scan on")).map(str::trim).collect();
    let bad =
        scans.iter().filter(|line| !SMALL.iter().any(|small| line.contains(&format!("Scan on {small}"))));
    let bad: Vec<_> = bad.collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let seeks: BTreeSet<&str> =
        log.split("using ").skip(1).filter_map(|rest| rest.split_whitespace().next()).collect();
    let made_for_something = [
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
        "tags_pkey",
        "tags_by_value",
        "turns_pkey",
        "inbox_pkey",
        "inbox_id",
        "heartbeats_pkey",
    ];
    for index in made_for_something {
        assert!(seeks.contains(index), "nothing seeks by {index}: {seeks:#?}");
    }
}
