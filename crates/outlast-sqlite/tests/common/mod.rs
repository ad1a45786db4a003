//! Helpers of the tests: a temporary database, a world in it, and a minimal executor.

use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Duration;

use outlast_core::queue::{default_queue, default_queues};
use outlast_core::turn::LastTurn;
use outlast_core::{
    Busy, ClaimRequest, Clock, Code, Event, Headers, Join, Payload, RunId, SessionId, Start, Status,
    SuspectRoom, Tags, Then, Timestamp, Turn, TurnId, World, WorldError,
};
use outlast_sqlite::{SqliteOptions, SqliteWorld};
use outlast_testkit::TestClock;

/// A database file in a temporary folder, with a clock that the test controls.
pub(crate) struct TempDatabase {
    folder: tempfile::TempDir,
    pub(crate) clock: TestClock,
}

impl TempDatabase {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: TestClock::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("world.db")
    }

    pub(crate) fn try_open(&self) -> Result<SqliteWorld, WorldError> {
        let options = SqliteOptions::new(Arc::new(self.clock.clone()));
        SqliteWorld::open(self.path().to_str().unwrap(), options)
    }

    #[allow(dead_code, reason = "not every test opens a good file")]
    pub(crate) fn open(&self) -> SqliteWorld {
        self.try_open().unwrap()
    }
}

/// A clock that never advances but does not count as virtual, so that the change watcher runs.
#[derive(Debug)]
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_893_499_200_000_000)
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

/// A start of workflow `w` with default values.
#[allow(dead_code, reason = "not every test starts a run")]
pub(crate) fn new_start(run: RunId) -> Start {
    Start {
        run,
        turn: TurnId::from_bits(run.bits()),
        workflow: "w".into(),
        version: 1,
        rules: outlast_core::event::RULES,
        queue: default_queue(),
        priority: 0,
        key: None,
        input: Payload::null(),
        headers: Headers::new(),
        tags: Tags::new(),
        parent: None,
        not_before: None,
        deadline: None,
        policy: None,
        requester: None,
        ending: None,
    }
}

struct UnparkWaker(Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, without a runtime.
#[allow(dead_code, reason = "not every test waits")]
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Arc::new(UnparkWaker(std::thread::current())).into();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        std::thread::park();
    }
}

/// Claims a ready run with a new session, and completes it.
#[allow(dead_code, reason = "not every test ends a run")]
pub(crate) fn end_run(world: &SqliteWorld, run: RunId) {
    let session = SessionId::from_bits(7_777);
    let code: Arc<[Code]> = Arc::new([Code { workflow: "w".into(), version: 1 }]);
    let join = Join {
        session,
        host: "here".into(),
        pid: 1,
        build: "b".into(),
        code: code.clone(),
        queues: default_queues(),
        time: Duration::from_secs(10),
        rules: outlast_core::event::RULES,
        format: outlast_core::event::FORMAT,
    };
    block_on(world.join(join)).unwrap();
    let request = ClaimRequest {
        limit: 10,
        code,
        queues: default_queues(),
        build: "b".into(),
        format: outlast_core::event::FORMAT,
        suspects: SuspectRoom::AnyClass { room: 100 },
        ends_overdue_from: Timestamp::NEVER,
    };
    let claimed = block_on(world.claim(session, request)).unwrap().claimed;
    let claimed = claimed.into_iter().find(|claimed| claimed.run == run).unwrap();
    let last = Turn {
        events: vec![Event::RunCompleted { output: Payload::null() }],
        then: Then::End(Status::Completed),
        ..Turn::following(
            &LastTurn::new(run, claimed.turn, claimed.seq),
            TurnId::from_bits(run.bits() + 1_000_000),
            claimed.turn_at,
            "b".into(),
        )
    };
    block_on(world.commit(session, &[last])).unwrap().remove(0).unwrap();
}
