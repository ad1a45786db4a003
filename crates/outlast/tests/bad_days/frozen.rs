//! A process that is stopped for longer than its session: another one takes over. When the first one continues, it
//! writes nothing for the runs that it has lost, and joins again.

use std::path::Path;
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{Status, SystemClock, Timestamp};
use rustix::process::Signal;

use crate::child::{ChildProcess, WorldLocation, sleep_briefly, url, wait_until_true, with_timeout};

const SESSION_TIME: &str = "1s";

/// The file with another session time for a test.
pub(crate) const SESSION_FILE: &str = "session";

const RUNS: u32 = 3;

/// The maximum time between the end of a session and the takeover of its runs: much more than it takes, since workers
/// look for expired sessions every second.
const TAKEOVER_MAX: Duration = Duration::from_secs(20);

/// Ends when the file of its process exists: only for the process that is not frozen. An attempt that a process makes
/// twice fails.
#[step(attempts = 1)]
async fn slow(cx: StepContext<std::path::PathBuf>, number: u32) -> Result<u32, StepError> {
    let own_pid = std::process::id();
    log_attempt(cx.state(), own_pid, number);
    while !cx.state().join(format!("end-{own_pid}")).exists() {
        sleep_briefly().await;
    }
    std::fs::write(cx.state().join(format!("ended-{own_pid}-{number}")), "").unwrap();
    Ok(own_pid)
}

#[workflow]
pub(crate) async fn patient(ctx: Context, number: u32) -> Result<u32, Error> {
    ctx.step(slow, number).await
}

/// Logs the begin of a process's attempt.
pub(crate) fn log_attempt(folder: &Path, pid: u32, number: u32) {
    let (new, whole) = (format!("new-{pid}-{number}"), format!("begun-{pid}-{number}"));
    std::fs::write(folder.join(&new), SystemClock.now().as_micros().to_string()).unwrap();
    // Unlike a rename, this fails if the file exists.
    std::fs::hard_link(folder.join(new), folder.join(whole)).unwrap();
}

/// The time at which the process began the attempt.
pub(crate) fn attempt(folder: &Path, pid: u32, number: u32) -> Option<Timestamp> {
    let noted = std::fs::read_to_string(folder.join(format!("begun-{pid}-{number}"))).ok()?;
    Some(Timestamp::from_micros(noted.parse().unwrap()))
}

/// The number of attempts of all processes.
pub(crate) fn attempts(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("begun-")).count()
}

/// A worker with the workflow of this module, on the world of a URL.
pub(crate) async fn worker(folder: &Path, url: &str) -> Result<Worker, Error> {
    let session_time = std::fs::read_to_string(folder.join(SESSION_FILE));
    Worker::builder(outlast::open(url).await?)
        .state(folder.to_path_buf())
        .register((patient, slow))
        .session_time(session_time.as_deref().unwrap_or(SESSION_TIME))
        .start()
        .await
}

/// A worker that will be frozen.
pub(crate) async fn freezing(folder: &Path) -> Result<(), Error> {
    worker(folder, &url(folder)).await?.run_until_signal().await
}

async fn check_takeover_of_frozen(location: WorldLocation) {
    let temp_folder = location.folder();
    let folder = temp_folder.path();
    let (first, own_pid) = (ChildProcess::start("freezing", folder), std::process::id());
    let client = Client::new(outlast::open(&url(folder)).await.unwrap());
    wait_until_true("the first worker", || async { client.workers().await.unwrap().len() == 1 }).await;
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(client.start(patient, number).await.unwrap());
    }
    let have_begun = |pid| (0..RUNS).all(|number| attempt(folder, pid, number).is_some());
    wait_until_true("the first attempts", || async { have_begun(first.id()) }).await;

    first.signal(Signal::STOP);
    let before = client.workers().await.unwrap().remove(0);
    let second = worker(folder, &url(folder)).await.unwrap();
    wait_until_true("the takeover", || async { have_begun(own_pid) }).await;
    for number in 0..RUNS {
        let at = attempt(folder, own_pid, number).unwrap();
        assert!(at >= before.expires_at, "nobody is robbed: {at} is before {}", before.expires_at);
        let waited = at.since(before.expires_at);
        assert!(waited < TAKEOVER_MAX, "run {number} was made {waited:?} after the session's end");
    }
    let workers = client.workers().await.unwrap();
    assert!(workers.iter().all(|worker| worker.session != before.session), "its session has ended");
    let mut histories = Vec::new();
    for run in &runs {
        histories.push(client.history(run.id()).await.unwrap());
    }

    // The first process continues, and its attempts succeed.
    std::fs::write(folder.join(format!("end-{}", first.id())), "").unwrap();
    first.signal(Signal::CONT);
    wait_until_true("the first worker to join anew", || async {
        let workers = client.workers().await.unwrap();
        workers.iter().any(|worker| worker.pid == first.id() && worker.session != before.session)
    })
    .await;
    for (run, history) in runs.iter().zip(&histories) {
        assert_eq!(&client.history(run.id()).await.unwrap(), history, "what the zombie had is not written");
        let view = run.view().await.unwrap();
        assert_eq!((view.status, view.owner, view.crashes), (Status::Running, Some(second.session()), 1));
    }
    std::fs::write(folder.join(format!("end-{own_pid}")), "").unwrap();
    for run in &runs {
        let output = with_timeout("the output", run.output()).await.unwrap();
        assert_eq!(output, own_pid, "the outcome is that of who took over");
        let history = client.history(run.id()).await.unwrap();
        let kinds: Vec<_> = history.iter().flat_map(|turn| &turn.events).map(|event| event.kind()).collect();
        assert_eq!(kinds, ["run_started", "step_started", "step_completed", "run_completed"]);
    }
    assert_eq!(attempts(folder), 2 * RUNS as usize, "each made its attempts, once");
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_worker_is_taken_over_and_writes_nothing_when_it_wakes() {
    check_takeover_of_frozen(WorldLocation::File).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_worker_is_taken_over_and_writes_nothing_when_it_wakes_on_postgres() {
    throwaway::needs_postgres!();
    check_takeover_of_frozen(WorldLocation::Server).await;
}
