//! Two connections in an order that the test chooses: one waits for the other in the middle of what it does.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{LONG, Place, claim, join, new_start, request, start, step, until};
use outlast_core::{
    Beyond, Headers, MessageBody, MessageId, NewChild, NewMessage, OpNumber, Parent, Payload, RunId,
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
    let watch = place.connect().await;
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, $1) > 0";
    until("others wait", async || {
        watch.query_one(sql, &[&place.schema]).await.unwrap().get::<_, i64>(0) >= count
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
    let taking = {
        let world = world.clone();
        tokio::spawn(async move { while world.takeover(SECOND).await.unwrap() == 0 {} })
    };
    until_waiting(&place, 1).await;
    sending.commit().await.unwrap();
    taking.await.unwrap();

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
    let asked = sending.query_one(&format!("SELECT {}.clock()", place.schema), &[]).await.unwrap();
    let fired_until = Some(outlast_core::Timestamp::from_micros(asked.get(0)));
    let turn = Turn { fired_until, ..step(run(1), claimed.turn, claimed.seq, 100, Then::Hold) };
    let committing = {
        let (world, turn) = (world.clone(), turn.clone());
        tokio::spawn(async move { world.commit(FIRST, &[turn]).await.unwrap().remove(0) })
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
        let op = OpNumber(nth as u32 + 1);
        let parent = Some(Parent { run: from.run, op, root: from.run, awaits: true });
        let start = Start { parent, ..keyed(number * 100 + nth as u128, key) };
        NewChild { start, wants_answer: true }
    });
    let beyond = Beyond { children: children.collect(), ..Beyond::default() };
    let turn = step(from.run, from.turn, from.seq, 1_000 + number, Then::Hold);
    Turn { beyond: Some(Box::new(beyond)), ..turn }
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
        tokio::spawn(async move { world.commit(FIRST, &[turn]).await.unwrap().remove(0) })
    };
    let first = commit(parent(1, one, &["a", "z", "b"]));
    until_waiting(&place, 1).await;
    let second = commit(parent(2, other, &["b", "a"]));
    until_waiting(&place, 2).await;
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
    assert_eq!(told(one.run).await, [run(100), run(101), run(102)]);
    assert_eq!(told(other.run).await, [run(102), run(100)], "each key names one run");
    let counts = world.counts().await.unwrap();
    assert_eq!(counts[&outlast_core::Status::Pending], 3);
}
