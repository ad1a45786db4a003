//! Stored data that cannot be read is an error of its run alone, and affects no other run.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{NO_EXPIRY, TestSchema, claim, join, request, start};
use outlast_core::{
    Claimed, ClaimedHistory, Headers, MessageBody, MessageId, NewMessage, Payload, RunId, SessionId, World,
    WorldError,
};
use outlast_postgres::PostgresWorld;
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);

async fn send(world: &PostgresWorld, run: u128, message: u128) {
    let message = NewMessage {
        id: MessageId::from_bits(message),
        run: RunId::from_bits(run),
        body: MessageBody::Hook { name: "h".into(), payload: Payload::null(), to: Default::default() },
        headers: Headers::new(),
    };
    world.send(vec![message]).await.unwrap().remove(0).unwrap();
}

/// A world with three runs. This change of a table has damaged a row of the second one.
async fn world_with_damaged_row(test_schema: &TestSchema, table: &str, change: &str) -> PostgresWorld {
    let world = test_schema.open().await;
    for run in 1..=3 {
        start(&world, RunId::from_bits(run)).await;
        send(&world, run, 100 + run).await;
    }
    let sql = format!("UPDATE \"{}\".{table} SET {change} WHERE run = $1", test_schema.schema);
    let run = RunId::from_bits(2).to_string();
    assert_eq!(test_schema.connect().await.execute(&sql, &[&run]).await.unwrap(), 1);
    join(&world, SESSION, NO_EXPIRY).await;
    world
}

fn is_unreadable(claimed: &Claimed) -> bool {
    matches!(&claimed.history, ClaimedHistory::Unreadable(reason) if !reason.is_empty())
}

#[tokio::test]
async fn an_unreadable_event_is_an_error_of_its_run_alone() {
    let test_schema = TestSchema::new(TestClock::new());
    let world =
        world_with_damaged_row(&test_schema, "turns", "events = '[{\"kind\":\"from_the_future\"}]'").await;
    let claimed = claim(&world, SESSION).await;
    assert_eq!(claimed.iter().map(is_unreadable).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(claimed.iter().map(|claimed| claimed.inbox.len()).collect::<Vec<_>>(), [1, 0, 1]);
    let histories = world.histories(&[1, 2, 3].map(RunId::from_bits)).await.unwrap();
    assert!(histories[0].is_ok() && histories[2].is_ok());
    assert!(matches!(&histories[1], Err(WorldError::Corrupt(_))), "{histories:?}");
}

#[tokio::test]
async fn an_unreadable_message_is_an_error_of_its_run_alone() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = world_with_damaged_row(&test_schema, "inbox", "kind = 'from_the_future'").await;
    let claimed = claim(&world, SESSION).await;
    assert_eq!(claimed.iter().map(is_unreadable).collect::<Vec<_>>(), [false, true, false]);
    assert!(claimed[1].inbox.is_empty());
}

#[tokio::test]
async fn an_unreadable_message_to_a_held_run_affects_no_messages_to_other_runs() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = world_with_damaged_row(&test_schema, "inbox", "kind = 'from_the_future'").await;
    claim(&world, SESSION).await;
    send(&world, 2, 202).await;
    let unread = world.claim(SESSION, request()).await.unwrap().unread;
    assert_eq!(unread.iter().map(|unread| unread.run).collect::<Vec<_>>(), [1, 3].map(RunId::from_bits));
}

#[tokio::test]
async fn a_damaged_event_is_named_by_its_number_and_kind() {
    let test_schema = TestSchema::new(TestClock::new());
    let world =
        world_with_damaged_row(&test_schema, "turns", "events = '[{\"kind\":\"run_started\"}]'").await;
    let named = "event 0 (`run_started`) is damaged: it has no field `";
    let claimed = claim(&world, SESSION).await;
    let ClaimedHistory::Unreadable(reason) = &claimed[1].history else { panic!("{claimed:?}") };
    assert!(reason.contains(named), "{reason}");
    let error = world.history(RunId::from_bits(2), 0, 10).await.unwrap_err().to_string();
    assert!(error.contains(named) && !error.contains("column"), "{error}");
}
