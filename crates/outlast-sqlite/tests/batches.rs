//! One bad turn never fails its neighbours, even when it is SQLite that refuses it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Place, block_on};
use outlast_core::turn::From;
use outlast_core::{
    Committed, Event, Headers, Join, OpNumber, Payload, RunId, SessionId, Start, Status, Then, Turn, TurnId,
    World, WorldError,
};

const SESSION: SessionId = SessionId::from_bits(1);

fn first_turn(place: &Place, run: u128) -> Turn {
    let start = Start {
        run: RunId::from_bits(run),
        turn: TurnId::from_bits(run),
        workflow: "w".into(),
        version: 1,
        key: None,
        input: Payload::null(),
        headers: Headers::new(),
    };
    Turn {
        run: start.run,
        id: start.turn,
        seq: 0,
        at: place.clock.now(),
        build: "b".into(),
        events: vec![start.event()],
        from: From::Start(start),
        consumed: 0,
        fired_until: None,
        clears_crashes: false,
        then: Then::Hold,
    }
}

fn next_turn(turn: &Turn, id: u128) -> Turn {
    Turn {
        id: TurnId::from_bits(id),
        from: From::Turn(turn.id),
        seq: turn.seq + turn.events.len() as u64,
        events: vec![Event::StepDropped { op: OpNumber(0) }],
        ..turn.clone()
    }
}

#[test]
fn a_turn_that_sqlite_refuses_leaves_its_neighbours_alone() {
    let place = Place::new();
    let world = place.open();
    let join = Join {
        session: SESSION,
        host: "here".into(),
        pid: 1,
        build: "b".into(),
        code: Arc::new([]),
        time: Duration::from_secs(10),
    };
    block_on(world.join(join)).unwrap();
    let firsts = vec![first_turn(&place, 1), first_turn(&place, 2), first_turn(&place, 3)];
    for answer in block_on(world.commit(SESSION, &firsts)).unwrap() {
        assert_eq!(answer, Ok(Committed::Done));
    }
    let vandal = rusqlite::Connection::open(place.path()).unwrap();
    let damage = "INSERT INTO turns VALUES (?1, 1, 'turn_', 0, '', '[]')";
    vandal.execute(damage, [RunId::from_bits(2).to_string()]).unwrap();

    let seconds = vec![next_turn(&firsts[0], 11), next_turn(&firsts[1], 12), next_turn(&firsts[2], 13)];
    let answers = block_on(world.commit(SESSION, &seconds)).unwrap();
    assert_eq!(answers[0], Ok(Committed::Done));
    assert!(matches!(answers[1], Err(WorldError::Corrupt(_))), "{:?}", answers[1]);
    assert_eq!(answers[2], Ok(Committed::Done));

    // What the writer forgot when it rolled back, it reads again.
    let third = next_turn(&seconds[2], 23);
    assert_eq!(block_on(world.commit(SESSION, &[third])).unwrap(), [Ok(Committed::Done)]);
    assert_eq!(block_on(world.counts()).unwrap()[&Status::Running], 3);
}

#[test]
fn calls_that_come_together_are_all_answered() {
    let place = Place::new();
    let world = Arc::new(place.open());
    let callers = (0..8_u128).map(|caller| {
        let (world, at) = (world.clone(), place.clock.now());
        std::thread::spawn(move || {
            for n in 0..50 {
                let run = RunId::from_bits(caller * 1_000 + n);
                let start = Start {
                    run,
                    turn: TurnId::from_bits(run.bits()),
                    workflow: "w".into(),
                    version: 1,
                    key: None,
                    input: Payload::null(),
                    headers: Headers::new(),
                };
                block_on(world.start(vec![start])).unwrap().remove(0).unwrap();
                assert_eq!(block_on(world.ended(run, at)), Ok(None));
            }
        })
    });
    callers.collect::<Vec<_>>().into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(block_on(world.counts()).unwrap()[&Status::Pending], 400);
}
