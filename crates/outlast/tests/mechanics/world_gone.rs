//! A world whose storage is gone: the worker stops by itself, logs the cause once, and returns it.

use std::time::Duration;

use outlast::core::WorldError;
use outlast::prelude::*;
use outlast::{ErrorKind, Status, Worker};
use tracing::Level;

use super::faulty_world::Call;
use super::outages::{Lines, pass};
use super::test_engine::{SESSION, StepCalls, TestEngine, on_every_world, with_timeout};

on_every_world! {
    a_worker_stops_when_a_claim_finds_that_the_storage_is_gone,
    a_worker_stops_when_a_commit_finds_that_the_storage_is_gone,
}

#[workflow]
async fn asks(ctx: Context) -> Result<u32, Error> {
    ctx.hook::<u32>("answer").await
}

#[workflow]
async fn works(ctx: Context) -> Result<String, Error> {
    ctx.blocked("slow").await
}

const MOVED: &str = "`orders.db` was moved; put it back and start again";

#[track_caller]
fn check_gone(error: &Error) {
    assert_eq!((error.kind(), error.message()), (ErrorKind::Corrupt, MOVED));
}

/// Waits until the worker has stopped by itself, and checks that its methods return the cause.
async fn check_stopped(engine: &TestEngine, worker: Worker) {
    check_gone(&worker.failed().await);
    check_gone(&worker.idle().await.unwrap_err());
    engine.settle().await;
    let calls = engine.faults.total();
    engine.advance("1h").await;
    assert_eq!(engine.faults.total(), calls, "it does not call the world any more");
    check_gone(&worker.stop().await.unwrap_err());
}

async fn a_worker_stops_when_a_claim_finds_that_the_storage_is_gone(engine: TestEngine) {
    let worker = engine.worker((asks, works)).await;
    engine.client.start(asks, ()).after("1s").await.unwrap();
    engine.faults.set_gone(Some(WorldError::gone(MOVED)));
    engine.advance("1s").await;
    check_stopped(&engine, worker).await;
}

async fn a_worker_stops_when_a_commit_finds_that_the_storage_is_gone(engine: TestEngine) {
    let worker = engine.worker((asks, works)).await;
    let run = engine.client.start(works, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.faults.set_gone(Some(WorldError::gone(MOVED)));
    engine.steps.open("slow");
    check_stopped(&engine, worker).await;
    engine.faults.set_gone(None);
    assert_eq!(engine.status(run.id()).await, Status::Running, "the run is not stuck");
    engine.clock.advance(SESSION);
    let next = engine.worker((asks, works)).await;
    assert_eq!(run.output().await.unwrap(), "slow");
    next.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lost_its_session_stops_when_it_cannot_rejoin_because_the_storage_is_gone() {
    with_timeout(async {
        let lines = Lines::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let engine = TestEngine::memory().await;
        let worker = engine.worker((asks, works)).await;
        engine.settle().await;
        lines.take();
        engine.faults.fail(Call::Join, WorldError::gone(MOVED));
        engine.world.leave(worker.session()).await.unwrap();
        engine.client.start(asks, ()).await.unwrap(); // makes the worker claim
        check_stopped(&engine, worker).await;
        pass(Duration::from_secs(60)).await;
        let lines = lines.take();
        let [(Level::WARN, lost), (Level::ERROR, stops)] = &lines[..] else { panic!("{lines:#?}") };
        assert!(lost.starts_with("session lost, rejoining: "), "{lost}");
        let expected = format!("the worker stops, because the storage of its world is gone: {MOVED}");
        assert_eq!(*stops, expected);
    })
    .await;
}
