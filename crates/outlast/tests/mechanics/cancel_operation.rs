//! Operations that the workflow cancels itself: what ends at once, what is asked to stop, and what a crash changes.

use outlast::prelude::*;
use outlast::{OpNumber, OperationStatus, RunId, Status, StopReason};

use super::queued::serving;
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    an_attempt_at_a_cancelled_step_is_told_and_its_outcome_awaited,
    a_cancelled_step_that_does_not_listen_completes_as_usual,
    a_cancelled_step_between_two_attempts_fails_at_once,
    a_failed_attempt_at_a_cancelled_step_is_the_last,
    a_cancelled_step_of_a_lost_worker_may_have_been_attempted,
    a_cancelled_wait_ends_and_its_payload_goes_to_another_hook,
    a_cancelled_child_is_asked_to_stop_and_its_end_awaited,
    a_child_that_is_cancelled_on_drop_loses_a_race,
    a_cancelled_queued_step_is_told_where_it_is_attempted,
    the_run_itself_is_not_cancelled,
}

/// Cancels a step when it is told to, and returns how the step ended.
#[workflow]
async fn withdraws(ctx: Context, is_queued: bool) -> Result<String, Error> {
    let step = ctx.stoppable("work");
    let mut step = if is_queued { step.queue("gpu") } else { step };
    select! {
        done = &mut step => return done,
        told = ctx.hook::<u32>("stop") => { told?; }
    }
    step.cancel();
    step.await
}

async fn an_attempt_at_a_cancelled_step_is_told_and_its_outcome_awaited(engine: TestEngine) {
    let _worker = engine.worker(withdraws).await;
    let run = engine.client.start(withdraws, false).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    engine.send(run.id(), "stop", 1).await;
    assert_eq!(run.output().await.unwrap(), "stopped");
    engine
        .assert_history(
            run.id(),
            "0 step_started stoppable
             1 hook_opened stop
             hook_received stop 1
             0 operation_cancelled
             0 step_completed \"stopped\"
             run_completed \"stopped\"",
        )
        .await;
    let views = engine.client.steps(run.id()).await.unwrap();
    assert_eq!(views[0].status, OperationStatus::Completed);
    assert!(views[0].cancelled_at.is_some());
}

async fn a_cancelled_step_that_does_not_listen_completes_as_usual(engine: TestEngine) {
    #[workflow]
    async fn patient(ctx: Context) -> Result<String, Error> {
        let step = ctx.blocked("deaf");
        ctx.hook::<u32>("stop").await?;
        step.cancel();
        step.await
    }
    let _worker = engine.worker(patient).await;
    let run = engine.client.start(patient, ()).await.unwrap();
    engine.steps.wait_for_log("began deaf", 1).await;
    engine.send(run.id(), "stop", 1).await;
    engine.wait_for_history(run.id(), |history| history.contains("operation_cancelled")).await;
    engine.steps.open("deaf");
    assert_eq!(run.output().await.unwrap(), "deaf");
}

async fn a_cancelled_step_between_two_attempts_fails_at_once(engine: TestEngine) {
    #[workflow]
    async fn impatient(ctx: Context) -> Result<u32, Error> {
        let step = ctx.flaky(9);
        ctx.sleep("100ms").await?;
        step.cancel();
        step.await
    }
    let _worker = engine.worker(impatient).await;
    let run = engine.client.start(impatient, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && !error.is_maybe_attempted(), "{error}");
    assert_eq!((error.step(), error.attempts(), engine.steps.count("flaky")), (Some("flaky"), 1, 1));
    assert_eq!(engine.status(run.id()).await, Status::Failed);
    let views = engine.client.steps(run.id()).await.unwrap();
    assert_eq!(views[0].status, OperationStatus::Cancelled);
}

async fn a_failed_attempt_at_a_cancelled_step_is_the_last(engine: TestEngine) {
    #[step(attempts = 9)]
    async fn gives_up(cx: StepContext<StepState>) -> Result<(), StepError> {
        cx.state().log("began");
        cx.cancelled().await;
        assert_eq!(cx.stop_reason(), Some(StopReason::Cancelled));
        Err(StepError::msg("given up"))
    }
    #[workflow]
    async fn stops(ctx: Context) -> Result<(), Error> {
        let step = ctx.step(gives_up, ());
        ctx.hook::<u32>("stop").await?;
        step.cancel();
        step.await
    }
    let _worker = engine.worker((stops, gives_up)).await;
    let run = engine.client.start(stops, ()).await.unwrap();
    engine.steps.wait_for_log("began", 1).await;
    engine.send(run.id(), "stop", 1).await;
    let error = run.output().await.unwrap_err();
    assert_eq!((error.message(), error.attempts()), ("given up", 1));
}

async fn a_cancelled_step_of_a_lost_worker_may_have_been_attempted(engine: TestEngine) {
    #[workflow]
    async fn patient(ctx: Context) -> Result<String, Error> {
        let step = ctx.blocked("deaf");
        ctx.hook::<u32>("stop").await?;
        step.cancel();
        step.await
    }
    let worker = engine.worker(patient).await;
    let run = engine.client.start(patient, ()).await.unwrap();
    engine.steps.wait_for_log("began deaf", 1).await;
    engine.send(run.id(), "stop", 1).await;
    engine.wait_for_history(run.id(), |history| history.contains("operation_cancelled")).await;
    engine.crash(worker);
    let _worker = engine.worker(patient).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_maybe_attempted(), "{error}");
    assert_eq!(engine.steps.count("began deaf"), 1, "it is not attempted again");
}

async fn a_cancelled_wait_ends_and_its_payload_goes_to_another_hook(engine: TestEngine) {
    #[workflow]
    async fn waits(ctx: Context) -> Result<String, Error> {
        let (hook, timer) = (ctx.hook::<u32>("answer"), ctx.sleep("1h"));
        ctx.sleep("1m").await?;
        hook.cancel();
        timer.cancel();
        let ended = (hook.await.unwrap_err().is_cancelled(), timer.await.unwrap_err().is_cancelled());
        Ok(format!("{ended:?} {}", ctx.hook::<u32>("answer").await?))
    }
    let _worker = engine.worker(waits).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    engine.run_to("2m").await;
    engine.send(run.id(), "answer", 7).await;
    assert_eq!(run.output().await.unwrap(), "(true, true) 7");
    let status = |view: &outlast::OperationView| view.status;
    let views = engine.client.operations(run.id()).await.unwrap();
    assert_eq!([status(&views[0]), status(&views[1])], [OperationStatus::Cancelled; 2]);
}

#[workflow]
async fn tidies(ctx: Context) -> Result<String, Error> {
    let cancelled = ctx.sleep("1d").await.unwrap_err();
    ctx.shielded().note("tidied").await?;
    Err(cancelled)
}

async fn a_cancelled_child_is_asked_to_stop_and_its_end_awaited(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<bool, Error> {
        let child = ctx.child(tidies, ());
        ctx.sleep("1m").await?;
        child.cancel();
        child.cancel();
        Ok(child.await.unwrap_err().is_cancelled())
    }
    let _worker = engine.worker((parent, tidies)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.run_to("1m").await;
    assert!(run.output().await.unwrap());
    assert_eq!(engine.steps.logged(), ["tidied"]);
}

async fn a_child_that_is_cancelled_on_drop_loses_a_race(engine: TestEngine) {
    #[workflow]
    async fn races(ctx: Context) -> Result<(), Error> {
        let (dropped, told) = (ctx.child(tidies, ()), ctx.child(tidies, ()).cancel_on_drop());
        select! {
            _ = dropped => {}
            _ = told => {}
            late = ctx.sleep("1m") => late?,
        }
        ctx.sleep("1h").await
    }
    let _worker = engine.worker((races, tidies)).await;
    let run = engine.client.start(races, ()).await.unwrap();
    engine.run_to("2m").await;
    let children = engine.client.children(run.id()).await.unwrap().runs;
    let statuses: Vec<_> = children.iter().map(|child| child.status).collect();
    assert_eq!(statuses, [Status::Waiting, Status::Cancelled]);
    assert_eq!(engine.steps.logged(), ["tidied"]);
}

async fn a_cancelled_queued_step_is_told_where_it_is_attempted(engine: TestEngine) {
    let _worker = engine.worker(withdraws).await;
    let _there = serving(&engine, "gpu").await;
    let run = engine.client.start(withdraws, true).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    engine.send(run.id(), "stop", 1).await;
    assert_eq!(run.output().await.unwrap(), "stopped");
}

async fn the_run_itself_is_not_cancelled(engine: TestEngine) {
    #[workflow]
    async fn goes_on(ctx: Context) -> Result<bool, Error> {
        let timer = ctx.sleep("1h");
        ctx.sleep("1m").await?;
        timer.cancel();
        drop(timer);
        ctx.sleep("1m").await?;
        Ok(ctx.is_cancelled())
    }
    let _worker = engine.worker(goes_on).await;
    let run = engine.client.start(goes_on, ()).await.unwrap();
    engine.run_to("5m").await;
    assert!(!run.output().await.unwrap());
    assert_eq!(kinds_of(&engine, run.id(), 0).await, ["timer_started", "operation_cancelled"]);
}

/// The kinds of the events of an operation.
async fn kinds_of(engine: &TestEngine, run: RunId, op: u64) -> Vec<&'static str> {
    let events = engine.client.events(run).operation(OpNumber(op)).await.unwrap();
    events.iter().map(|event| event.event.kind()).collect()
}
