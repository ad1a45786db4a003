//! A process that is killed during a step: the heartbeat details that another worker gets are at most one beat old.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{SystemClock, Timestamp};
use rustix::process::Signal;

use crate::child::{ChildProcess, WorldLocation, sleep_briefly, url, wait_until_true, with_timeout};

/// A worker sends four beats in this time.
const SESSION_TIME: &str = "4s";

const BEAT: Duration = Duration::from_secs(1);

/// The delay of a beat on a busy machine.
const LATE: Duration = Duration::from_secs(2);

/// Sends the time as details repeatedly. An attempt that gets details of an earlier one returns them.
#[step]
async fn tell_time(cx: StepContext<PathBuf>) -> Option<i64> {
    if let Some(said) = cx.last_details::<i64>() {
        return Some(said);
    }
    if cx.state().join("killed").exists() {
        return None;
    }
    loop {
        cx.heartbeat(SystemClock.now().as_micros());
        std::fs::write(cx.state().join("begun"), "").unwrap();
        sleep_briefly().await;
    }
}

#[workflow]
async fn timed(ctx: Context) -> Result<Option<i64>, Error> {
    ctx.step(tell_time, ()).await
}

async fn worker(folder: &Path) -> Result<(Client, Worker), Error> {
    let world = outlast::open(&url(folder)).await?;
    let builder = Worker::builder(world.clone()).state(folder.to_path_buf()).register((timed, tell_time));
    Ok((Client::new(world), builder.session_time(SESSION_TIME).start().await?))
}

/// A worker that will be killed.
pub(crate) async fn telling(folder: &Path) -> Result<(), Error> {
    let (_, worker) = worker(folder).await?;
    worker.run_until_signal().await
}

async fn details_are_one_beat_old_at_most(location: WorldLocation) {
    let temp_folder = location.folder();
    let folder = temp_folder.path();
    let mut first = ChildProcess::start("telling", folder);
    let client = Client::new(outlast::open(&url(folder)).await.unwrap());
    wait_until_true("the first worker", || async { client.workers().await.unwrap().len() == 1 }).await;
    let run = client.start(timed, ()).await.unwrap();
    wait_until_true("the step", || async { folder.join("begun").exists() }).await;
    // Not at the time of a beat.
    let begun = SystemClock.now();
    wait_until_true("two beats and a half", || async { SystemClock.now().since(begun) > BEAT * 5 / 2 }).await;
    first.signal(Signal::KILL);
    first.end();
    let killed_at = SystemClock.now();
    std::fs::write(folder.join("killed"), "").unwrap();
    let (_, second) = worker(folder).await.unwrap();
    let said =
        with_timeout("the output", run.output()).await.unwrap().expect("it was told of the lost attempt");
    let age = killed_at.since(Timestamp::from_micros(said));
    println!("{location:?}: the details were {age:?} old; a beat is {BEAT:?}");
    assert!(age <= BEAT + LATE, "the details were {age:?} old");
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn details_of_a_killed_process_are_at_most_one_beat_old_on_a_file() {
    details_are_one_beat_old_at_most(WorldLocation::File).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn details_of_a_killed_process_are_at_most_one_beat_old_on_a_server() {
    throwaway::needs_postgres!();
    details_are_one_beat_old_at_most(WorldLocation::Server).await;
}
