//! Queued steps that were dropped, or whose run is cancelled.

use outlast::prelude::*;
use outlast::{RunId, Status};

use super::queued::{serving, step_run};
use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    a_dropped_step_that_has_not_begun_never_does,
    a_running_attempt_of_a_dropped_step_is_asked_to_stop,
    a_step_that_is_asked_for_and_dropped_in_one_turn_never_begins,
    a_cancelled_run_ends_its_step_that_has_not_begun,
    a_cancelled_run_waits_for_its_step_that_is_being_attempted,
    a_cancelled_run_ends_the_pause_of_its_step,
    clean_up_after_a_cancel_may_be_queued,
    a_terminated_run_takes_its_steps_along,
    a_run_terminated_without_its_code_takes_its_steps_along,
    nothing_continues_after_the_end_of_a_run,
    a_step_that_an_operator_ends_is_a_failed_one,
}

#[workflow]
async fn racing(ctx: Context) -> Result<String, Error> {
    select! {
        outcome = ctx.stoppable("work").queue("gpu") => outcome,
        slept = ctx.sleep("1m") => {
            slept?;
            ctx.note("after").await
        }
    }
}

async fn a_dropped_step_that_has_not_begun_never_does(engine: TestEngine) {
    let _here = engine.worker(racing).await;
    let run = engine.client.start(racing, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), "after");
    let step = step_run(&engine, run.id(), 0).await;
    assert_eq!(engine.status(step).await, Status::Cancelled, "by a worker that does not serve its queue");
    let _there = serving(&engine, "gpu").await;
    engine.settle().await;
    assert_eq!(engine.steps.logged(), ["after"]);
    engine
        .assert_history(
            run.id(),
            r#"
        0 step_started stoppable
        1 timer_started 1m
        1 timer_fired
        0 step_dropped
        2 step_started note
        2 step_completed "after"
        run_completed "after"
        "#,
        )
        .await;
    let expected =
        format!("run_terminated terminated: its parent {} does not wait for it any more", run.id());
    engine.assert_history(step, &expected).await;
}

async fn a_running_attempt_of_a_dropped_step_is_asked_to_stop(engine: TestEngine) {
    let _here = engine.caching_builder().session_time("1h").register(racing).start().await.unwrap();
    let _there = engine.builder().queues(["gpu"]).session_time("1h").start().await.unwrap();
    let run = engine.client.start(racing, ()).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    engine.clock.advance("1m");
    assert_eq!(run.output().await.unwrap(), "after");
    engine.steps.wait_for_log("stopped work", 1).await;
    engine.settle().await;
    let history = engine.history(run.id()).await;
    assert!(!history.contains("0 step_completed"), "a late outcome is discarded: {history}");
    assert_eq!(engine.status(step_run(&engine, run.id(), 0).await).await, Status::Cancelled);
}

async fn a_step_that_is_asked_for_and_dropped_in_one_turn_never_begins(engine: TestEngine) {
    #[workflow]
    async fn fickle(ctx: Context) -> Result<(), Error> {
        let step = ctx.note("never").queue("gpu");
        let mut polled = false;
        std::future::poll_fn(|cx| {
            // It suspends and continues by itself; the step is requested in between.
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut polled, true) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
        drop(step);
        ctx.sleep("1m").await
    }
    let _worker = engine.builder().queues(["default", "gpu"]).register(fickle).start().await.unwrap();
    let run = engine.client.start(fickle, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(engine.status(step_run(&engine, run.id(), 0).await).await, Status::Cancelled);
    assert!(engine.steps.logged().is_empty());
}

#[workflow]
async fn patient(ctx: Context) -> Result<String, Error> {
    ctx.stoppable("work").queue("gpu").await
}

async fn a_cancelled_run_ends_its_step_that_has_not_begun(engine: TestEngine) {
    let _here = engine.worker(patient).await;
    let run = engine.client.start(patient, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!((error.is_cancelled(), error.step(), error.attempts()), (true, Some("stoppable"), 0));
    assert_eq!(error.message(), "cancelled: enough");
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
    assert_eq!(engine.status(step_run(&engine, run.id(), 0).await).await, Status::Cancelled);
    engine
        .assert_history(
            run.id(),
            "0 step_started stoppable
         cancel_requested enough
         0 step_failed cancelled: enough
         run_cancelled cancelled: enough",
        )
        .await;
}

async fn a_cancelled_run_waits_for_its_step_that_is_being_attempted(engine: TestEngine) {
    let _here = engine.worker(patient).await;
    let _there = serving(&engine, "gpu").await;
    let run = engine.client.start(patient, ()).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    run.cancel("enough").await.unwrap();
    assert_eq!(run.output().await.unwrap(), "stopped");
    assert_eq!(engine.steps.count("stopped work"), 1);
    assert_eq!(engine.status(run.id()).await, Status::Completed);
}

async fn a_cancelled_run_ends_the_pause_of_its_step(engine: TestEngine) {
    #[workflow]
    async fn persistent(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(9).queue("gpu").await
    }
    let _here = engine.worker(persistent).await;
    let _there = serving(&engine, "gpu").await;
    let run = engine.client.start(persistent, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!((error.is_cancelled(), error.step(), error.attempts()), (true, Some("flaky"), 1));
    assert_eq!(error.message(), "cancelled: enough");
    engine.clock.run_until_idle().await;
    assert_eq!(engine.steps.count("flaky"), 1);
}

async fn clean_up_after_a_cancel_may_be_queued(engine: TestEngine) {
    #[workflow]
    async fn tidy(ctx: Context) -> Result<String, Error> {
        match ctx.stoppable("work").queue("gpu").await {
            Err(error) if error.is_cancelled() => ctx.shielded().note("tidied").queue("gpu").await,
            other => other,
        }
    }
    let _here = engine.worker(tidy).await;
    let run = engine.client.start(tidy, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    engine.settle().await;
    let _there = serving(&engine, "gpu").await;
    assert_eq!(run.output().await.unwrap(), "tidied");
}

/// Asserts that the step's run ends, and that its attempt is cancelled.
async fn assert_taken_along(engine: &TestEngine, step: RunId) {
    engine.steps.wait_for_log("stopped work", 1).await;
    engine.wait_for_status(step, Status::Cancelled).await;
}

async fn a_terminated_run_takes_its_steps_along(engine: TestEngine) {
    let _here = engine.worker(patient).await;
    let _there = serving(&engine, "gpu").await;
    let run = engine.client.start(patient, ()).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    let step = step_run(&engine, run.id(), 0).await;
    engine.client.terminate(run.id(), "gone").await.unwrap();
    assert_taken_along(&engine, step).await;
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
}

async fn a_run_terminated_without_its_code_takes_its_steps_along(engine: TestEngine) {
    let here = engine.worker(patient).await;
    let run = engine.client.start(patient, ()).await.unwrap();
    engine.settle().await;
    here.stop().await.unwrap();
    let _there = serving(&engine, "gpu").await;
    engine.steps.wait_for_log("began work", 1).await;
    let step = step_run(&engine, run.id(), 0).await;
    engine.client.terminate(run.id(), "gone").await.unwrap();
    assert_taken_along(&engine, step).await;
}

async fn nothing_continues_after_the_end_of_a_run(engine: TestEngine) {
    #[workflow]
    async fn hasty(ctx: Context) -> Result<(), Error> {
        let _unawaited = ctx.stoppable("work").queue("gpu");
        ctx.hook::<u32>("go").await.map(drop)
    }
    let _here = engine.worker(hasty).await;
    let _there = serving(&engine, "gpu").await;
    let run = engine.client.start(hasty, ()).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    let step = step_run(&engine, run.id(), 0).await;
    engine.send(run.id(), "go", 1).await;
    run.output().await.unwrap();
    assert_taken_along(&engine, step).await;
}

async fn a_step_that_an_operator_ends_is_a_failed_one(engine: TestEngine) {
    let _here = engine.worker(patient).await;
    let run = engine.client.start(patient, ()).await.unwrap();
    engine.settle().await;
    engine.client.terminate(step_run(&engine, run.id(), 0).await, "no such machine").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!((error.step(), error.message()), (Some("stoppable"), "terminated: no such machine"));
    assert_eq!(engine.status(run.id()).await, Status::Failed);
}
