//! The lock file of a session shows other processes whether its process is alive.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{TempDatabase, block_on, new_start};
use outlast_core::event::FORMAT;
use outlast_core::queue::default_queues;
use outlast_core::turn::LastTurn;
use outlast_core::{
    ClaimRequest, Claimed, Code, Event, HeartbeatDetails, Join, OpNumber, Payload, Report, RunId, SessionId,
    Status, SuspectRoom, Then, Turn, TurnId, World, WorldError,
};
use outlast_sqlite::SqliteWorld;

const FIRST: SessionId = SessionId::from_bits(1);
const SECOND: SessionId = SessionId::from_bits(2);
const RUN: RunId = RunId::from_bits(3);

fn join(world: &SqliteWorld, session: SessionId) {
    let join = Join {
        session,
        host: "here".into(),
        pid: 1,
        build: "b".into(),
        code: Arc::new([Code { workflow: "w".into(), version: 1 }]),
        queues: default_queues(),
        time: Duration::from_secs(10),
        rules: outlast_core::event::RULES,
        format: outlast_core::event::FORMAT,
    };
    block_on(world.join(join)).unwrap();
}

fn start(world: &SqliteWorld) {
    block_on(world.start(vec![new_start(RUN)])).unwrap().remove(0).unwrap();
}

fn claim(world: &SqliteWorld, session: SessionId) -> Vec<Claimed> {
    let request = ClaimRequest {
        limit: 10,
        code: Arc::new([Code { workflow: "w".into(), version: 1 }]),
        queues: default_queues(),
        build: "b".into(),
        format: FORMAT,
        suspects: SuspectRoom::AnyClass { room: 100 },
        ends_overdue_from: outlast_core::Timestamp::NEVER,
    };
    block_on(world.claim(session, request)).unwrap().claimed
}

fn step(database: &TempDatabase, from: TurnId, seq: u64, id: u128, then: Then) -> Turn {
    let event = Event::StepDropped { op: OpNumber(seq) };
    Turn {
        events: vec![event],
        then,
        ..Turn::following(
            &LastTurn::new(RUN, from, seq),
            TurnId::from_bits(id),
            database.clock.now(),
            "b".into(),
        )
    }
}

fn commit(world: &SqliteWorld, session: SessionId, turn: Turn) -> Result<(), WorldError> {
    block_on(world.commit(session, &[turn]))?.remove(0).map(|_| ())
}

fn lock_files(database: &TempDatabase) -> usize {
    let folder = database.path().with_file_name("world.db-sessions");
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn a_session_is_taken_over_as_soon_as_its_process_is_dead_and_not_before() {
    let database = TempDatabase::new();
    let (first, second) = (database.open(), database.open());
    join(&first, FIRST);
    join(&second, SECOND);
    start(&first);
    assert_eq!(claim(&first, FIRST).len(), 1);
    assert_eq!(block_on(second.takeover(SECOND)), Ok(0), "the first world holds its lock");
    assert!(claim(&second, SECOND).is_empty());

    drop(first);
    assert_eq!(block_on(second.takeover(SECOND)), Ok(1), "the lock is free");
    assert_eq!(claim(&second, SECOND)[0].columns.crashes, 1);
    assert_eq!(lock_files(&database), 1);
}

#[test]
fn heartbeat_details_of_an_ended_run_are_deleted_when_its_session_ends() {
    for is_lost in [false, true] {
        let database = TempDatabase::new();
        let (first, second) = (database.open(), database.open());
        join(&first, FIRST);
        join(&second, SECOND);
        start(&first);
        let claimed = claim(&first, FIRST).remove(0);
        let details = Some(Payload::json(&7).unwrap());
        let details = HeartbeatDetails { run: RUN, op: OpNumber(0), attempt: 1, details };
        block_on(first.beat(FIRST, &Report::default(), &[details])).unwrap();
        let mut last = step(&database, claimed.turn, 1, 10, Then::End(Status::Completed));
        last.events.push(Event::RunCompleted { output: Payload::null() });
        commit(&first, FIRST, last).unwrap();
        if is_lost {
            drop(first);
            block_on(second.takeover(SECOND)).unwrap();
        } else {
            block_on(first.leave(FIRST)).unwrap();
        }
        let file = rusqlite::Connection::open(database.path()).unwrap();
        let count = file.query_row("SELECT count(*) FROM heartbeats", [], |row| row.get::<_, i64>(0));
        assert_eq!(count.unwrap(), 0, "lost: {is_lost}");
    }
}

#[test]
fn a_taken_over_run_continues_after_turns_that_are_newer_than_its_row() {
    let database = TempDatabase::new();
    let (first, second) = (database.open(), database.open());
    join(&first, FIRST);
    join(&second, SECOND);
    start(&first);
    let claimed = claim(&first, FIRST).remove(0);
    commit(&first, FIRST, step(&database, claimed.turn, 1, 10, Then::Hold)).unwrap();
    commit(&first, FIRST, step(&database, TurnId::from_bits(10), 2, 11, Then::Hold)).unwrap();
    assert_eq!(block_on(first.held(FIRST)).unwrap()[0].turn, TurnId::from_bits(11));
    drop(first);

    block_on(second.takeover(SECOND)).unwrap();
    let claimed = claim(&second, SECOND).remove(0);
    assert_eq!((claimed.turn, claimed.seq, claimed.is_fresh), (TurnId::from_bits(11), 3, false));
    assert_eq!(claimed.history.whole().unwrap().len(), 3);
}

#[test]
fn without_a_lock_file_only_the_expiry_time_counts() {
    let database = TempDatabase::new();
    let (first, second) = (database.open(), database.open());
    join(&first, FIRST);
    join(&second, SECOND);
    start(&first);
    claim(&first, FIRST);
    drop(first);
    std::fs::remove_file(database.path().with_file_name("world.db-sessions").join(FIRST.to_string()))
        .unwrap();
    assert_eq!(block_on(second.takeover(SECOND)), Ok(0), "a missing file proves nothing");
    database.clock.advance("10s");
    block_on(second.beat(SECOND, &Report::default(), &[])).unwrap();
    assert_eq!(block_on(second.takeover(SECOND)), Ok(1));
}

#[test]
fn a_worker_that_was_taken_over_is_fenced_although_its_runs_are_cached() {
    let database = TempDatabase::new();
    let (first, second) = (database.open(), database.open());
    join(&first, FIRST);
    start(&first);
    let claimed = claim(&first, FIRST).remove(0);
    database.clock.advance("10s");
    join(&second, SECOND);
    assert_eq!(block_on(second.takeover(SECOND)), Ok(1), "it has expired");
    let refused = commit(&first, FIRST, step(&database, claimed.turn, 1, 10, Then::Hold));
    assert!(matches!(refused, Err(WorldError::Fenced(_))), "{refused:?}");
}

#[test]
fn a_change_by_another_process_invalidates_the_cache_of_a_session() {
    let database = TempDatabase::new();
    let (first, second) = (database.open(), database.open());
    join(&first, FIRST);
    start(&first);
    let claimed = claim(&first, FIRST).remove(0);
    commit(&second, FIRST, step(&database, claimed.turn, 1, 10, Then::Release)).unwrap();
    let refused = commit(&first, FIRST, step(&database, claimed.turn, 1, 11, Then::Hold));
    assert!(matches!(refused, Err(WorldError::Fenced(_))), "{refused:?}");
    assert_eq!(block_on(first.run(RUN)).unwrap().status, Status::Pending);
}

#[test]
fn leaving_removes_the_lock_file() {
    let database = TempDatabase::new();
    let world = database.open();
    join(&world, FIRST);
    assert_eq!(lock_files(&database), 1);
    block_on(world.leave(FIRST)).unwrap();
    block_on(world.leave(FIRST)).unwrap();
    assert_eq!(lock_files(&database), 0);
}

#[test]
fn a_beat_needs_no_runtime() {
    let database = TempDatabase::new();
    let world = Arc::new(database.open());
    join(&world, FIRST);
    let beating = world.clone();
    let beat =
        std::thread::spawn(move || block_on(beating.beat(FIRST, &Report::default(), &[]))).join().unwrap();
    assert_eq!(beat.unwrap().held, 0);
}
