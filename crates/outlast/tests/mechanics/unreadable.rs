//! Runs whose history cannot be read: that is an error of the run alone, and it can be ended.

use outlast::prelude::*;
use outlast::{Status, StuckReason};

use super::rig::{Rig, on_every_world};

on_every_world! {
    a_run_that_cannot_be_read_is_stuck_and_others_go_on,
    a_run_that_cannot_be_read_is_terminated_with_its_children,
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
    let started = rig.client.children(run.id()).await.unwrap();
    assert_eq!(started.len(), 1);
    worker.stop().await.unwrap();
    rig.faults.make_unreadable(run.id());
    let _worker = rig.worker((parent, child)).await;
    rig.client.terminate(run.id(), "its history is damaged").await.unwrap();
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
    assert_eq!(rig.status(started[0].id).await, Status::Cancelled);
}
