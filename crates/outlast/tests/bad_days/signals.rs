//! SIGTERM: the first stops the worker, the second ends it at once.

use std::path::Path;
use std::time::Duration;

use outlast::prelude::*;
use outlast::{Status, World};
use rustix::process::Signal;

use crate::child::{ChildProcess, WorldLocation, sleep_briefly, timed, url, wait_until, wait_until_true};

/// A step that logs its begin, and ends when a file exists.
#[step]
async fn slow(cx: StepContext<std::path::PathBuf>) -> Result<String, StepError> {
    std::fs::write(cx.state().join("begun"), "").unwrap();
    while !cx.state().join("end").exists() {
        sleep_briefly().await;
    }
    Ok("ended".into())
}

#[workflow]
async fn patient(ctx: Context) -> Result<String, Error> {
    ctx.step(slow, ()).await
}

/// A worker with one run, whose drain time is read from a file.
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
    // Signals are handled before a step can begin.
    let (stopped, started) =
        join!(worker.run_until_signal(), client.start(patient, ()).key("the-run").into_future());
    started?;
    stopped
}

struct Scene {
    folder: tempfile::TempDir,
    worker: ChildProcess,
    world: std::sync::Arc<dyn World>,
}

/// A worker in a process of its own, in the middle of a step.
async fn scene(location: WorldLocation, drain: &str) -> Scene {
    let folder = location.folder();
    std::fs::write(folder.path().join("drain"), drain).unwrap();
    let worker = ChildProcess::start("draining", folder.path());
    wait_until("the step to begin", || folder.path().join("begun").exists().then_some(()));
    let world = outlast::open(&url(folder.path())).await.unwrap();
    Scene { folder, worker, world }
}

async fn status(world: &std::sync::Arc<dyn World>) -> Status {
    Client::new(world.clone()).newest(&[], 1).await.unwrap()[0].status
}

/// The time limit for the end of a process that waits for nothing, on a busy machine.
const LEAVING_MAX: Duration = Duration::from_secs(20);

async fn attempts_end_and_their_outcomes_are_kept(location: WorldLocation) {
    let Scene { folder, mut worker, world } = scene(location, "1h").await;
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

async fn a_drain_has_a_bound(location: WorldLocation) {
    const DRAIN: Duration = Duration::from_millis(200);
    let Scene { folder: _folder, mut worker, world } = scene(location, "200ms").await;
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

async fn two_signals_are_enough(location: WorldLocation) {
    let Scene { folder: _folder, mut worker, world } = scene(location, "1h").await;
    let (end, took) = timed(async {
        worker.signal(Signal::TERM);
        // The first signal is handled when the worker claims no more runs: a ready run stays pending.
        worker.signal(Signal::INT);
        worker.end()
    })
    .await;
    let output = worker.output();
    assert_eq!(end.code(), Some(3), "{end}: {output}");
    assert!(took < LEAVING_MAX, "it took {took:?}");
    assert!(output.contains("the worker stopped at once after a second signal"), "{output}");
    assert!(output.contains("repeated by another"), "{output}");
    wait_until_true("the run to be free", || async {
        world.workers().await.unwrap().is_empty() && status(&world).await == Status::Pending
    })
    .await;
}

#[tokio::test]
async fn after_a_signal_attempts_under_way_may_end_and_their_outcomes_are_kept() {
    attempts_end_and_their_outcomes_are_kept(WorldLocation::File).await;
}

#[tokio::test]
async fn a_drain_is_bounded() {
    a_drain_has_a_bound(WorldLocation::File).await;
}

#[tokio::test]
async fn a_second_signal_leaves_at_once() {
    two_signals_are_enough(WorldLocation::File).await;
}

mod on_postgres {
    use super::*;

    #[tokio::test]
    async fn after_a_signal_attempts_under_way_may_end_and_their_outcomes_are_kept() {
        throwaway::needs_postgres!();
        attempts_end_and_their_outcomes_are_kept(WorldLocation::Server).await;
    }

    #[tokio::test]
    async fn a_drain_is_bounded() {
        throwaway::needs_postgres!();
        a_drain_has_a_bound(WorldLocation::Server).await;
    }

    #[tokio::test]
    async fn a_second_signal_leaves_at_once() {
        throwaway::needs_postgres!();
        two_signals_are_enough(WorldLocation::Server).await;
    }
}
