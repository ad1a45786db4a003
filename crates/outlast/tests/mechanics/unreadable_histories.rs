//! Runs with an unreadable history: an error of the run alone, which can still be ended.

use outlast::prelude::*;
use outlast::{Because, Status, StuckReason};

use super::test_engine::{TestEngine, on_every_world};

on_every_world! {
    an_unreadable_run_is_stuck_and_others_continue,
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

async fn an_unreadable_run_is_stuck_and_others_continue(engine: TestEngine) {
    let (bad, good) =
        (engine.client.start(hooked, ()).await.unwrap(), engine.client.start(hooked, ()).await.unwrap());
    engine.faults.make_unreadable(bad.id());
    let _worker = engine.worker(hooked).await;
    engine.settle().await;
    let stuck = engine.stuck(bad.id()).await;
    assert_eq!(stuck.reason, StuckReason::Unreadable);
    assert!(stuck.message.contains("event 0 makes no sense"), "{}", stuck.message);
    engine.send(good.id(), "x", 7).await;
    assert_eq!(good.output().await.unwrap(), 7);
}

async fn a_run_that_cannot_be_read_is_terminated_with_its_children(engine: TestEngine) {
    let worker = engine.worker((parent, child)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    let started = engine.client.children(run.id()).await.unwrap().runs;
    assert_eq!(started.len(), 1);
    worker.stop().await.unwrap();
    engine.faults.make_unreadable(run.id());
    let _worker = engine.worker((parent, child)).await;
    engine.client.terminate(run.id(), "its history is damaged").await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
    assert_eq!(engine.status(started[0].id).await, Status::Cancelled);
}

async fn a_run_that_cannot_be_read_is_explained_from_its_row(engine: TestEngine) {
    let worker = engine.worker_of_build("7", hooked).await;
    let run = engine.client.start(hooked, ()).await.unwrap();
    engine.settle().await;
    engine.faults.make_unreadable(run.id());
    let waits = engine.client.explain(run.id()).await.unwrap();
    assert!(matches!(waits.because, Because::Waits { .. }), "{waits:?}");
    let damage = format!("Its stored data cannot be read: event 0 of run {} makes no sense.", run.id());
    assert!(waits.sentence.contains(&damage), "{}", waits.sentence);
    worker.stop().await.unwrap();
    engine.send(run.id(), "x", 7).await;
    let _worker = engine.worker_of_build("7", hooked).await;
    let _other = engine.worker_of_build("8", hooked).await;
    engine.settle().await;
    let stuck = engine.client.explain(run.id()).await.unwrap();
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

async fn an_ended_run_that_cannot_be_read_is_explained_from_its_row(engine: TestEngine) {
    let _worker = engine.worker(hooked).await;
    let run = engine.client.start(hooked, ()).await.unwrap();
    engine.send(run.id(), "x", 7).await;
    run.output().await.unwrap();
    engine.faults.make_unreadable(run.id());
    let why = engine.client.explain(run.id()).await.unwrap();
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
