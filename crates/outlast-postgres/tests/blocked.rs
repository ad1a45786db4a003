//! A row that somebody else has locked, a key that somebody else inserts, a trigger that raises: the turn that needs it
//! waits or is refused, and no other does.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;

use common::{LONG, Place, commit_patiently, completed, join, new_start, request, start, step, until};
use outlast_core::turn::BasedOn;
use outlast_core::{
    ClaimRequest, Claimed, Committed, Headers, MessageBody, MessageId, NewMessage, Outbox, RunId, SessionId,
    Start, StartKey, Status, SuspectRoom, Then, Turn, TurnId, World, WorldError,
};
use outlast_postgres::{PostgresWorld, start_within};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);

/// How many runs there are besides the one that is blocked.
const NEIGHBOURS: u128 = 200;

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

/// A world whose session holds runs 1 to `count`.
async fn holding(place: &Place, count: u128) -> (Arc<PostgresWorld>, Vec<Claimed>) {
    let world = Arc::new(place.open_real().await);
    join(&world, SESSION, LONG).await;
    world.start((1..=count).map(|number| new_start(run(number))).collect()).await.unwrap();
    let suspects = SuspectRoom::Nothing;
    let all = ClaimRequest { limit: 1_000, suspects, ..request() };
    let claimed = world.claim(SESSION, all).await.unwrap().claimed;
    assert_eq!(claimed.len() as u128, count);
    (world, claimed)
}

fn ends(claimed: &Claimed) -> Turn {
    let turn = step(
        claimed.run,
        claimed.turn,
        claimed.seq,
        10_000 + claimed.run.bits(),
        Then::End(Status::Completed),
    );
    Turn { events: vec![completed()], ..turn }
}

/// A turn that ends its run and tells another one.
fn ends_and_tells(claimed: &Claimed, to: RunId) -> Turn {
    let body = MessageBody::Wake { op: None };
    let id = MessageId::from_bits(claimed.run.bits());
    let message = NewMessage { id, run: to, body, headers: Headers::new() };
    let outbox = Outbox { messages: vec![message], ..Outbox::default() };
    Turn { outbox: Some(Box::new(outbox)), ..ends(claimed) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_run_does_not_stop_its_neighbours_and_goes_on_when_it_is_free() {
    let place = Place::new(TestClock::new());
    let (world, claimed) = holding(&place, NEIGHBOURS + 1).await;
    let mut other = place.connect().await;
    other.batch_execute("SET application_name = 'ledger'").await.unwrap();
    let open = other.transaction().await.unwrap();
    open.query(&format!("SELECT {}.send_to($1, 'h', '1')", place.schema), &[&run(1).to_string()])
        .await
        .unwrap();

    let turns: Vec<Turn> = claimed.iter().map(ends).collect();
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(matches!(&answers[0], Err(WorldError::Blocked(_))), "{:?}", answers[0]);
    let done = answers.iter().filter(|answer| matches!(answer, Ok(Committed::Done))).count();
    assert_eq!(done as u128, NEIGHBOURS, "all others are written while the lock is held");

    // Alone it waits for the lock, and says who has it.
    let waiting = {
        let (world, turns) = (world.clone(), turns.clone());
        tokio::spawn(async move { commit_patiently(&world, SESSION, &turns[..1]).await.remove(0) })
    };
    until("the blocker is named", async || {
        let who = world.blocked_by(run(1)).await.unwrap().unwrap_or_default();
        who.contains("ledger") && who.contains("idle in transaction")
    })
    .await;
    open.commit().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(world.blocked_by(run(1)).await.unwrap(), None);
    let view = world.run(run(1)).await.unwrap();
    assert_eq!((view.status, view.sent), (Status::Completed, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_to_a_locked_run_waits_and_no_other_does() {
    let place = Place::new(TestClock::new());
    let (world, claimed) = holding(&place, 4).await;
    let mut other = place.connect().await;
    let open = other.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM {}.runs WHERE id = $1 FOR UPDATE", place.schema);
    open.query(&lock, &[&run(4).to_string()]).await.unwrap();
    let body = MessageBody::Cancel { reason: "enough".into() };
    let message = NewMessage { id: MessageId::from_bits(1), run: run(4), body, headers: Headers::new() };
    let outbox = Some(Box::new(Outbox { messages: vec![message], ..Outbox::default() }));
    let turns = [Turn { outbox, ..ends(&claimed[0]) }, ends(&claimed[1]), ends(&claimed[2])];
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(matches!(&answers[0], Err(WorldError::Blocked(_))), "{:?}", answers[0]);
    assert!(answers[1..].iter().all(Result::is_ok));
    open.rollback().await.unwrap();
    commit_patiently(&world, SESSION, &turns[..1]).await.remove(0).unwrap();
    assert_eq!(world.run(run(4)).await.unwrap().sent, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_whose_key_somebody_else_inserts_waits_alone() {
    let place = Place::new(TestClock::new());
    let (world, claimed) = holding(&place, 2).await;
    let key = |text: &str| Some(StartKey { text: text.into(), digest: 1, window: None });
    let mut other = place.connect().await;
    let open = other.transaction().await.unwrap();
    start_within(&open, &*world, Start { key: key("k"), ..new_start(run(90)) }).await.unwrap();
    let starting = |number: u128, text: &str| {
        let start = Start { key: key(text), ..new_start(run(number)) };
        let events = vec![start.event()];
        let turn = step(run(number), TurnId::from_bits(1), 0, number, Then::Hold);
        Turn { events, based_on: BasedOn::Start(Box::new(start)), ..turn }
    };
    let turns = [starting(11, "k"), starting(12, "other"), ends(&claimed[0])];
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(matches!(&answers[0], Err(WorldError::Blocked(_))), "{:?}", answers[0]);
    assert!(answers[1..].iter().all(Result::is_ok), "{answers:?}");
    open.commit().await.unwrap();
    let answer = commit_patiently(&world, SESSION, &turns[..1]).await.remove(0).unwrap();
    assert!(matches!(answer, Committed::Existed(started) if started.run == run(90)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_send_to_a_locked_run_wait_for_it_together() {
    let place = Place::new(TestClock::new());
    let (world, claimed) = holding(&place, 40).await;
    let mut other = place.connect().await;
    let open = other.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM {}.runs WHERE id = $1 FOR UPDATE", place.schema);
    open.query(&lock, &[&run(40).to_string()]).await.unwrap();
    let turns: Vec<Turn> = claimed[..39].iter().map(|claimed| ends_and_tells(claimed, run(40))).collect();
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
    until("it waits", async || world.blocked_by(run(1)).await.unwrap().is_some()).await;
    until("who blocks the others is known too", async || world.blocked_by(run(2)).await.unwrap().is_some())
        .await;
    open.rollback().await.unwrap();
    let calls = waiting.await.unwrap();
    // Each call waits for a second.
    assert!(calls < 60, "{calls} calls");
    assert_eq!(world.run(run(40)).await.unwrap().sent, 39);
    assert_eq!(world.blocked_by(run(2)).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_without_events_does_not_keep_its_session_while_it_waits() {
    let place = Place::new(TestClock::new());
    let (world, claimed) = holding(&place, 21).await;
    let mut other = place.connect().await;
    let open = other.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM {}.runs WHERE id = $1 FOR UPDATE", place.schema);
    open.query(&lock, &[&run(1).to_string()]).await.unwrap();
    let lets_go = step(run(1), claimed[0].turn, claimed[0].seq, 10_001, Then::Release);
    let lets_go = Turn { events: Vec::new(), ..lets_go };
    let waiting = {
        let world = world.clone();
        tokio::spawn(async move { commit_patiently(&world, SESSION, &[lets_go]).await.remove(0) })
    };
    until("it waits", async || world.blocked_by(run(1)).await.unwrap().is_some()).await;
    for claimed in &claimed[1..] {
        let answers = world.commit(SESSION, &[ends(claimed)]).await.unwrap();
        assert_eq!(answers, [Ok(Committed::Done)], "nothing of the session waits for it");
    }
    open.rollback().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(world.run(run(1)).await.unwrap().owner, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_the_row_of_a_run_is_named_though_no_turn_waits_for_it() {
    let place = Place::new(TestClock::new());
    let (world, _) = holding(&place, 5).await;
    start(&world, run(6)).await;
    let mut other = place.connect().await;
    other.batch_execute("SET application_name = 'ledger'").await.unwrap();
    for (lock, is_named) in [("UPDATE", true), ("NO KEY UPDATE", true), ("SHARE", true), ("KEY SHARE", false)]
    {
        let open = other.transaction().await.unwrap();
        open.query(&format!("SELECT 1 FROM {}.runs FOR {lock}", place.schema), &[]).await.unwrap();
        // Held ones, and one that is ready.
        for number in 1..=6 {
            let who = world.blocked_by(run(number)).await.unwrap();
            assert_eq!(who.is_some_and(|who| who.contains("ledger")), is_named, "{lock}: {number}");
        }
        open.rollback().await.unwrap();
        assert_eq!(world.blocked_by(run(1)).await.unwrap(), None);
    }
    let open = other.transaction().await.unwrap();
    open.query(&format!("SELECT {}.send_to($1, 'h', '1')", place.schema), &[&run(6).to_string()])
        .await
        .unwrap();
    let who = world.blocked_by(run(6)).await.unwrap().unwrap_or_default();
    assert!(who.contains("ledger"), "{who}");
    assert_eq!(world.blocked_by(run(5)).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_several_transactions_share_is_locked_by_somebody() {
    let place = Place::new(TestClock::new());
    let (world, _) = holding(&place, 1).await;
    let (mut one, mut two) = (place.connect().await, place.connect().await);
    let (one, two) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    for open in [&one, &two] {
        open.query(&format!("SELECT 1 FROM {}.runs FOR SHARE", place.schema), &[]).await.unwrap();
    }
    let who = world.blocked_by(run(1)).await.unwrap().unwrap_or_default();
    assert!(who.contains("another transaction"), "{who}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_of_a_worker_is_not_named_as_blocker() {
    let place = Place::new(TestClock::new());
    let (world, _) = holding(&place, 1).await;
    let (worker, other) = (place.connect().await, place.connect().await);
    let sql = format!(r#"SELECT "{}".lock_runs_v2(ARRAY['{}'], false), pg_sleep(3)"#, place.schema, run(1));
    let works = tokio::spawn(async move { worker.batch_execute(&sql).await });
    let free = format!("SELECT 1 FROM {}.runs FOR UPDATE SKIP LOCKED", place.schema);
    until("the row is locked", async || other.query(&free, &[]).await.unwrap().is_empty()).await;
    assert_eq!(world.blocked_by(run(1)).await.unwrap(), None);
    assert!(!works.is_finished());
    works.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "each turn would wait in real time")]
async fn a_table_that_somebody_locks_is_named_and_holds_no_call_up_for_each_turn() {
    let place = Place::new(TestClock::new());
    let (world, claimed) = holding(&place, NEIGHBOURS).await;
    let turns: Vec<Turn> = claimed.iter().map(ends).collect();
    let mut other = place.connect().await;
    other.batch_execute("SET application_name = 'ledger'").await.unwrap();
    let open = other.transaction().await.unwrap();
    open.batch_execute(&format!("LOCK TABLE {}.runs IN EXCLUSIVE MODE", place.schema)).await.unwrap();
    let began = std::time::Instant::now();
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Err(WorldError::Blocked(_)))), "{answers:?}");
    let alone = world.commit(SESSION, &turns[..1]).await.unwrap();
    assert!(matches!(&alone[0], Err(WorldError::Blocked(why)) if why.contains("ledger")), "{alone:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(9), "each of {NEIGHBOURS} waited");
    let who = world.blocked_by(run(3)).await.unwrap().unwrap_or_default();
    assert!(who.contains("ledger") && who.contains("locked the table runs"), "{who}");
    open.rollback().await.unwrap();
    assert!(commit_patiently(&world, SESSION, &turns).await.iter().all(Result::is_ok));
    assert_eq!(world.blocked_by(run(3)).await.unwrap(), None);
}

/// Lets the database refuse turns of run 2, the first so many times, with this code.
async fn refuse(place: &Place, times: u32, code: &str) {
    let trigger = format!(
        "CREATE SEQUENCE {0}.refusals MINVALUE 0 START 0;
         SELECT nextval('{0}.refusals');
         CREATE FUNCTION {0}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('{0}.refusals') <= {times} THEN
                RAISE EXCEPTION 'the ledger is closed' USING ERRCODE = '{code}';
            END IF;
            RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON {0}.turns FOR EACH ROW WHEN (NEW.run = '{1}') EXECUTE FUNCTION {0}.refuse()",
        place.schema,
        run(2)
    );
    place.connect().await.batch_execute(&trigger).await.unwrap();
}

/// How often the trigger was asked.
async fn refusals(place: &Place) -> i64 {
    let sql = format!("SELECT last_value FROM {}.refusals", place.schema);
    place.connect().await.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_a_trigger_refuses_for_a_while_is_written_later_and_its_neighbours_at_once() {
    let place = Place::new(TestClock::new());
    let (world, claimed) = holding(&place, 3).await;
    // Once in the batch, then alone.
    refuse(&place, 3, "P0001").await;
    let turns: Vec<Turn> = claimed.iter().map(ends).collect();
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    let refused = answers[1].clone().unwrap_err();
    assert!(
        matches!(&refused, WorldError::Blocked(why) if why.contains("the ledger is closed")),
        "{refused}"
    );
    commit_patiently(&world, SESSION, &turns[1..2]).await.remove(0).unwrap();
    assert_eq!(world.run(run(2)).await.unwrap().status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_a_trigger_always_refuses_is_refused_for_good_after_some_tries() {
    // What the trigger raises, and how often it is asked at the most: a turn that others were in the way of is tried 21
    // times by each statement.
    for (code, asked_max) in [("P0001", 30), ("55000", 30), ("XX000", 30), ("40001", 21 * 30), ("23514", 4)] {
        let place = Place::new(TestClock::new());
        let (world, claimed) = holding(&place, 3).await;
        refuse(&place, u32::MAX, code).await;
        let turns: Vec<Turn> = claimed.iter().map(ends).collect();
        let answers = world.commit(SESSION, &turns).await.unwrap();
        assert!(answers[0].is_ok() && answers[2].is_ok(), "{code}: {answers:?}");
        let refused = commit_patiently(&world, SESSION, &turns[1..2]).await.remove(0).unwrap_err();
        assert!(
            matches!(&refused, WorldError::Invalid(why) if why.contains("the ledger is closed")),
            "{refused}"
        );
        let asked = refusals(&place).await;
        assert!(asked <= asked_max, "{code}: asked {asked} times");
        let is_tried_again = code != "23514";
        assert_eq!(asked >= 10, is_tried_again, "{code}: asked {asked} times");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_others_locks_only_the_run_and_the_key_that_it_names() {
    let place = Place::new(TestClock::new());
    let world = place.open_real().await;
    start(&world, run(1)).await;
    let mut other = place.connect().await;
    let open = other.transaction().await.unwrap();
    let schema = &place.schema;
    let sql =
        format!("SELECT {schema}.start_run('w', '1', key => 'k'), {schema}.send_to('{}', 'h', '1')", run(1));
    open.query(&sql, &[]).await.unwrap();
    let key = Some(StartKey { text: "k2".into(), digest: 1, window: None });
    start_within(&open, &world, Start { key, ..new_start(run(2)) }).await.unwrap();
    let sql = "SELECT DISTINCT c.relname::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        WHERE l.pid = pg_backend_pid() AND l.mode = 'RowExclusiveLock' AND c.relkind = 'r' ORDER BY 1";
    let rows = open.query(sql, &[]).await.unwrap();
    let written: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(written, ["inbox", "runs", "tags", "turns", "unmerged"], "neither counts nor the skew");
    open.commit().await.unwrap();
    let counts = world.counts().await.unwrap();
    assert_eq!(counts[&Status::Pending], 3, "what is not merged yet counts");
    join(&world, SESSION, LONG).await;
    world.beat(SESSION, &outlast_core::Report::default(), &[]).await.unwrap();
    let left = place.connect().await.query(&format!("SELECT 1 FROM {schema}.unmerged"), &[]).await.unwrap();
    assert!(left.is_empty(), "a beat merges it");
    assert_eq!(world.counts().await.unwrap(), counts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_runs_get_the_rules_that_every_joined_worker_knows() {
    let place = Place::new(TestClock::new());
    let world = place.open_real().await;
    let rules = async |run: RunId| {
        let turn = world.history(run, 0, 1).await.unwrap().remove(0);
        let Some(outlast_core::Event::RunStarted(started)) = turn.events.first() else { panic!("{turn:?}") };
        (started.rules, world.run(run).await.unwrap().format)
    };
    let by_sql = async || -> RunId {
        let server = place.connect().await;
        let row = server.query_one(&format!("SELECT {}.start_run('w')", place.schema), &[]).await.unwrap();
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
        time: LONG,
        rules: 1,
        format: 1,
    };
    world.join(old).await.unwrap();
    let key = Some(StartKey { text: "k".into(), digest: 1, window: None });
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
