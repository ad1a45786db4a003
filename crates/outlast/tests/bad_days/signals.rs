//! SIGTERM: once to stop, twice to leave at once.

use std::path::Path;
use std::time::Duration;

use outlast::prelude::*;
use outlast::{Status, World};
use rustix::process::Signal;

use crate::process::{Ground, Process, nap, timed, until, until_so, url};

/// A step that tells when it has begun, and ends when a file is there.
#[step]
async fn slow(cx: StepContext<std::path::PathBuf>) -> Result<String, StepError> {
    std::fs::write(cx.state().join("begun"), "").unwrap();
    while !cx.state().join("end").exists() {
        nap().await;
    }
    Ok("ended".into())
}

#[workflow]
async fn patient(ctx: Context) -> Result<String, Error> {
    ctx.step(slow, ()).await
}

/// A worker with one run, whose drain time is in a file.
pub(crate) async fn draining(folder: &Path) -> Result<(), Error> {
    let world = outlast::open(&url(folder)).await?;
    let drain = std::fs::read_to_string(folder.join("drain")).unwrap();
    let worker = Worker::builder(world.clone())
        .state(folder.to_path_buf())
        .register((patient, slow))
        .drain(&*drain)
        .start()
        .await?;
    let client = Client::new(world);
    // In this order: signals are heard before there is a step that begins.
    let (stopped, started) =
        join!(worker.run_until_signal(), client.start(patient, ()).key("the-run").into_future());
    started?;
    stopped
}

struct Scene {
    folder: tempfile::TempDir,
    worker: Process,
    world: std::sync::Arc<dyn World>,
}

/// A worker in a process of its own, in the middle of a step.
async fn scene(ground: Ground, drain: &str) -> Scene {
    let folder = ground.folder();
    std::fs::write(folder.path().join("drain"), drain).unwrap();
    let worker = Process::start("draining", folder.path());
    until("the step to begin", || folder.path().join("begun").exists().then_some(()));
    let world = outlast::open(&url(folder.path())).await.unwrap();
    Scene { folder, worker, world }
}

async fn status(world: &std::sync::Arc<dyn World>) -> Status {
    Client::new(world.clone()).newest(&[], 1).await.unwrap()[0].status
}

/// Ends of processes that wait for nobody take this long at most, on a machine that does other things too.
const LEAVING_MAX: Duration = Duration::from_secs(20);

async fn attempts_end_and_their_outcomes_are_kept(ground: Ground) {
    let Scene { folder, mut worker, world } = scene(ground, "1h").await;
    worker.signal(Signal::TERM);
    std::fs::write(folder.path().join("end"), "").unwrap();
    let end = worker.end();
    assert!(end.success(), "{end}: {}", worker.output());
    assert!(world.workers().await.unwrap().is_empty(), "it has left");
    let run = Client::new(world.clone()).newest(&[], 1).await.unwrap().remove(0);
    let history = world.history(run.id, 0, 100).await.unwrap();
    let kinds: Vec<&str> =
        history.iter().flat_map(|turn| turn.events.iter().map(|event| event.kind())).collect();
    assert!(kinds.contains(&"step_completed"), "{kinds:?}");
}

async fn a_drain_has_a_bound(ground: Ground) {
    const DRAIN: Duration = Duration::from_millis(200);
    let Scene { folder: _folder, mut worker, world } = scene(ground, "200ms").await;
    let (end, took) = timed(async {
        worker.signal(Signal::TERM);
        worker.end()
    })
    .await;
    assert!(end.success(), "{end}: {}", worker.output());
    assert!(took >= DRAIN && took < DRAIN + LEAVING_MAX, "it took {took:?}");
    assert!(world.workers().await.unwrap().is_empty(), "it has left");
    assert_eq!(status(&world).await, Status::Pending, "the run is free for others");
}

async fn two_signals_are_enough(ground: Ground) {
    let Scene { folder: _folder, mut worker, world } = scene(ground, "1h").await;
    let (end, took) = timed(async {
        worker.signal(Signal::TERM);
        // The first is handled when the worker takes nothing new: a run that it could take stays pending.
        worker.signal(Signal::INT);
        worker.end()
    })
    .await;
    let output = worker.output();
    assert_eq!(end.code(), Some(3), "{end}: {output}");
    assert!(took < LEAVING_MAX, "it took {took:?}");
    assert!(output.contains("the worker stopped at once after a second signal"), "{output}");
    assert!(output.contains("repeated by another"), "{output}");
    until_so("the run to be free", || async {
        world.workers().await.unwrap().is_empty() && status(&world).await == Status::Pending
    })
    .await;
}

#[tokio::test]
async fn after_a_signal_attempts_under_way_may_end_and_their_outcomes_are_kept() {
    attempts_end_and_their_outcomes_are_kept(Ground::File).await;
}

#[tokio::test]
async fn a_drain_is_bounded() {
    a_drain_has_a_bound(Ground::File).await;
}

#[tokio::test]
async fn a_second_signal_leaves_at_once() {
    two_signals_are_enough(Ground::File).await;
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;

    #[tokio::test]
    async fn after_a_signal_attempts_under_way_may_end_and_their_outcomes_are_kept() {
        attempts_end_and_their_outcomes_are_kept(Ground::Server).await;
    }

    #[tokio::test]
    async fn a_drain_is_bounded() {
        a_drain_has_a_bound(Ground::Server).await;
    }

    #[tokio::test]
    async fn a_second_signal_leaves_at_once() {
        two_signals_are_enough(Ground::Server).await;
    }
}
