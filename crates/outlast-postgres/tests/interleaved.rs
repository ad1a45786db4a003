//! Two connections in an order that the test chooses: one waits for the other in the middle of what it does.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{LONG, Place, claim, commit_patiently, join, new_start, request, start, step, until};
use outlast_core::{
    Headers, MessageBody, MessageId, NewChild, NewMessage, OpNumber, Outbox, Parent, Payload, RunId,
    SessionId, Start, StartKey, Then, Turn, World, WorldError,
};
use outlast_postgres::{PostgresOptions, PostgresWorld, send_within, start_within};
use outlast_testkit::TestClock;

const FIRST: SessionId = SessionId::from_bits(1);
const SECOND: SessionId = SessionId::from_bits(2);

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

fn message(to: RunId, body: MessageBody) -> NewMessage {
    NewMessage { id: MessageId::from_bits(1), run: to, body, headers: Headers::new() }
}

/// Waits until so many statements of the schema wait for a lock.
async fn until_waiting(place: &Place, count: i64) {
    until_waiting_or(place, count, || false).await;
}

/// The same, unless it is over before.
async fn until_waiting_or(place: &Place, count: i64, is_over: impl Fn() -> bool) {
    let watch = place.connect().await;
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, $1) > 0";
    until("others wait", async || {
        is_over() || watch.query_one(sql, &[&place.schema]).await.unwrap().get::<_, i64>(0) >= count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_keeps_what_a_message_on_its_way_asks_for() {
    let place = Place::new(TestClock::new());
    let world = Arc::new(place.open_real().await);
    join(&world, FIRST, Duration::from_millis(30)).await;
    join(&world, SECOND, LONG).await;
    start(&world, run(1)).await;
    assert_eq!(claim(&world, FIRST).await.len(), 1);

    let mut sender = place.connect().await;
    let sending = sender.transaction().await.unwrap();
    let terminate = MessageBody::Terminate { reason: "enough".into() };
    send_within(&sending, &*world, message(run(1), terminate)).await.unwrap();
    let held = async || {
        let sql = format!("SELECT 1 FROM {}.sessions WHERE ended_at IS NOT NULL", place.schema);
        !place.connect().await.query(&sql, &[]).await.unwrap().is_empty()
    };
    until("the session has ended", async || {
        assert_eq!(world.takeover(SECOND).await.unwrap(), 0, "its run is locked");
        held().await
    })
    .await;
    sending.commit().await.unwrap();
    assert_eq!(world.takeover(SECOND).await.unwrap(), 1);
    assert!(!held().await, "nothing is left of the session");

    // Nobody has the workflow's code any more; to obey takes none.
    let codeless = outlast_core::ClaimRequest { code: Arc::new([]), ..request() };
    let given = world.claim(SECOND, codeless).await.unwrap().claimed;
    assert_eq!(given.len(), 1, "the run can be terminated by every worker");
    assert_eq!(given[0].inbox.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_does_not_win_over_a_message_on_its_way() {
    let place = Place::new(TestClock::new());
    let world = Arc::new(place.open_real().await);
    join(&world, FIRST, LONG).await;
    start(&world, run(1)).await;
    let claimed = claim(&world, FIRST).await.remove(0);

    let mut sender = place.connect().await;
    let sending = sender.transaction().await.unwrap();
    let hook = MessageBody::Hook { name: "answer".into(), payload: Payload::null() };
    send_within(&sending, &*world, message(run(1), hook)).await.unwrap();
    // The timer is due after the message was accepted, and the turn only adds to the history.
    let asked = sending.query_one(&format!("SELECT {}.clock_v2()", place.schema), &[]).await.unwrap();
    let fired_until = Some(outlast_core::Timestamp::from_micros(asked.get(0)));
    let turn = Turn { fired_until, ..step(run(1), claimed.turn, claimed.seq, 100, Then::Hold) };
    let committing = {
        let (world, turn) = (world.clone(), turn.clone());
        tokio::spawn(async move { commit_patiently(&world, FIRST, &[turn]).await.remove(0) })
    };
    until_waiting(&place, 1).await;
    sending.commit().await.unwrap();
    let refused = committing.await.unwrap();
    assert!(matches!(refused, Err(WorldError::Conflict(_))), "{refused:?}");

    // What comes after the turn has a later moment.
    let read = Turn { consumed: 1, ..turn };
    world.commit(FIRST, &[read]).await.unwrap().remove(0).unwrap();
    let late = NewMessage { id: MessageId::from_bits(2), ..message(run(1), MessageBody::Wake { op: None }) };
    world.send(vec![late]).await.unwrap().remove(0).unwrap();
    assert!(Some(world.inbox(run(1), 1).await.unwrap()[0].at) > fired_until);
}

fn keyed(number: u128, key: &str) -> Start {
    let key = Some(StartKey { text: key.into(), digest: 1, window: None });
    Start { key, ..new_start(run(number)) }
}

/// A turn that starts a child by each of the keys.
fn parent(number: u128, from: &outlast_core::Claimed, keys: &[&str]) -> Turn {
    let children = keys.iter().enumerate().map(|(nth, key)| {
        let op = OpNumber(nth as u64 + 1);
        let parent = Some(Parent { run: from.run, op, root: from.run, awaits: true });
        let start = Start { parent, ..keyed(number * 100 + nth as u128, key) };
        NewChild { start, wants_answer: true }
    });
    let outbox = Outbox { children: children.collect(), ..Outbox::default() };
    let turn = step(from.run, from.turn, from.seq, 1_000 + number, Then::Hold);
    Turn { outbox: Some(Box::new(outbox)), ..turn }
}

/// A world on whose connections a deadlock is not noticed before the statement is given up.
async fn patient(place: &Place) -> Arc<PostgresWorld> {
    let url = format!("{}&options=-c%20deadlock_timeout%3D1h", place.url());
    Arc::new(PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_share_keys_in_opposite_order_do_not_wait_in_a_circle() {
    let place = Place::new(TestClock::new());
    let world = patient(&place).await;
    join(&world, FIRST, LONG).await;
    world.start(vec![new_start(run(1)), new_start(run(2))]).await.unwrap();
    let claimed = claim(&world, FIRST).await;
    let (one, other) = (&claimed[0], &claimed[1]);

    // The first stops at `z`, which somebody else has not committed yet; the other then comes upon its keys.
    let mut blocker = place.connect().await;
    let blocking = blocker.transaction().await.unwrap();
    start_within(&blocking, &*world, keyed(90, "z")).await.unwrap();
    let commit = |turn: Turn| {
        let world = world.clone();
        tokio::spawn(async move { commit_patiently(&world, FIRST, &[turn]).await.remove(0) })
    };
    let first = commit(parent(1, one, &["a", "z", "b"]));
    until_waiting(&place, 1).await;
    let second = commit(parent(2, other, &["b", "a"]));
    // A turn waits for a while and lets go of what it has before it tries again: the other may come first then.
    until_waiting_or(&place, 2, || second.is_finished()).await;
    blocking.rollback().await.unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();

    let told = |run| {
        let world = world.clone();
        async move {
            let inbox = world.inbox(run, 0).await.unwrap();
            let runs = inbox.into_iter().map(|message| match message.body {
                MessageBody::ChildStarted { run, .. } => run,
                other => panic!("{other:?}"),
            });
            runs.collect::<Vec<_>>()
        }
    };
    let (one, other) = (told(one.run).await, told(other.run).await);
    assert_eq!((one.len(), other.len()), (3, 2));
    assert_eq!([one[2], one[0]], [other[0], other[1]], "each key names one run");
    let counts = world.counts().await.unwrap();
    assert_eq!(counts[&outlast_core::Status::Pending], 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_and_a_turn_that_has_its_session_for_itself_do_not_wait_in_a_circle() {
    let place = Place::new(TestClock::new());
    let world = patient(&place).await;
    join(&world, FIRST, LONG).await;
    start(&world, run(1)).await;
    let claimed = claim(&world, FIRST).await.remove(0);
    start(&world, run(2)).await;

    // A turn without events, which is committed alone, sends to a run that is ready; the claim comes behind it.
    let blocker = place.connect().await;
    let lock = format!("BEGIN; SELECT 1 FROM {}.sessions FOR UPDATE", place.schema);
    blocker.batch_execute(&lock).await.unwrap();
    let messages = vec![message(run(2), MessageBody::Wake { op: None })];
    let outbox = Some(Box::new(Outbox { messages, ..Outbox::default() }));
    let then = Then::Wait { wake_at: None, waits: Vec::new() };
    let turn = Turn { events: Vec::new(), outbox, ..step(run(1), claimed.turn, claimed.seq, 100, then) };
    let committing = {
        let world = world.clone();
        tokio::spawn(async move { commit_patiently(&world, FIRST, &[turn]).await.remove(0) })
    };
    until_waiting(&place, 1).await;
    let claiming = {
        let world = world.clone();
        tokio::spawn(async move { claim(&world, FIRST).await })
    };
    until_waiting(&place, 2).await;
    blocker.batch_execute("ROLLBACK").await.unwrap();
    committing.await.unwrap().unwrap();
    let given = claiming.await.unwrap();
    assert_eq!(given.iter().map(|claimed| claimed.run).collect::<Vec<_>>(), [run(2)]);
}

/// A turn that starts a child without a key.
fn bears(from: &outlast_core::Claimed, child: u128, then: Then) -> Turn {
    let parent = Some(Parent { run: from.run, op: OpNumber(1), root: from.run, awaits: true });
    let start = Start { parent, ..new_start(run(child)) };
    let children = vec![NewChild { start, wants_answer: false }];
    let outbox = Some(Box::new(Outbox { children, ..Outbox::default() }));
    Turn { outbox, ..step(from.run, from.turn, from.seq, 1_000 + from.run.bits(), then) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_different_kinds_in_different_order_do_not_wait_for_each_others_counts() {
    let place = Place::new(TestClock::new());
    let world = patient(&place).await;
    // All connections count in one place, as two of many do by chance.
    let server = place.connect().await;
    let name = format!("{}.count_v2(text[], bigint[])", place.schema);
    let count =
        server.query_one("SELECT pg_get_functiondef($1::text::regprocedure)", &[&name]).await.unwrap();
    let count = count.get::<_, String>(0).replace("pg_backend_pid() % 64", "0");
    server.batch_execute(&count).await.unwrap();
    join(&world, FIRST, LONG).await;
    world.start((1..=4).map(|number| new_start(run(number))).collect()).await.unwrap();
    let claimed = claim(&world, FIRST).await;
    let commit = |turns: Vec<Turn>| {
        let world = world.clone();
        tokio::spawn(async move { commit_patiently(&world, FIRST, &turns).await })
    };

    // The first stops in its second turn, at a child that somebody else has not committed yet.
    let mut blocker = place.connect().await;
    let blocking = blocker.transaction().await.unwrap();
    start_within(&blocking, &*world, new_start(run(92))).await.unwrap();
    let waits = || Then::Wait { wake_at: None, waits: Vec::new() };
    let first = commit(vec![bears(&claimed[0], 91, Then::Hold), bears(&claimed[1], 92, waits())]);
    until_waiting(&place, 1).await;
    let second = commit(vec![bears(&claimed[2], 93, waits()), bears(&claimed[3], 94, Then::Hold)]);
    let second = tokio::time::timeout(Duration::from_secs(10), second).await;
    assert!(second.expect("it waits for nobody").unwrap().into_iter().all(|answer| answer.is_ok()));
    blocking.rollback().await.unwrap();
    assert!(first.await.unwrap().into_iter().all(|answer| answer.is_ok()));
    let counts = world.counts().await.unwrap();
    let [pending, running, waiting] =
        [outlast_core::Status::Pending, outlast_core::Status::Running, outlast_core::Status::Waiting]
            .map(|status| counts[&status]);
    assert_eq!((pending, running, waiting), (4, 2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_by_a_key_whose_window_is_over_is_resolved_and_nothing_is_done_twice() {
    let place = Place::new(TestClock::new());
    let world = Arc::new(place.open_real().await);
    join(&world, FIRST, LONG).await;
    start(&world, run(1)).await;
    let claimed = claim(&world, FIRST).await.remove(0);
    let old = keyed(2, "c");
    world.start(vec![old]).await.unwrap().remove(0).unwrap();

    // The start has `a` and stops at `b`; the turn has the run that `c` names, and comes upon `a`. Then the start
    // takes `c` away from that run.
    let mut blocker = place.connect().await;
    let blocking = blocker.transaction().await.unwrap();
    start_within(&blocking, &*world, keyed(90, "b")).await.unwrap();
    let mut last = keyed(12, "c");
    last.key = Some(StartKey { text: "c".into(), digest: 1, window: Some(Duration::ZERO) });
    let starts = vec![keyed(10, "a"), keyed(11, "b"), last];
    let starting = {
        let world = world.clone();
        tokio::spawn(async move { world.start(starts).await.unwrap() })
    };
    until_waiting(&place, 1).await;
    let mut turn = parent(1, &claimed, &["a"]);
    if let Some(outbox) = &mut turn.outbox {
        outbox.messages = vec![message(run(2), MessageBody::Wake { op: None })];
    }
    let committing = {
        let world = world.clone();
        tokio::spawn(async move { commit_patiently(&world, FIRST, &[turn]).await.remove(0) })
    };
    until_waiting(&place, 2).await;
    blocking.rollback().await.unwrap();
    assert!(starting.await.unwrap().into_iter().all(|answer| answer.is_ok()));
    committing.await.unwrap().unwrap();

    let sent = world.run(run(2)).await.unwrap();
    assert_eq!((sent.sent, sent.key), (1, None), "one message, and the key is gone");
    let runs = world.runs(outlast_core::RunQuery { limit: 100, ..Default::default() }).await.unwrap().runs;
    let mut keys: Vec<_> = runs.iter().filter_map(|run| run.key.as_deref()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"], "each key names one run");
    assert_eq!(world.counts().await.unwrap().values().sum::<u64>(), runs.len() as u64);
}
