//! What the tests share: a file of their own, a world on it, and the plainest executor there is.

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

use outlast_core::{Headers, Payload, RunId, Start, Tags, TurnId, WorldError};
use outlast_sqlite::{SqliteOptions, SqliteWorld};
use outlast_testkit::TestClock;

pub(crate) struct Place {
    folder: tempfile::TempDir,
    pub(crate) clock: TestClock,
}

impl Place {
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

/// A start of workflow `w` with nothing special about it.
#[allow(dead_code, reason = "not every test starts a run")]
pub(crate) fn new_start(run: RunId) -> Start {
    Start {
        run,
        turn: TurnId::from_bits(run.bits()),
        workflow: "w".into(),
        version: 1,
        key: None,
        input: Payload::null(),
        headers: Headers::new(),
        tags: Tags::new(),
        parent: None,
        not_before: None,
        deadline: None,
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread alone, without any runtime.
#[allow(dead_code, reason = "not every test waits")]
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        std::thread::park();
    }
}
