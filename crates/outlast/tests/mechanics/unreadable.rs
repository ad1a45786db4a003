//! Runs whose history cannot be read: that is an error of the run alone, and it can be ended.

use outlast::prelude::*;
use outlast::{Because, Status, StuckReason};

use super::rig::{Rig, on_every_world};

on_every_world! {
    a_run_that_cannot_be_read_is_stuck_and_others_go_on,
    a_run_that_cannot_be_read_is_terminated_with_its_children,
    a_run_that_cannot_be_read_is_explained_from_its_row,
    an_ended_run_that_cannot_be_read_is_explained_from_its_row,
}

#[workflow]
async fn child(ctx: Context) -> Result<u32, Error> {
    ctx.hook("child").await
}

#[workflow]
async fn parent(ctx: Context) -> Result<u32, Error> {
    ctx.child(child, ()).await
}

#[workflow]
async fn hooked(ctx: Context) -> Result<u32, Error> {
    ctx.hook("x").await
}

async fn a_run_that_cannot_be_read_is_stuck_and_others_go_on(rig: Rig) {
    let (bad, good) =
        (rig.client.start(hooked, ()).await.unwrap(), rig.client.start(hooked, ()).await.unwrap());
    rig.faults.make_unreadable(bad.id());
    let _worker = rig.worker(hooked).await;
    rig.settle().await;
    let stuck = rig.stuck(bad.id()).await;
    assert_eq!(stuck.reason, StuckReason::Unreadable);
    assert!(stuck.message.contains("event 0 makes no sense"), "{}", stuck.message);
    rig.send(good.id(), "x", 7).await;
    assert_eq!(good.output().await.unwrap(), 7);
}

async fn a_run_that_cannot_be_read_is_terminated_with_its_children(rig: Rig) {
    let worker = rig.worker((parent, child)).await;
    let run = rig.client.start(parent, ()).await.unwrap();
    rig.settle().await;
    let started = rig.client.children(run.id()).await.unwrap().runs;
    assert_eq!(started.len(), 1);
    worker.stop().await.unwrap();
    rig.faults.make_unreadable(run.id());
    let _worker = rig.worker((parent, child)).await;
    rig.client.terminate(run.id(), "its history is damaged").await.unwrap();
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
    assert_eq!(rig.status(started[0].id).await, Status::Cancelled);
}

async fn a_run_that_cannot_be_read_is_explained_from_its_row(rig: Rig) {
    let worker = rig.worker_of_build("7", hooked).await;
    let run = rig.client.start(hooked, ()).await.unwrap();
    rig.settle().await;
    rig.faults.make_unreadable(run.id());
    let waits = rig.client.explain(run.id()).await.unwrap();
    assert!(matches!(waits.because, Because::Waits { .. }), "{waits:?}");
    let damage = format!("Its stored data cannot be read: event 0 of run {} makes no sense.", run.id());
    assert!(waits.sentence.contains(&damage), "{}", waits.sentence);
    worker.stop().await.unwrap();
    rig.send(run.id(), "x", 7).await;
    let _worker = rig.worker_of_build("7", hooked).await;
    let _other = rig.worker_of_build("8", hooked).await;
    rig.settle().await;
    let stuck = rig.client.explain(run.id()).await.unwrap();
    assert!(matches!(stuck.because, Because::Stuck { .. }), "{stuck:?}");
    assert!(stuck.damage.is_some_and(|damage| damage.contains("makes no sense")));
    let text = &stuck.sentence;
    assert!(
        text.contains("cannot continue because the stored data of the run cannot be read: event 0"),
        "{text}"
    );
    let remedy =
        " No build can read it: restore a backup, or call `client.terminate(run, reason)` to end it.";
    assert!(text.ends_with(remedy) && !text.contains("different build"), "{text}");
}

async fn an_ended_run_that_cannot_be_read_is_explained_from_its_row(rig: Rig) {
    let _worker = rig.worker(hooked).await;
    let run = rig.client.start(hooked, ()).await.unwrap();
    rig.send(run.id(), "x", 7).await;
    run.output().await.unwrap();
    rig.faults.make_unreadable(run.id());
    let why = rig.client.explain(run.id()).await.unwrap();
    assert!(
        matches!(why.because, Because::Ended { status: Status::Completed, failure: None, .. }),
        "{why:?}"
    );
    let text = &why.sentence;
    assert!(
        text.starts_with("It completed at 2030-01-01T00:00:00Z (0s ago). Its outcome cannot be read: "),
        "{text}"
    );
    assert!(text.ends_with(" Restore a backup to read it."), "{text}");
}
