//! Child processes of the tests, and waiting with a time limit.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use outlast::Error;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{frozen, killed, last_details, neighbours, scarce_resources, signals};

/// The time limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

const PROGRAM: &str = "OUTLAST_BAD_DAY_PROGRAM";
const FOLDER: &str = "OUTLAST_BAD_DAY_FOLDER";

/// Runs the program that the environment selects, if any.
pub(crate) fn run_child_program() {
    let Ok(program) = std::env::var(PROGRAM) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let result: Result<(), Error> = runtime.block_on(async {
        match &*program {
            "answering" => neighbours::answering(&folder).await,
            "draining" => signals::draining(&folder).await,
            "freezing" => frozen::freezing(&folder).await,
            "dying" => killed::dying(&folder).await,
            "telling" => last_details::telling(&folder).await,
            "few-files" => scarce_resources::few_files(&folder).await,
            "little-memory" => scarce_resources::little_memory(&folder).await,
            other => panic!("there is no program `{other}`"),
        }
    });
    let code = match result {
        Ok(()) => 0,
        Err(error) => {
            println!("ended with: {error}");
            3
        }
    };
    // Exit without returning, which would wait for blocking steps.
    std::process::exit(code);
}

/// A child process. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    child: Child,
    folder: PathBuf,
}

impl ChildProcess {
    /// Starts this test binary again, as a child.
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

    /// Its output.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(self.folder.join("output")).unwrap()
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let what = format!("the end of child {}", self.id());
        wait_until(&what, || self.child.try_wait().unwrap())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // An error means that it is dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls `check` until it returns a value; panics when that takes too long.
#[track_caller]
pub(crate) fn wait_until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    for _ in 0..TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
        if let Some(value) = check() {
            return value;
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
    panic!("timeout while waiting for {what}");
}

/// Polls `check` until it returns true, in a task.
pub(crate) async fn wait_until_true<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    for _ in 0..TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
        if check().await {
            return;
        }
        sleep_briefly().await;
    }
    panic!("timeout while waiting for {what}");
}

/// Waits for the interval between two polls.
#[allow(clippy::disallowed_methods, reason = "between two polls")]
pub(crate) async fn sleep_briefly() {
    tokio::time::sleep(POLL_INTERVAL).await;
}

/// Awaits a future; panics when that takes too long.
pub(crate) async fn with_timeout<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => panic!("timeout while waiting for {what}"),
    }
}

/// Awaits a future, and measures its duration.
#[allow(clippy::disallowed_methods, reason = "a measurement")]
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = std::time::Instant::now();
    let done = work.await;
    (done, began.elapsed())
}

/// Where the world of a test is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WorldLocation {
    /// In a new SQLite file.
    File,
    /// In a new schema on the server for tests.
    Server,
}

impl WorldLocation {
    /// A new folder, from which the processes of a test get the URL of their world.
    pub(crate) fn folder(self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        if let Self::Server = self {
            let url = format!("{}&pool=4", throwaway::postgres::new_schema_url("bad_day"));
            std::fs::write(folder.path().join(URL_FILE), url).unwrap();
        }
        folder
    }
}

/// The file with the URL of a world that is not in the folder.
const URL_FILE: &str = "url";

/// The URL of the world of a folder: an SQLite file in it, unless there is a file with another URL.
pub(crate) fn url(folder: &Path) -> String {
    let url_in_file = std::fs::read_to_string(folder.join(URL_FILE));
    url_in_file.unwrap_or_else(|_| format!("sqlite:{}", folder.join("world.db").display()))
}
