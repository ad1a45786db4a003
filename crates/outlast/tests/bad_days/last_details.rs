//! A process that is killed while a step works: the details of the step's heartbeats that another worker gets are at
//! most one beat old.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{SystemClock, Timestamp};
use rustix::process::Signal;

use crate::process::{Ground, Process, in_time, nap, until_so, url};

/// A worker beats four times in it.
const SESSION_TIME: &str = "4s";

const BEAT: Duration = Duration::from_secs(1);

/// What a busy machine may add: a beat is late, and takes a while.
const LATE: Duration = Duration::from_secs(2);

/// Says the time again and again. An attempt that is told of another one answers what that one said last.
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
        nap().await;
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

/// A worker that is going to be killed.
pub(crate) async fn telling(folder: &Path) -> Result<(), Error> {
    let (_, worker) = worker(folder).await?;
    worker.run_until_signal().await
}

async fn details_are_one_beat_old_at_most(ground: Ground) {
    let place = ground.folder();
    let folder = place.path();
    let mut first = Process::start("telling", folder);
    let client = Client::new(outlast::open(&url(folder)).await.unwrap());
    until_so("the first worker", || async { client.workers().await.unwrap().len() == 1 }).await;
    let run = client.start(timed, ()).await.unwrap();
    until_so("the step", || async { folder.join("begun").exists() }).await;
    // Not at the beginning of a beat.
    let begun = SystemClock.now();
    until_so("two beats and a half", || async { SystemClock.now().since(begun) > BEAT * 5 / 2 }).await;
    first.signal(Signal::KILL);
    first.end();
    let killed_at = SystemClock.now();
    std::fs::write(folder.join("killed"), "").unwrap();
    let (_, second) = worker(folder).await.unwrap();
    let said = in_time("the output", run.output()).await.unwrap().expect("it was told of the lost attempt");
    let age = killed_at.since(Timestamp::from_micros(said));
    println!("{ground:?}: the details were {age:?} old; a beat is {BEAT:?}");
    assert!(age <= BEAT + LATE, "the details were {age:?} old");
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn details_of_a_killed_process_are_at_most_one_beat_old_on_a_file() {
    details_are_one_beat_old_at_most(Ground::File).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn details_of_a_killed_process_are_at_most_one_beat_old_on_a_server() {
    details_are_one_beat_old_at_most(Ground::Server).await;
}
