//! A row that this build cannot read affects only its run: claims and queries return the other runs.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{TempDatabase, block_on, new_start};
use outlast_core::event::{FORMAT, RULES};
use outlast_core::queue::default_queues;
use outlast_core::{
    ClaimRequest, Claimed, ClaimedHistory, Code, Headers, Join, MessageBody, MessageId, NewMessage, Payload,
    RunId, SessionId, SuspectRoom, Timestamp, Work, World, WorldError,
};
use outlast_sqlite::SqliteWorld;
use rusqlite::Connection;

const SESSION: SessionId = SessionId::from_bits(9);

fn code() -> std::sync::Arc<[Code]> {
    [Code { workflow: "w".into(), version: 1 }].into()
}

fn join(world: &SqliteWorld) {
    let join = Join {
        session: SESSION,
        host: "here".into(),
        pid: 1,
        build: "b".into(),
        code: code(),
        queues: default_queues(),
        time: Duration::from_secs(10),
        rules: RULES,
        format: FORMAT,
    };
    block_on(world.join(join)).unwrap();
}

fn work(world: &SqliteWorld) -> Work {
    let request = ClaimRequest {
        limit: 10,
        code: code(),
        queues: default_queues(),
        build: "b".into(),
        format: FORMAT,
        suspects: SuspectRoom::AnyClass { room: 10 },
        ends_overdue_from: Timestamp::NEVER,
    };
    block_on(world.claim(SESSION, request)).unwrap()
}

/// A world with three runs. The statement damages the second one.
fn world_with_damage(database: &TempDatabase, sql: &str) -> SqliteWorld {
    let world = database.open();
    for run in 1..=3 {
        block_on(world.start(vec![new_start(RunId::from_bits(run))])).unwrap().remove(0).unwrap();
        send(&world, run, 100 + run);
    }
    let connection = Connection::open(database.path()).unwrap();
    assert_eq!(connection.execute(sql, [RunId::from_bits(2).to_string()]).unwrap(), 1);
    join(&world);
    world
}

fn send(world: &SqliteWorld, run: u128, message: u128) {
    let message = NewMessage {
        id: MessageId::from_bits(message),
        run: RunId::from_bits(run),
        body: MessageBody::Hook { name: "h".into(), payload: Payload::null(), to: Default::default() },
        headers: Headers::new(),
    };
    block_on(world.send(vec![message])).unwrap().remove(0).unwrap();
}

fn is_unreadable(claimed: &Claimed) -> bool {
    matches!(&claimed.history, ClaimedHistory::Unreadable(reason) if !reason.is_empty())
}

#[test]
fn an_unreadable_event_affects_only_its_run() {
    let database = TempDatabase::new();
    let world = world_with_damage(
        &database,
        "UPDATE turns SET events = '[{\"kind\":\"from_the_future\"}]' WHERE run = ?1",
    );
    let claimed = work(&world).claimed;
    assert_eq!(claimed.iter().map(is_unreadable).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(claimed.iter().map(|claimed| claimed.inbox.len()).collect::<Vec<_>>(), [1, 0, 1]);
    let runs = [1, 2, 3].map(RunId::from_bits);
    let histories = block_on(world.histories(&runs)).unwrap();
    assert!(histories[0].is_ok() && histories[2].is_ok());
    assert!(matches!(&histories[1], Err(WorldError::Corrupt(_))), "{histories:?}");
}

#[test]
fn an_unreadable_message_affects_only_its_run() {
    let database = TempDatabase::new();
    let world = world_with_damage(&database, "UPDATE inbox SET kind = 'from_the_future' WHERE run = ?1");
    let claimed = work(&world).claimed;
    assert_eq!(claimed.iter().map(is_unreadable).collect::<Vec<_>>(), [false, true, false]);
    assert!(claimed[1].inbox.is_empty());
}

#[test]
fn an_unreadable_message_does_not_delay_messages_to_other_runs() {
    let database = TempDatabase::new();
    let world = world_with_damage(&database, "UPDATE inbox SET kind = 'from_the_future' WHERE run = ?1");
    work(&world);
    send(&world, 2, 202);
    let unread: Vec<_> = work(&world).unread.iter().map(|unread| unread.run).collect();
    assert_eq!(unread, [1, 3].map(RunId::from_bits));
}

#[test]
fn the_error_of_a_damaged_event_contains_its_number_and_kind() {
    let database = TempDatabase::new();
    let world = world_with_damage(
        &database,
        "UPDATE turns SET events = '[{\"kind\":\"run_started\"}]' WHERE run = ?1",
    );
    let named = "event 0 (`run_started`) is damaged: it has no field `";
    let claimed = work(&world).claimed;
    let ClaimedHistory::Unreadable(reason) = &claimed[1].history else { panic!("{claimed:?}") };
    assert!(reason.starts_with(named), "{reason}");
    let error = block_on(world.history(RunId::from_bits(2), 0, 10)).unwrap_err().to_string();
    assert!(error.contains(named) && !error.contains("onversion"), "{error}");
}
