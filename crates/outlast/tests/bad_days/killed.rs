//! A process that is killed: on a server others have its runs long before its session would expire. On a file
//! that is as soon as somebody beats; `sharing` in the crash tests has it.

use std::path::Path;
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{SystemClock, Timestamp};
use rustix::process::Signal;

use crate::frozen::{attempt, attempts, note_attempt};
use crate::process::{Ground, Process, in_time, nap, until_so, url};

/// So long that no takeover in this test is one of a session that has expired.
const SESSION_TIME: &str = "1h";

const RUNS: u32 = 5;

/// By when another has the runs of the dead.
const PROMISED: Duration = Duration::from_secs(2);

/// What is asserted: a machine that does other things too may make everybody late.
const ASSERTED: Duration = Duration::from_secs(6);

/// Ends only in the process that is not going to be killed.
#[step]
async fn work(cx: StepContext<std::path::PathBuf>, number: u32) -> Result<u32, StepError> {
    let me = std::process::id();
    note_attempt(cx.state(), me, number);
    while !cx.state().join(format!("end-{me}")).exists() {
        nap().await;
    }
    Ok(me)
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

/// A worker that is going to be killed.
pub(crate) async fn dying(folder: &Path) -> Result<(), Error> {
    let (_, worker) = worker(folder).await?;
    worker.run_until_signal().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_have_the_runs_of_a_killed_worker_long_before_its_session_ends() {
    let place = Ground::Server.folder();
    let folder = place.path();
    let (mut first, me) = (Process::start("dying", folder), std::process::id());
    let client = Client::new(outlast::open(&url(folder)).await.unwrap());
    until_so("the first worker", || async { client.workers().await.unwrap().len() == 1 }).await;
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(client.start(worked, number).await.unwrap());
    }
    let have_begun = |pid| (0..RUNS).all(|number| attempt(folder, pid, number).is_some());
    until_so("the first attempts", || async { have_begun(first.id()) }).await;

    std::fs::write(folder.join(format!("end-{me}")), "").unwrap();
    let (_, second) = worker(folder).await.unwrap();
    let killed_at: Timestamp = SystemClock.now();
    first.signal(Signal::KILL);
    first.end();
    let mut longest = Duration::ZERO;
    for run in &runs {
        assert_eq!(in_time("the output", run.output()).await.unwrap(), me, "the survivor's outcome");
        let history = client.history(run.id()).await.unwrap();
        let kinds: Vec<_> = history.iter().flat_map(|turn| &turn.events).map(|event| event.kind()).collect();
        assert_eq!(kinds, ["run_started", "step_started", "step_completed", "run_completed"]);
        // The first turn of the survivor: by then it had the run, and had made its step.
        let completed = |turn: &&outlast::core::TurnRecord| {
            turn.events.iter().any(|event| event.kind() == "step_completed")
        };
        longest = longest.max(history.iter().find(completed).unwrap().at.since(killed_at));
    }
    println!("the last run went on {longest:?} after the kill; promised are {PROMISED:?}");
    assert!(longest < ASSERTED, "a run went on only {longest:?} after the kill");
    assert_eq!(attempts(folder), 2 * RUNS as usize, "each made its attempts, once");
    let workers = client.workers().await.unwrap();
    assert_eq!(workers.iter().map(|worker| worker.pid).collect::<Vec<_>>(), [me], "the dead have left");
    second.stop().await.unwrap();
}
