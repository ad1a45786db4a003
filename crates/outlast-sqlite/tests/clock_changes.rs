//! The system clock is set forward or back: live sessions are not taken over, and ready runs are not delayed.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use common::{TempDatabase, block_on, new_start};
use outlast_core::event::{FORMAT, RULES};
use outlast_core::queue::default_queues;
use outlast_core::{
    Busy, ClaimRequest, Clock, Code, Join, Report, RunId, SessionId, SuspectRoom, Timestamp, World,
    WorldError,
};
use outlast_sqlite::{SqliteOptions, SqliteWorld};

const HOUR: i64 = 3_600_000_000;

/// A system clock that the test sets.
#[derive(Clone, Debug, Default)]
struct SettableClock(Arc<AtomicI64>);

impl SettableClock {
    fn set(&self, hours: i64) {
        self.0.store(hours * HOUR, Ordering::Relaxed);
    }
}

impl Clock for SettableClock {
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

fn open(database: &TempDatabase, clock: &SettableClock) -> SqliteWorld {
    let options = SqliteOptions::new(Arc::new(clock.clone()));
    SqliteWorld::open(database.path().to_str().unwrap(), options).unwrap()
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
fn a_clock_set_forward_does_not_take_over_live_sessions() {
    let (database, clock) = (TempDatabase::new(), SettableClock::default());
    let (first, second) = (open(&database, &clock), open(&database, &clock));
    let time = Duration::from_secs(10);
    join(&first, FIRST, time);
    start(&first, 1);
    assert_eq!(claim(&first, FIRST), Ok(1));
    join(&second, SECOND, time);
    assert_eq!(block_on(second.takeover(SECOND)), Ok(0));
    clock.set(5);
    assert_eq!(
        block_on(second.takeover(SECOND)),
        Ok(0),
        "no session has been without a beat for ten seconds"
    );
    let late = open(&database, &clock);
    join(&late, THIRD, time);
    assert_eq!(
        block_on(late.takeover(THIRD)),
        Ok(0),
        "a world that was just opened has not observed one either"
    );
    block_on(first.beat(FIRST, &Report::default(), &[])).unwrap();
    assert_eq!(claim(&first, FIRST), Ok(0), "it is still joined");
}

#[test]
fn a_session_without_beats_is_taken_over_even_if_its_lock_is_held() {
    let (database, clock) = (TempDatabase::new(), SettableClock::default());
    let (first, second) = (open(&database, &clock), open(&database, &clock));
    let time = Duration::from_millis(50);
    join(&first, FIRST, time);
    start(&first, 1);
    assert_eq!(claim(&first, FIRST), Ok(1));
    join(&second, SECOND, Duration::from_secs(100));
    clock.set(1);
    // Poll until enough time has passed on the monotonic clock.
    let taken = (0..10_000).find_map(|_| {
        std::thread::park_timeout(Duration::from_millis(1));
        let taken = block_on(second.takeover(SECOND)).unwrap();
        (taken > 0).then_some(taken)
    });
    assert_eq!(taken, Some(1));
    assert!(matches!(claim(&first, FIRST), Err(WorldError::Fenced(_))));
}

#[test]
fn ready_runs_are_not_delayed_when_the_clock_is_set_back_before_a_restart() {
    let (database, clock) = (TempDatabase::new(), SettableClock::default());
    let world = open(&database, &clock);
    join(&world, FIRST, Duration::from_secs(10));
    block_on(world.beat(FIRST, &Report::default(), &[])).unwrap();
    start(&world, 1);
    drop(world);
    clock.set(-3);
    let world = open(&database, &clock);
    assert!(
        world.clock().now() >= Timestamp::from_micros(1_000_000 * HOUR),
        "the world's clock does not go back"
    );
    join(&world, SECOND, Duration::from_secs(10));
    block_on(world.takeover(SECOND)).unwrap();
    assert_eq!(claim(&world, SECOND), Ok(1), "the run was ready before, and still is");
    drop(world);

    clock.set(9);
    assert_eq!(open(&database, &clock).clock().now(), clock.now(), "the system clock has caught up");
}

#[test]
fn a_file_time_far_in_the_future_is_ignored() {
    let (database, clock) = (TempDatabase::new(), SettableClock::default());
    clock.set(24 * 365);
    let world = open(&database, &clock);
    join(&world, FIRST, Duration::from_secs(10));
    block_on(world.beat(FIRST, &Report::default(), &[])).unwrap();
    block_on(world.leave(FIRST)).unwrap();
    drop(world);
    clock.set(0);
    assert_eq!(open(&database, &clock).clock().now(), clock.now());
}
