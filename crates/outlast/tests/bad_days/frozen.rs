//! A process that is stopped for longer than its session: another takes over, and the first, when it
//! wakes, writes nothing for what it has lost, and joins anew.

use std::path::Path;
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{Status, SystemClock, Timestamp};
use rustix::process::Signal;

use crate::process::{Ground, Process, in_time, nap, until_so, url};

const SESSION_TIME: &str = "1s";

/// Has another time for the sessions of a test.
pub(crate) const SESSION_FILE: &str = "session";

const RUNS: u32 = 3;

/// How long after a session's end its runs are made by another, at most. Far more than it takes: someone looks
/// every second.
const TAKEOVER_MAX: Duration = Duration::from_secs(20);

/// Ends only in the process that is not frozen: there is a file for each. An attempt that a process makes twice
/// fails.
#[step(attempts = 1)]
async fn slow(cx: StepContext<std::path::PathBuf>, number: u32) -> Result<u32, StepError> {
    let me = std::process::id();
    note_attempt(cx.state(), me, number);
    while !cx.state().join(format!("end-{me}")).exists() {
        nap().await;
    }
    std::fs::write(cx.state().join(format!("ended-{me}-{number}")), "").unwrap();
    Ok(me)
}

#[workflow]
pub(crate) async fn patient(ctx: Context, number: u32) -> Result<u32, Error> {
    ctx.step(slow, number).await
}

/// Notes when a process began its attempt.
pub(crate) fn note_attempt(folder: &Path, pid: u32, number: u32) {
    let (new, whole) = (format!("new-{pid}-{number}"), format!("begun-{pid}-{number}"));
    std::fs::write(folder.join(&new), SystemClock.now().as_micros().to_string()).unwrap();
    // Unlike renaming, this fails when it is there already.
    std::fs::hard_link(folder.join(new), folder.join(whole)).unwrap();
}

/// When the process began the attempt.
pub(crate) fn attempt(folder: &Path, pid: u32, number: u32) -> Option<Timestamp> {
    let noted = std::fs::read_to_string(folder.join(format!("begun-{pid}-{number}"))).ok()?;
    Some(Timestamp::from_micros(noted.parse().unwrap()))
}

/// How many attempts there were, of all processes.
pub(crate) fn attempts(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("begun-")).count()
}

/// A worker with the runs of this module, on the world that a URL names.
pub(crate) async fn worker(folder: &Path, url: &str) -> Result<Worker, Error> {
    let session_time = std::fs::read_to_string(folder.join(SESSION_FILE));
    Worker::builder(outlast::open(url).await?)
        .state(folder.to_path_buf())
        .register((patient, slow))
        .session_time(session_time.as_deref().unwrap_or(SESSION_TIME))
        .start()
        .await
}

/// A worker that is going to be frozen.
pub(crate) async fn freezing(folder: &Path) -> Result<(), Error> {
    worker(folder, &url(folder)).await?.run_until_signal().await
}

async fn the_frozen_are_taken_over(ground: Ground) {
    let place = ground.folder();
    let folder = place.path();
    let (first, me) = (Process::start("freezing", folder), std::process::id());
    let client = Client::new(outlast::open(&url(folder)).await.unwrap());
    until_so("the first worker", || async { client.workers().await.unwrap().len() == 1 }).await;
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(client.start(patient, number).await.unwrap());
    }
    let have_begun = |pid| (0..RUNS).all(|number| attempt(folder, pid, number).is_some());
    until_so("the first attempts", || async { have_begun(first.id()) }).await;

    first.signal(Signal::STOP);
    let before = client.workers().await.unwrap().remove(0);
    let second = worker(folder, &url(folder)).await.unwrap();
    until_so("the takeover", || async { have_begun(me) }).await;
    for number in 0..RUNS {
        let at = attempt(folder, me, number).unwrap();
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

    // The zombie wakes with its attempts about to end well.
    std::fs::write(folder.join(format!("end-{}", first.id())), "").unwrap();
    first.signal(Signal::CONT);
    until_so("the first worker to join anew", || async {
        let workers = client.workers().await.unwrap();
        workers.iter().any(|worker| worker.pid == first.id() && worker.session != before.session)
    })
    .await;
    for (run, history) in runs.iter().zip(&histories) {
        assert_eq!(&client.history(run.id()).await.unwrap(), history, "what the zombie had is not written");
        let view = run.view().await.unwrap();
        assert_eq!((view.status, view.owner, view.crashes), (Status::Running, Some(second.session()), 1));
    }
    std::fs::write(folder.join(format!("end-{me}")), "").unwrap();
    for run in &runs {
        let output = in_time("the output", run.output()).await.unwrap();
        assert_eq!(output, me, "the outcome is that of who took over");
        let history = client.history(run.id()).await.unwrap();
        let kinds: Vec<_> = history.iter().flat_map(|turn| &turn.events).map(|event| event.kind()).collect();
        assert_eq!(kinds, ["run_started", "step_started", "step_completed", "run_completed"]);
    }
    assert_eq!(attempts(folder), 2 * RUNS as usize, "each made its attempts, once");
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_worker_is_taken_over_and_writes_nothing_when_it_wakes() {
    the_frozen_are_taken_over(Ground::File).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_worker_is_taken_over_and_writes_nothing_when_it_wakes_on_postgres() {
    the_frozen_are_taken_over(Ground::Server).await;
}
