//! A worker that works until nothing is ready, and a worker that is asked whether it is idle.

use outlast::Status;
use outlast::prelude::*;

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    a_worker_that_runs_until_idle_does_everything_that_is_ready_and_stops,
    a_worker_without_work_is_idle_at_once,
    a_busy_worker_becomes_idle_when_its_attempts_have_ended,
}

#[workflow]
async fn parent(ctx: Context) -> Result<String, Error> {
    ctx.note("one").await?;
    let two = ctx.child(child, ()).await?;
    ctx.sleep("1h").await?;
    Ok(two)
}

#[workflow]
async fn child(ctx: Context) -> Result<String, Error> {
    ctx.note("two").queue("default").await
}

async fn a_worker_that_runs_until_idle_does_everything_that_is_ready_and_stops(engine: TestEngine) {
    let run = engine.client.start(parent, ()).await.unwrap();
    let once = || engine.builder().register((parent, child)).run_until_idle();
    let next = once().await.unwrap();
    assert_eq!(engine.steps.logged(), ["one", "two"], "also the child and its queued step");
    assert_eq!(next, Some(engine.time_after_begin("1h")));
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.owner), (Status::Waiting, None));
    assert!(engine.world.workers().await.unwrap().is_empty());
    engine.clock.advance("1h");
    assert_eq!(once().await.unwrap(), None);
    assert_eq!(run.output().await.unwrap(), "two");
}

async fn a_worker_without_work_is_idle_at_once(engine: TestEngine) {
    let worker = engine.worker((parent, child)).await;
    assert_eq!(worker.idle().await.unwrap(), None);
    assert_eq!(worker.idle().await.unwrap(), None);
}

async fn a_busy_worker_becomes_idle_when_its_attempts_have_ended(engine: TestEngine) {
    #[step]
    async fn opens_its_gate(cx: StepContext<StepState>) {
        cx.state().open("gate");
    }
    #[workflow]
    async fn works(ctx: Context) -> Result<(), Error> {
        let (_, ()) = try_join!(ctx.blocked("gate"), ctx.step(opens_its_gate, ()))?;
        Ok(())
    }
    let worker = engine.worker((works, opens_its_gate)).await;
    let run = engine.client.start(works, ()).await.unwrap();
    worker.idle().await.unwrap();
    assert_eq!(engine.status(run.id()).await, Status::Completed);
    worker.stop().await.unwrap();
}
