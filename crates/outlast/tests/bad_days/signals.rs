//! SIGTERM: once to stop, twice to leave at once.

use std::path::Path;

use outlast::prelude::*;
use outlast::{Status, World};
use rustix::process::Signal;

use crate::process::{Process, nap, until, until_so, url};

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
    Client::new(world).start(patient, ()).key("the-run").await?;
    worker.run_until_signal().await
}

struct Scene {
    folder: tempfile::TempDir,
    worker: Process,
    world: std::sync::Arc<dyn World>,
}

/// A worker in a process of its own, in the middle of a step.
async fn scene(drain: &str) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("drain"), drain).unwrap();
    let worker = Process::start("draining", folder.path());
    until("the step to begin", || folder.path().join("begun").exists().then_some(()));
    let world = outlast::open(&url(folder.path())).await.unwrap();
    Scene { folder, worker, world }
}

async fn status(world: &std::sync::Arc<dyn World>) -> Status {
    Client::new(world.clone()).newest(&[], 1).await.unwrap()[0].status
}

#[tokio::test]
async fn after_a_signal_attempts_under_way_may_end_and_their_outcomes_are_kept() {
    let Scene { folder, mut worker, world } = scene("1h").await;
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

#[tokio::test]
async fn a_drain_is_bounded() {
    let Scene { folder: _folder, mut worker, world } = scene("200ms").await;
    worker.signal(Signal::TERM);
    let end = worker.end();
    assert!(end.success(), "{end}: {}", worker.output());
    assert!(world.workers().await.unwrap().is_empty(), "it has left");
    assert_eq!(status(&world).await, Status::Pending, "the run is free for others");
}

#[tokio::test]
async fn a_second_signal_leaves_at_once() {
    let Scene { folder: _folder, mut worker, world } = scene("1h").await;
    worker.signal(Signal::TERM);
    // The first is handled when the worker takes nothing new: a run that it could take stays pending.
    worker.signal(Signal::INT);
    let end = worker.end();
    let output = worker.output();
    assert_eq!(end.code(), Some(3), "{end}: {output}");
    assert!(output.contains("the worker left at once, by a second signal"), "{output}");
    assert!(output.contains("made again by another"), "{output}");
    until_so("the run to be free", || async {
        world.workers().await.unwrap().is_empty() && status(&world).await == Status::Pending
    })
    .await;
}
