//! A process that is killed: on a server, others get its runs long before its session would expire. For SQLite,
//! `two_processes` of the crash tests covers that.

use std::path::Path;
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{SystemClock, Timestamp};
use rustix::process::Signal;

use crate::child::{ChildProcess, WorldLocation, sleep_briefly, url, wait_until_true, with_timeout};
use crate::frozen::{attempt, attempts, log_attempt};

/// Long, so that no session expires in this test.
const SESSION_TIME: &str = "1h";

const RUNS: u32 = 5;

/// The documented time of a takeover.
const PROMISED: Duration = Duration::from_secs(2);

/// The asserted time: a busy machine may be slower.
const ASSERTED: Duration = Duration::from_secs(6);

/// Ends only in the process that is not killed.
#[step]
async fn work(cx: StepContext<std::path::PathBuf>, number: u32) -> Result<u32, StepError> {
    let own_pid = std::process::id();
    log_attempt(cx.state(), own_pid, number);
    while !cx.state().join(format!("end-{own_pid}")).exists() {
        sleep_briefly().await;
    }
    Ok(own_pid)
}

#[workflow]
async fn worked(ctx: Context, number: u32) -> Result<u32, Error> {
    ctx.step(work, number).await
}

async fn worker(folder: &Path) -> Result<(Client, Worker), Error> {
    let world = outlast::open(&url(folder)).await?;
    let builder = Worker::builder(world.clone()).state(folder.to_path_buf()).register((worked, work));
    Ok((Client::new(world), builder.session_time(SESSION_TIME).start().await?))
}

/// A worker that will be killed.
pub(crate) async fn dying(folder: &Path) -> Result<(), Error> {
    let (_, worker) = worker(folder).await?;
    worker.run_until_signal().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_have_the_runs_of_a_killed_worker_long_before_its_session_ends() {
    throwaway::needs_postgres!();
    let temp_folder = WorldLocation::Server.folder();
    let folder = temp_folder.path();
    let (mut first, own_pid) = (ChildProcess::start("dying", folder), std::process::id());
    let client = Client::new(outlast::open(&url(folder)).await.unwrap());
    wait_until_true("the first worker", || async { client.workers().await.unwrap().len() == 1 }).await;
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(client.start(worked, number).await.unwrap());
    }
    let have_begun = |pid| (0..RUNS).all(|number| attempt(folder, pid, number).is_some());
    wait_until_true("the first attempts", || async { have_begun(first.id()) }).await;

    std::fs::write(folder.join(format!("end-{own_pid}")), "").unwrap();
    let (_, second) = worker(folder).await.unwrap();
    let killed_at: Timestamp = SystemClock.now();
    first.signal(Signal::KILL);
    first.end();
    let mut longest = Duration::ZERO;
    for run in &runs {
        assert_eq!(
            with_timeout("the output", run.output()).await.unwrap(),
            own_pid,
            "the survivor's outcome"
        );
        let history = client.history(run.id()).await.unwrap();
        let kinds: Vec<_> = history.iter().flat_map(|turn| &turn.events).map(|event| event.kind()).collect();
        assert_eq!(kinds, ["run_started", "step_started", "step_completed", "run_completed"]);
        // The first turn of the other worker: it has executed the step by then.
        let completed = |turn: &&outlast::core::TurnRecord| {
            turn.events.iter().any(|event| event.kind() == "step_completed")
        };
        longest = longest.max(history.iter().find(completed).unwrap().at.since(killed_at));
    }
    println!("the last run continued {longest:?} after the kill; documented are {PROMISED:?}");
    assert!(longest < ASSERTED, "a run continued only {longest:?} after the kill");
    assert_eq!(attempts(folder), 2 * RUNS as usize, "each made its attempts, once");
    let workers = client.workers().await.unwrap();
    assert_eq!(workers.iter().map(|worker| worker.pid).collect::<Vec<_>>(), [own_pid], "the dead have left");
    second.stop().await.unwrap();
}
