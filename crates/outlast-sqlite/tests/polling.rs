//! Without hint sockets, changes by other processes are noticed by polling.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{FixedClock, TempDatabase, block_on, new_start};
use outlast_core::turn::LastTurn;
use outlast_core::{
    Clock, Event, Join, Outcome, Payload, RunId, SessionId, Status, Then, Timestamp, Turn, TurnId, World,
};
use outlast_sqlite::{SqliteOptions, SqliteWorld};

fn open(database: &TempDatabase) -> Arc<SqliteWorld> {
    let options = SqliteOptions::new(Arc::new(FixedClock));
    let url = format!("sqlite:{}?doorbell=off", database.path().display());
    Arc::new(SqliteWorld::open(&url, options).unwrap())
}

const RUN: RunId = RunId::from_bits(1);
const SESSION: SessionId = SessionId::from_bits(2);

fn start(world: &SqliteWorld) -> TurnId {
    let start = new_start(RUN);
    let turn = start.turn;
    let join = Join {
        session: SESSION,
        host: "here".into(),
        pid: 1,
        build: "b".into(),
        code: Arc::new([]),
        queues: outlast_core::queue::default_queues(),
        time: Duration::from_secs(10),
        rules: outlast_core::event::RULES,
        format: outlast_core::event::FORMAT,
    };
    block_on(world.join(join)).unwrap();
    let first = Turn::starting(start, turn, FixedClock.now(), "b".into());
    block_on(world.commit(SESSION, &[first])).unwrap().remove(0).unwrap();
    turn
}

fn end(world: &SqliteWorld, from: TurnId) {
    let last = Turn {
        events: vec![Event::RunCompleted { output: Payload::null() }],
        then: Then::End(Status::Completed),
        ..Turn::following(&LastTurn::new(RUN, from, 1), TurnId::from_bits(4), FixedClock.now(), "b".into())
    };
    block_on(world.commit(SESSION, &[last])).unwrap().remove(0).unwrap();
}

#[test]
fn the_end_of_a_run_in_another_process_wakes_its_waiters() {
    let database = TempDatabase::new();
    let (here, there) = (open(&database), open(&database));
    let turn = start(&there);
    let waiting = here.clone();
    let waiter = std::thread::spawn(move || block_on(waiting.ended(RUN, Timestamp::NEVER)));
    end(&there, turn);
    let ended = waiter.join().unwrap().unwrap().unwrap();
    assert_eq!(ended.outcome, Outcome::Completed(Payload::null()));
}

#[test]
fn a_change_in_another_process_wakes_listeners() {
    let database = TempDatabase::new();
    let (here, there) = (open(&database), open(&database));
    let listening = here.clone();
    let listener = std::thread::spawn(move || block_on(listening.changed(0, Timestamp::NEVER)));
    start(&there);
    listener.join().unwrap();
}
