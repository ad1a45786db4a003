//! Child processes of the tests, and waiting with a bound.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
#[cfg(feature = "postgres")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outlast::Error;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[cfg(feature = "postgres")]
use crate::killed;
use crate::{frozen, last_details, neighbours, scarce, signals};

/// How long something may take. Its end is a failed test, not a measurement.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const NAP: Duration = Duration::from_millis(2);

const PROGRAM: &str = "OUTLAST_BAD_DAY_PROGRAM";
const FOLDER: &str = "OUTLAST_BAD_DAY_FOLDER";

/// Does what the environment says, if it says something.
pub(crate) fn obey() {
    let Ok(program) = std::env::var(PROGRAM) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let played: Result<(), Error> = runtime.block_on(async {
        match &*program {
            "answering" => neighbours::answering(&folder).await,
            "draining" => signals::draining(&folder).await,
            "freezing" => frozen::freezing(&folder).await,
            #[cfg(feature = "postgres")]
            "dying" => killed::dying(&folder).await,
            "telling" => last_details::telling(&folder).await,
            "few-files" => scarce::few_files(&folder).await,
            "little-memory" => scarce::little_memory(&folder).await,
            other => panic!("there is no program `{other}`"),
        }
    });
    let code = match played {
        Ok(()) => 0,
        Err(error) => {
            println!("ended with: {error}");
            3
        }
    };
    // Not by returning, which waits for blocking steps, and is not what the test harness expects.
    std::process::exit(code);
}

/// A child process, which dies with its owner.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    folder: PathBuf,
}

impl Process {
    /// Starts this test binary again, as a program.
    pub(crate) fn start(program: &str, folder: &Path) -> Self {
        let output = File::options().create(true).append(true).open(folder.join("output")).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_program", "--nocapture"])
            .env(PROGRAM, program)
            .env(FOLDER, folder)
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Self { child, folder: folder.into() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it has written.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(self.folder.join("output")).unwrap()
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let what = format!("the end of child {}", self.id());
        until(&what, || self.child.try_wait().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that it is dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks again and again until there is something to see; panics when that takes too long.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE.as_millis() / NAP.as_millis() {
        if let Some(seen) = look() {
            return seen;
        }
        std::thread::park_timeout(NAP);
    }
    panic!("waited in vain for {what}");
}

/// The same, in a task.
pub(crate) async fn until_so<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    for _ in 0..PATIENCE.as_millis() / NAP.as_millis() {
        if look().await {
            return;
        }
        nap().await;
    }
    panic!("waited in vain for {what}");
}

/// Lets a moment pass.
#[allow(clippy::disallowed_methods, reason = "between two looks")]
pub(crate) async fn nap() {
    tokio::time::sleep(NAP).await;
}

/// Fails when it takes too long.
pub(crate) async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// How long something takes.
#[allow(clippy::disallowed_methods, reason = "a measurement")]
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = std::time::Instant::now();
    let done = work.await;
    (done, began.elapsed())
}

/// Where the runs of a test are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ground {
    /// In a file of their own.
    File,
    /// In a schema of their own on the server for tests.
    #[cfg(feature = "postgres")]
    Server,
}

impl Ground {
    /// A new folder, in which the processes of a test find their world.
    pub(crate) fn folder(self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        #[cfg(feature = "postgres")]
        if let Self::Server = self {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let (server, number) = (throwaway::postgres::for_tests(), NEXT.fetch_add(1, Ordering::Relaxed));
            let joint = if server.contains('?') { '&' } else { '?' };
            let url = format!("{server}{joint}schema=bad_day_{}_{number}&pool=4", std::process::id());
            std::fs::write(folder.path().join(ELSEWHERE), url).unwrap();
        }
        folder
    }
}

/// Has the URL of a world that is not in the folder.
const ELSEWHERE: &str = "url";

/// The URL of the world of a folder: of a file in it, unless it says otherwise.
pub(crate) fn url(folder: &Path) -> String {
    let elsewhere = std::fs::read_to_string(folder.join(ELSEWHERE));
    elsewhere.unwrap_or_else(|_| format!("sqlite:{}", folder.join("world.db").display()))
}
