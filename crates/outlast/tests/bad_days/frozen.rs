//! A process that is stopped for longer than its session: another takes over, and the first, when it
//! wakes, writes nothing for what it has lost, and joins anew.

use std::path::Path;

use outlast::Status;
use outlast::prelude::*;
use rustix::process::Signal;

use crate::process::{Process, in_time, nap, until, until_so, url};

const SESSION_TIME: &str = "1s";

/// Ends only in the process that is not frozen: there is a file for each.
#[step]
async fn slow(cx: StepContext<std::path::PathBuf>) -> Result<u32, StepError> {
    let me = std::process::id();
    std::fs::write(cx.state().join(format!("begun-{me}")), "").unwrap();
    while !cx.state().join(format!("end-{me}")).exists() {
        nap().await;
    }
    Ok(me)
}

#[workflow]
async fn patient(ctx: Context) -> Result<u32, Error> {
    ctx.step(slow, ()).await
}

async fn worker(folder: &Path) -> Result<(Client, Worker), Error> {
    let world = outlast::open(&url(folder)).await?;
    let worker = Worker::builder(world.clone())
        .state(folder.to_path_buf())
        .register((patient, slow))
        .session_time(SESSION_TIME)
        .start()
        .await?;
    Ok((Client::new(world), worker))
}

/// A worker that is going to be frozen.
pub(crate) async fn freezing(folder: &Path) -> Result<(), Error> {
    let (_, worker) = worker(folder).await?;
    worker.run_until_signal().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_worker_is_taken_over_and_writes_nothing_when_it_wakes() {
    let folder = tempfile::tempdir().unwrap();
    let first = Process::start("freezing", folder.path());
    let client = Client::new(outlast::open(&url(folder.path())).await.unwrap());
    until_so("the first worker", || async { client.workers().await.unwrap().len() == 1 }).await;
    let run = client.start(patient, ()).await.unwrap();
    let begun = |id: u32| folder.path().join(format!("begun-{id}")).exists().then_some(());
    until("the first attempt", || begun(first.id()));
    let before = client.workers().await.unwrap()[0].session;

    first.signal(Signal::STOP);
    let (_, second) = worker(folder.path()).await.unwrap();
    until_so("the takeover", || async { begun(std::process::id()).is_some() }).await;
    let workers = client.workers().await.unwrap();
    assert!(workers.iter().all(|worker| worker.session != before), "its session has ended");

    // The zombie wakes with its attempt about to end well.
    std::fs::write(folder.path().join(format!("end-{}", first.id())), "").unwrap();
    first.signal(Signal::CONT);
    until_so("the first worker to join anew", || async {
        client
            .workers()
            .await
            .unwrap()
            .iter()
            .any(|worker| worker.pid == first.id() && worker.session != before)
    })
    .await;
    let view = run.view().await.unwrap();
    assert_eq!(view.status, Status::Running, "what the zombie had is not written");
    std::fs::write(folder.path().join(format!("end-{}", std::process::id())), "").unwrap();
    let output = in_time("the output", run.output()).await.unwrap();
    assert_eq!(output, std::process::id(), "the outcome is that of who took over");
    let history = client.history(run.id()).await.unwrap();
    let completed =
        history.iter().flat_map(|turn| &turn.events).filter(|event| event.kind() == "step_completed");
    assert_eq!(completed.count(), 1);
    second.stop().await.unwrap();
}
