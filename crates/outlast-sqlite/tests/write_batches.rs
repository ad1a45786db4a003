//! A turn that is refused does not affect the other turns of its batch, even if SQLite refuses it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{TempDatabase, block_on, new_start};
use outlast_core::queue::default_queues;
use outlast_core::turn::BasedOn;
use outlast_core::{
    Committed, Event, Join, NewChild, OpNumber, Outbox, Parent, RunId, SessionId, Start, Status, Turn,
    TurnId, World, WorldError,
};
use outlast_sqlite::SqliteWorld;

const SESSION: SessionId = SessionId::from_bits(1);

fn join(world: &SqliteWorld) {
    let join = Join {
        session: SESSION,
        host: "here".into(),
        pid: 1,
        build: "b".into(),
        code: Arc::new([]),
        queues: default_queues(),
        time: Duration::from_secs(10),
        rules: outlast_core::event::RULES,
        format: outlast_core::event::FORMAT,
    };
    block_on(world.join(join)).unwrap();
}

fn first_turn(database: &TempDatabase, run: u128) -> Turn {
    let start = new_start(RunId::from_bits(run));
    let turn = start.turn;
    Turn::starting(start, turn, database.clock.now(), "b".into())
}

fn next_turn(turn: &Turn, id: u128) -> Turn {
    Turn {
        id: TurnId::from_bits(id),
        based_on: BasedOn::Turn(turn.id),
        seq: turn.seq + turn.events.len() as u64,
        events: vec![Event::StepDropped { op: OpNumber(0) }],
        ..turn.clone()
    }
}

#[test]
fn a_turn_that_sqlite_refuses_does_not_affect_the_others_of_its_batch() {
    let database = TempDatabase::new();
    let world = database.open();
    join(&world);
    let firsts = vec![first_turn(&database, 1), first_turn(&database, 2), first_turn(&database, 3)];
    for answer in block_on(world.commit(SESSION, &firsts)).unwrap() {
        assert_eq!(answer, Ok(Committed::Done));
    }
    let damaging = rusqlite::Connection::open(database.path()).unwrap();
    let damage = "INSERT INTO turns VALUES (?1, 1, 'turn_', 0, '', '[]')";
    damaging.execute(damage, [RunId::from_bits(2).to_string()]).unwrap();

    let seconds = vec![next_turn(&firsts[0], 11), next_turn(&firsts[1], 12), next_turn(&firsts[2], 13)];
    let answers = block_on(world.commit(SESSION, &seconds)).unwrap();
    assert_eq!(answers[0], Ok(Committed::Done));
    assert!(matches!(answers[1], Err(WorldError::Corrupt(_))), "{:?}", answers[1]);
    assert_eq!(answers[2], Ok(Committed::Done));

    // The rollback cleared the writer's cache, so the writer reads the rows again.
    let third = next_turn(&seconds[2], 23);
    assert_eq!(block_on(world.commit(SESSION, &[third])).unwrap(), [Ok(Committed::Done)]);
    assert_eq!(block_on(world.counts()).unwrap()[&Status::Running], 3);
}

#[test]
fn a_turn_that_sqlite_refuses_has_no_effect_on_other_runs() {
    let database = TempDatabase::new();
    let world = database.open();
    join(&world);
    let first = first_turn(&database, 1);
    block_on(world.commit(SESSION, std::slice::from_ref(&first))).unwrap().remove(0).unwrap();
    let damaging = rusqlite::Connection::open(database.path()).unwrap();
    let damage = "INSERT INTO turns VALUES (?1, 1, 'turn_', 0, '', '[]')";
    damaging.execute(damage, [RunId::from_bits(1).to_string()]).unwrap();

    let parent = Parent { run: first.run, op: OpNumber(0), root: first.run, awaits: true };
    let start = Start { parent: Some(parent), ..new_start(RunId::from_bits(2)) };
    let children = vec![NewChild { start, notify_parent: true }];
    let tags = [("a".to_owned(), "b".to_owned())].into();
    let outbox = Some(Box::new(Outbox { children, tags, ..Outbox::default() }));
    let refused = block_on(world.commit(SESSION, &[Turn { outbox, ..next_turn(&first, 11) }])).unwrap();
    assert!(matches!(refused[0], Err(WorldError::Corrupt(_))), "{:?}", refused[0]);

    let parent = block_on(world.run(first.run)).unwrap();
    assert_eq!((parent.sent, parent.tags.len()), (0, 0));
    assert!(matches!(block_on(world.run(RunId::from_bits(2))), Err(WorldError::NotFound(_))));
    assert_eq!(block_on(world.counts()).unwrap()[&Status::Pending], 0);
}

#[test]
fn concurrent_calls_are_all_answered() {
    let database = TempDatabase::new();
    let world = Arc::new(database.open());
    let callers = (0..8_u128).map(|caller| {
        let (world, at) = (world.clone(), database.clock.now());
        std::thread::spawn(move || {
            for n in 0..50 {
                let run = RunId::from_bits(caller * 1_000 + n);
                block_on(world.start(vec![new_start(run)])).unwrap().remove(0).unwrap();
                assert_eq!(block_on(world.ended(run, at)), Ok(None));
            }
        })
    });
    callers.collect::<Vec<_>>().into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(block_on(world.counts()).unwrap()[&Status::Pending], 400);
}
