//! Clocks that are set: nobody is robbed, and what is ready is not late.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use common::{Place, block_on, new_start};
use outlast_core::event::{FORMAT, RULES};
use outlast_core::queue::default_queues;
use outlast_core::{
    Busy, ClaimRequest, Clock, Code, Join, Report, RunId, SessionId, SuspectRoom, Timestamp, World,
    WorldError,
};
use outlast_sqlite::{SqliteOptions, SqliteWorld};

const HOUR: i64 = 3_600_000_000;

/// The clock of a machine, which a person sets.
#[derive(Clone, Debug, Default)]
struct Machine(Arc<AtomicI64>);

impl Machine {
    fn set(&self, hours: i64) {
        self.0.store(hours * HOUR, Ordering::Relaxed);
    }
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000 * HOUR + self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        Box::pin(std::future::pending())
    }

    fn busy(&self) -> Busy {
        Busy::uncounted()
    }

    fn is_virtual(&self) -> bool {
        false
    }
}

fn open(place: &Place, machine: &Machine) -> SqliteWorld {
    let options = SqliteOptions::new(Arc::new(machine.clone()));
    SqliteWorld::open(place.path().to_str().unwrap(), options).unwrap()
}

fn code() -> Arc<[Code]> {
    Arc::new([Code { workflow: "w".into(), version: 1 }])
}

fn join(world: &SqliteWorld, session: SessionId, time: Duration) {
    let (host, queues) = ("here".into(), default_queues());
    let join = Join {
        session,
        host,
        pid: 1,
        build: "b".into(),
        code: code(),
        queues,
        time,
        rules: RULES,
        format: FORMAT,
    };
    block_on(world.join(join)).unwrap();
}

fn claim(world: &SqliteWorld, session: SessionId) -> Result<usize, WorldError> {
    let request = ClaimRequest {
        limit: 10,
        code: code(),
        queues: default_queues(),
        build: "b".into(),
        format: FORMAT,
        suspects: SuspectRoom::AnyClass { room: 100 },
        ends_overdue_from: Timestamp::NEVER,
    };
    block_on(world.claim(session, request)).map(|work| work.claimed.len())
}

fn start(world: &SqliteWorld, run: u128) {
    block_on(world.start(vec![new_start(RunId::from_bits(run))])).unwrap().remove(0).unwrap();
}

const FIRST: SessionId = SessionId::from_bits(1);
const SECOND: SessionId = SessionId::from_bits(2);
const THIRD: SessionId = SessionId::from_bits(3);

#[test]
fn a_clock_set_forward_robs_nobody_who_lives() {
    let (place, machine) = (Place::new(), Machine::default());
    let (first, second) = (open(&place, &machine), open(&place, &machine));
    let time = Duration::from_secs(10);
    join(&first, FIRST, time);
    start(&first, 1);
    assert_eq!(claim(&first, FIRST), Ok(1));
    join(&second, SECOND, time);
    assert_eq!(block_on(second.takeover(SECOND)), Ok(0));
    machine.set(5);
    assert_eq!(block_on(second.takeover(SECOND)), Ok(0), "nobody has been silent for ten seconds");
    let late = open(&place, &machine);
    join(&late, THIRD, time);
    assert_eq!(block_on(late.takeover(THIRD)), Ok(0), "nor does a newcomer know of one");
    block_on(first.beat(FIRST, &Report::default(), &[])).unwrap();
    assert_eq!(claim(&first, FIRST), Ok(0), "it is still joined");
}

#[test]
fn who_is_silent_is_taken_over_though_its_lock_is_held() {
    let (place, machine) = (Place::new(), Machine::default());
    let (first, second) = (open(&place, &machine), open(&place, &machine));
    let time = Duration::from_millis(50);
    join(&first, FIRST, time);
    start(&first, 1);
    assert_eq!(claim(&first, FIRST), Ok(1));
    join(&second, SECOND, Duration::from_secs(100));
    machine.set(1);
    // Real time, which nobody can set: waited for, not slept for.
    let taken = (0..10_000).find_map(|_| {
        std::thread::park_timeout(Duration::from_millis(1));
        let taken = block_on(second.takeover(SECOND)).unwrap();
        (taken > 0).then_some(taken)
    });
    assert_eq!(taken, Some(1));
    assert!(matches!(claim(&first, FIRST), Err(WorldError::Fenced(_))));
}

#[test]
fn what_is_ready_is_not_late_when_the_clock_is_set_back_between_two_processes() {
    let (place, machine) = (Place::new(), Machine::default());
    let world = open(&place, &machine);
    join(&world, FIRST, Duration::from_secs(10));
    block_on(world.beat(FIRST, &Report::default(), &[])).unwrap();
    start(&world, 1);
    drop(world);
    machine.set(-3);
    let world = open(&place, &machine);
    assert!(world.clock().now() >= Timestamp::from_micros(1_000_000 * HOUR), "the world's clock goes on");
    join(&world, SECOND, Duration::from_secs(10));
    block_on(world.takeover(SECOND)).unwrap();
    assert_eq!(claim(&world, SECOND), Ok(1), "it was ready before, and is ready now");
    drop(world);

    machine.set(9);
    assert_eq!(open(&place, &machine).clock().now(), machine.now(), "the machine has caught up");
}

#[test]
fn a_file_from_far_in_the_future_does_not_take_the_world_there() {
    let (place, machine) = (Place::new(), Machine::default());
    machine.set(24 * 365);
    let world = open(&place, &machine);
    join(&world, FIRST, Duration::from_secs(10));
    block_on(world.beat(FIRST, &Report::default(), &[])).unwrap();
    block_on(world.leave(FIRST)).unwrap();
    drop(world);
    machine.set(0);
    assert_eq!(open(&place, &machine).clock().now(), machine.now());
}
