//! Another transaction locks a row, inserts a key, or a trigger raises an error: the turn that needs the row or key
//! waits or is rejected, and no other turn is affected.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;

use common::{
    NO_EXPIRY, TestSchema, commit_until_unblocked, completed, join, new_start, one_event_turn, request,
    start, wait_until,
};
use outlast_core::turn::BasedOn;
use outlast_core::{
    ClaimRequest, Claimed, Committed, Headers, MessageBody, MessageId, NewMessage, Outbox, RunId, SessionId,
    Start, StartKey, Status, SuspectRoom, Then, Turn, TurnId, World, WorldError,
};
use outlast_postgres::{PostgresWorld, start_within};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);

/// The number of runs besides the one that is blocked.
const NEIGHBOURS: u128 = 200;

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

/// A world with a session that holds the runs 1 to `count`.
async fn world_holding_runs(test_schema: &TestSchema, count: u128) -> (Arc<PostgresWorld>, Vec<Claimed>) {
    let world = Arc::new(test_schema.open_real_time().await);
    join(&world, SESSION, NO_EXPIRY).await;
    world.start((1..=count).map(|number| new_start(run(number))).collect()).await.unwrap();
    let suspects = SuspectRoom::Nothing;
    let all = ClaimRequest { limit: 1_000, suspects, ..request() };
    let claimed = world.claim(SESSION, all).await.unwrap().claimed;
    assert_eq!(claimed.len() as u128, count);
    (world, claimed)
}

/// A turn that completes a run.
fn end_turn(claimed: &Claimed) -> Turn {
    let turn = one_event_turn(
        claimed.run,
        claimed.turn,
        claimed.seq,
        10_000 + claimed.run.bits(),
        Then::End(Status::Completed),
    );
    Turn { events: vec![completed()], ..turn }
}

/// A turn that completes a run and sends a message to another one.
fn end_with_message(claimed: &Claimed, to: RunId) -> Turn {
    let body = MessageBody::Wake { op: None };
    let id = MessageId::from_bits(claimed.run.bits());
    let message = NewMessage { id, run: to, body, headers: Headers::new() };
    let outbox = Outbox { messages: vec![message], ..Outbox::default() };
    Turn { outbox: Some(Box::new(outbox)), ..end_turn(claimed) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_run_does_not_delay_others_and_continues_when_it_is_free() {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, claimed) = world_holding_runs(&test_schema, NEIGHBOURS + 1).await;
    let mut other = test_schema.connect().await;
    other.batch_execute("SET application_name = 'ledger'").await.unwrap();
    let open = other.transaction().await.unwrap();
    open.query(&format!("SELECT {}.send_to($1, 'h', '1')", test_schema.schema), &[&run(1).to_string()])
        .await
        .unwrap();

    let turns: Vec<Turn> = claimed.iter().map(end_turn).collect();
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(matches!(&answers[0], Err(WorldError::Blocked(_))), "{:?}", answers[0]);
    let done = answers.iter().filter(|answer| matches!(answer, Ok(Committed::Done))).count();
    assert_eq!(done as u128, NEIGHBOURS, "all others are written while the lock is held");

    // In a call of its own the turn waits for the lock, and the blocker is determined.
    let waiting = {
        let (world, turns) = (world.clone(), turns.clone());
        tokio::spawn(async move { commit_until_unblocked(&world, SESSION, &turns[..1]).await.remove(0) })
    };
    wait_until("the blocker is named", async || {
        let blocker = world.blocked_by(run(1)).await.unwrap().unwrap_or_default();
        blocker.contains("ledger") && blocker.contains("idle in transaction")
    })
    .await;
    open.commit().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(world.blocked_by(run(1)).await.unwrap(), None);
    let view = world.run(run(1)).await.unwrap();
    assert_eq!((view.status, view.sent), (Status::Completed, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_turn_that_sends_to_a_locked_run_waits_for_it() {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, claimed) = world_holding_runs(&test_schema, 4).await;
    let mut other = test_schema.connect().await;
    let open = other.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM {}.runs WHERE id = $1 FOR UPDATE", test_schema.schema);
    open.query(&lock, &[&run(4).to_string()]).await.unwrap();
    let body = MessageBody::Cancel { reason: "enough".into() };
    let message = NewMessage { id: MessageId::from_bits(1), run: run(4), body, headers: Headers::new() };
    let outbox = Some(Box::new(Outbox { messages: vec![message], ..Outbox::default() }));
    let turns = [Turn { outbox, ..end_turn(&claimed[0]) }, end_turn(&claimed[1]), end_turn(&claimed[2])];
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(matches!(&answers[0], Err(WorldError::Blocked(_))), "{:?}", answers[0]);
    assert!(answers[1..].iter().all(Result::is_ok));
    open.rollback().await.unwrap();
    commit_until_unblocked(&world, SESSION, &turns[..1]).await.remove(0).unwrap();
    assert_eq!(world.run(run(4)).await.unwrap().sent, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_start_whose_key_another_transaction_inserts_waits_for_it() {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, claimed) = world_holding_runs(&test_schema, 2).await;
    let key = |text: &str| {
        Some(StartKey { text: text.into(), digest: 1, window: None, policy: Default::default() })
    };
    let mut other = test_schema.connect().await;
    let open = other.transaction().await.unwrap();
    start_within(&open, &*world, Start { key: key("k"), ..new_start(run(90)) }).await.unwrap();
    let starting = |number: u128, text: &str| {
        let start = Start { key: key(text), ..new_start(run(number)) };
        let events = vec![start.event()];
        let turn = one_event_turn(run(number), TurnId::from_bits(1), 0, number, Then::Hold);
        Turn { events, based_on: BasedOn::Start(Box::new(start)), ..turn }
    };
    let turns = [starting(11, "k"), starting(12, "other"), end_turn(&claimed[0])];
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(matches!(&answers[0], Err(WorldError::Blocked(_))), "{:?}", answers[0]);
    assert!(answers[1..].iter().all(Result::is_ok), "{answers:?}");
    open.commit().await.unwrap();
    let answer = commit_until_unblocked(&world, SESSION, &turns[..1]).await.remove(0).unwrap();
    assert!(matches!(answer, Committed::Existed(started) if started.run == run(90)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_send_to_a_locked_run_wait_for_it_together() {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, claimed) = world_holding_runs(&test_schema, 40).await;
    let mut other = test_schema.connect().await;
    let open = other.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM {}.runs WHERE id = $1 FOR UPDATE", test_schema.schema);
    open.query(&lock, &[&run(40).to_string()]).await.unwrap();
    let turns: Vec<Turn> = claimed[..39].iter().map(|claimed| end_with_message(claimed, run(40))).collect();
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Err(WorldError::Blocked(_)))), "{answers:?}");
    let waiting = {
        let world = world.clone();
        tokio::spawn(async move {
            let mut calls = 0;
            loop {
                calls += 1;
                let answers = world.commit(SESSION, &turns).await.unwrap();
                if answers.iter().all(Result::is_ok) {
                    return calls;
                }
                let are_blocked = answers.iter().all(|answer| matches!(answer, Err(WorldError::Blocked(_))));
                assert!(are_blocked, "{answers:?}");
            }
        })
    };
    wait_until("the turns wait", async || world.blocked_by(run(1)).await.unwrap().is_some()).await;
    wait_until("the blocker of the other runs is known", async || {
        world.blocked_by(run(2)).await.unwrap().is_some()
    })
    .await;
    open.rollback().await.unwrap();
    let calls = waiting.await.unwrap();
    // Each call waits up to a second.
    assert!(calls < 60, "{calls} calls");
    assert_eq!(world.run(run(40)).await.unwrap().sent, 39);
    assert_eq!(world.blocked_by(run(2)).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_without_events_does_not_lock_its_session_while_it_waits() {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, claimed) = world_holding_runs(&test_schema, 21).await;
    let mut other = test_schema.connect().await;
    let open = other.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM {}.runs WHERE id = $1 FOR UPDATE", test_schema.schema);
    open.query(&lock, &[&run(1).to_string()]).await.unwrap();
    let release = one_event_turn(run(1), claimed[0].turn, claimed[0].seq, 10_001, Then::Release);
    let release = Turn { events: Vec::new(), ..release };
    let waiting = {
        let world = world.clone();
        tokio::spawn(async move { commit_until_unblocked(&world, SESSION, &[release]).await.remove(0) })
    };
    wait_until("the turns wait", async || world.blocked_by(run(1)).await.unwrap().is_some()).await;
    for claimed in &claimed[1..] {
        let answers = world.commit(SESSION, &[end_turn(claimed)]).await.unwrap();
        assert_eq!(answers, [Ok(Committed::Done)], "other turns of the session do not wait");
    }
    open.rollback().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(world.run(run(1)).await.unwrap().owner, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_transaction_that_locks_a_row_is_named_although_no_turn_waits_for_it() {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, _) = world_holding_runs(&test_schema, 5).await;
    start(&world, run(6)).await;
    let mut other = test_schema.connect().await;
    other.batch_execute("SET application_name = 'ledger'").await.unwrap();
    for (lock, is_named) in [("UPDATE", true), ("NO KEY UPDATE", true), ("SHARE", true), ("KEY SHARE", false)]
    {
        let open = other.transaction().await.unwrap();
        open.query(&format!("SELECT 1 FROM {}.runs FOR {lock}", test_schema.schema), &[]).await.unwrap();
        // Five runs that are held, and one that is ready.
        for number in 1..=6 {
            let blocker = world.blocked_by(run(number)).await.unwrap();
            assert_eq!(
                blocker.is_some_and(|blocker| blocker.contains("ledger")),
                is_named,
                "{lock}: {number}"
            );
        }
        open.rollback().await.unwrap();
        assert_eq!(world.blocked_by(run(1)).await.unwrap(), None);
    }
    let open = other.transaction().await.unwrap();
    open.query(&format!("SELECT {}.send_to($1, 'h', '1')", test_schema.schema), &[&run(6).to_string()])
        .await
        .unwrap();
    let blocker = world.blocked_by(run(6)).await.unwrap().unwrap_or_default();
    assert!(blocker.contains("ledger"), "{blocker}");
    assert_eq!(world.blocked_by(run(5)).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_several_transactions_lock_is_reported_as_locked() {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, _) = world_holding_runs(&test_schema, 1).await;
    let (mut one, mut two) = (test_schema.connect().await, test_schema.connect().await);
    let (one, two) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    for open in [&one, &two] {
        open.query(&format!("SELECT 1 FROM {}.runs FOR SHARE", test_schema.schema), &[]).await.unwrap();
    }
    let blocker = world.blocked_by(run(1)).await.unwrap().unwrap_or_default();
    assert!(blocker.contains("another transaction"), "{blocker}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_of_a_worker_is_not_named_as_a_blocker() {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, _) = world_holding_runs(&test_schema, 1).await;
    let (worker, other) = (test_schema.connect().await, test_schema.connect().await);
    let sql =
        format!(r#"SELECT "{}".lock_runs_v3(ARRAY['{}'], false), pg_sleep(3)"#, test_schema.schema, run(1));
    let locking = tokio::spawn(async move { worker.batch_execute(&sql).await });
    let free = format!("SELECT 1 FROM {}.runs FOR UPDATE SKIP LOCKED", test_schema.schema);
    wait_until("the row is locked", async || other.query(&free, &[]).await.unwrap().is_empty()).await;
    assert_eq!(world.blocked_by(run(1)).await.unwrap(), None);
    assert!(!locking.is_finished());
    locking.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "checks that not each turn waits, in real time")]
async fn a_locked_table_is_named_and_delays_a_call_only_once() {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, claimed) = world_holding_runs(&test_schema, NEIGHBOURS).await;
    let turns: Vec<Turn> = claimed.iter().map(end_turn).collect();
    let mut other = test_schema.connect().await;
    other.batch_execute("SET application_name = 'ledger'").await.unwrap();
    let open = other.transaction().await.unwrap();
    open.batch_execute(&format!("LOCK TABLE {}.runs IN EXCLUSIVE MODE", test_schema.schema)).await.unwrap();
    let started_at = std::time::Instant::now();
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Err(WorldError::Blocked(_)))), "{answers:?}");
    let alone = world.commit(SESSION, &turns[..1]).await.unwrap();
    assert!(matches!(&alone[0], Err(WorldError::Blocked(why)) if why.contains("ledger")), "{alone:?}");
    assert!(started_at.elapsed() < std::time::Duration::from_secs(9), "each of {NEIGHBOURS} turns waited");
    let blocker = world.blocked_by(run(3)).await.unwrap().unwrap_or_default();
    assert!(blocker.contains("ledger") && blocker.contains("locked the table runs"), "{blocker}");
    open.rollback().await.unwrap();
    assert!(commit_until_unblocked(&world, SESSION, &turns).await.iter().all(Result::is_ok));
    assert_eq!(world.blocked_by(run(3)).await.unwrap(), None);
}

/// Adds a trigger that rejects turns of run 2 with this code, the first `times` times.
async fn add_rejecting_trigger(test_schema: &TestSchema, times: u32, code: &str) {
    let trigger = format!(
        "CREATE SEQUENCE {0}.refusals MINVALUE 0 START 0;
         SELECT nextval('{0}.refusals');
         CREATE FUNCTION {0}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('{0}.refusals') <= {times} THEN
                RAISE EXCEPTION 'the ledger is closed' USING ERRCODE = '{code}';
            END IF;
            RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON {0}.turns FOR EACH ROW WHEN (NEW.run = '{1}') EXECUTE FUNCTION {0}.refuse()",
        test_schema.schema,
        run(2)
    );
    test_schema.connect().await.batch_execute(&trigger).await.unwrap();
}

/// How often the trigger was called.
async fn trigger_calls(test_schema: &TestSchema) -> i64 {
    let sql = format!("SELECT last_value FROM {}.refusals", test_schema.schema);
    test_schema.connect().await.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_a_trigger_rejects_for_a_while_is_written_later_and_others_immediately() {
    let test_schema = TestSchema::new(TestClock::new());
    let (world, claimed) = world_holding_runs(&test_schema, 3).await;
    // Once in the batch, and then alone.
    add_rejecting_trigger(&test_schema, 3, "P0001").await;
    let turns: Vec<Turn> = claimed.iter().map(end_turn).collect();
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    let error = answers[1].clone().unwrap_err();
    assert!(matches!(&error, WorldError::Blocked(why) if why.contains("the ledger is closed")), "{error}");
    commit_until_unblocked(&world, SESSION, &turns[1..2]).await.remove(0).unwrap();
    assert_eq!(world.run(run(2)).await.unwrap().status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_a_trigger_always_rejects_is_rejected_permanently_after_some_tries() {
    // The code that the trigger raises, and how often it may be called: after a conflict, each call repeats its
    // statement several times.
    for (code, calls_max) in [("P0001", 30), ("55000", 30), ("XX000", 30), ("40001", 21 * 30), ("23514", 4)] {
        let test_schema = TestSchema::new(TestClock::new());
        let (world, claimed) = world_holding_runs(&test_schema, 3).await;
        add_rejecting_trigger(&test_schema, u32::MAX, code).await;
        let turns: Vec<Turn> = claimed.iter().map(end_turn).collect();
        let answers = world.commit(SESSION, &turns).await.unwrap();
        assert!(answers[0].is_ok() && answers[2].is_ok(), "{code}: {answers:?}");
        let error = commit_until_unblocked(&world, SESSION, &turns[1..2]).await.remove(0).unwrap_err();
        assert!(
            matches!(&error, WorldError::Invalid(why) if why.contains("the ledger is closed")),
            "{error}"
        );
        let calls = trigger_calls(&test_schema).await;
        assert!(calls <= calls_max, "{code}: called {calls} times");
        let is_retried = code != "23514";
        assert_eq!(calls >= 10, is_retried, "{code}: called {calls} times");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_a_user_locks_only_its_runs_and_keys() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open_real_time().await;
    start(&world, run(1)).await;
    let mut other = test_schema.connect().await;
    let open = other.transaction().await.unwrap();
    let schema = &test_schema.schema;
    let sql =
        format!("SELECT {schema}.start_run('w', '1', key => 'k'), {schema}.send_to('{}', 'h', '1')", run(1));
    open.query(&sql, &[]).await.unwrap();
    let key = Some(StartKey { text: "k2".into(), digest: 1, window: None, policy: Default::default() });
    start_within(&open, &world, Start { key, ..new_start(run(2)) }).await.unwrap();
    let sql = "SELECT DISTINCT c.relname::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        WHERE l.pid = pg_backend_pid() AND l.mode = 'RowExclusiveLock' AND c.relkind = 'r' ORDER BY 1";
    let rows = open.query(sql, &[]).await.unwrap();
    let written: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(written, ["inbox", "runs", "tags", "turns", "unmerged"], "counts and skew are not locked");
    open.commit().await.unwrap();
    let counts = world.counts().await.unwrap();
    assert_eq!(counts[&Status::Pending], 3, "the sum includes unmerged changes");
    join(&world, SESSION, NO_EXPIRY).await;
    world.beat(SESSION, &outlast_core::Report::default(), &[]).await.unwrap();
    let left =
        test_schema.connect().await.query(&format!("SELECT 1 FROM {schema}.unmerged"), &[]).await.unwrap();
    assert!(left.is_empty(), "a beat merges the changes");
    assert_eq!(world.counts().await.unwrap(), counts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_runs_get_the_rules_that_every_joined_worker_knows() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open_real_time().await;
    let rules = async |run: RunId| {
        let turn = world.history(run, 0, 1).await.unwrap().remove(0);
        let Some(outlast_core::Event::RunStarted(started)) = turn.events.first() else { panic!("{turn:?}") };
        (started.rules, world.run(run).await.unwrap().format)
    };
    let by_sql = async || -> RunId {
        let server = test_schema.connect().await;
        let row =
            server.query_one(&format!("SELECT {}.start_run('w')", test_schema.schema), &[]).await.unwrap();
        row.get::<_, &str>(0).parse().unwrap()
    };
    start(&world, run(1)).await;
    assert_eq!(rules(run(1)).await, (2, 2));
    assert_eq!(rules(by_sql().await).await, (2, 2));
    let old = outlast_core::Join {
        session: SessionId::from_bits(9),
        host: "here".into(),
        pid: 9,
        build: "old".into(),
        code: common::code(),
        queues: outlast_core::queue::default_queues(),
        time: NO_EXPIRY,
        rules: 1,
        format: 1,
    };
    world.join(old).await.unwrap();
    let key = Some(StartKey { text: "k".into(), digest: 1, window: None, policy: Default::default() });
    world.start(vec![new_start(run(2)), Start { key, ..new_start(run(3)) }]).await.unwrap();
    start(&world, run(4)).await;
    for number in 2..=4 {
        assert_eq!(rules(run(number)).await, (1, 1), "{number}");
    }
    assert_eq!(rules(by_sql().await).await, (1, 1));
    world.leave(SessionId::from_bits(9)).await.unwrap();
    start(&world, run(5)).await;
    assert_eq!(rules(run(5)).await, (2, 2));
}
