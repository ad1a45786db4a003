//! Steps that are attempted at most once: after a crash they fail as unknown.

use outlast::prelude::*;
use outlast::{ErrorKind, Step};

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    after_a_crash_the_outcome_is_unknown_and_no_attempt_is_made,
    an_unknown_outcome_is_recorded_and_stays,
    a_step_by_name_is_attempted_at_most_once_too,
    a_failed_attempt_is_not_followed_by_another,
    a_stopping_worker_makes_the_attempts_that_it_announced,
    a_recorded_outcome_is_not_unknown_after_a_crash,
}

/// Charges, and ends when the test opens the gate.
#[step(at_most_once)]
async fn pay(cx: StepContext<StepState>, gate: String) -> Result<String, StepError> {
    cx.state().log("paid");
    cx.state().wait_for_gate(&gate).await;
    if gate == "fails" { Err(StepError::msg("no answer")) } else { Ok(gate) }
}

#[workflow]
async fn paying(ctx: Context, gate: String) -> Result<String, Error> {
    match ctx.step(pay, gate).await {
        Err(error) if error.kind() == ErrorKind::Unknown => {
            ctx.hook::<u32>("looked").await?;
            Ok(format!("{error}, after {} attempt", error.attempts()))
        }
        other => other,
    }
}

async fn after_a_crash_the_outcome_is_unknown_and_no_attempt_is_made(engine: TestEngine) {
    let worker = engine.worker((paying, pay)).await;
    let run = engine.client.start(paying, "open".to_owned()).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    engine.crash(worker);
    let _worker = engine.worker((paying, pay)).await;
    engine.send(run.id(), "looked", 1).await;
    let output = run.output().await.unwrap();
    assert!(output.contains("step `pay` failed") && output.contains("the outcome is unknown"), "{output}");
    assert!(output.ends_with("after 1 attempt"), "{output}");
    assert_eq!(engine.steps.count("paid"), 1);
}

async fn an_unknown_outcome_is_recorded_and_stays(engine: TestEngine) {
    let mut worker = engine.worker((paying, pay)).await;
    let run = engine.client.start(paying, "open".to_owned()).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    for _ in 0..2 {
        engine.crash(worker);
        worker = engine.worker((paying, pay)).await;
        engine.settle().await;
    }
    let history = engine.history(run.id()).await;
    assert_eq!(history.matches("step_failed").count(), 1, "{history}");
    engine.send(run.id(), "looked", 1).await;
    run.output().await.unwrap();
    assert_eq!(engine.steps.count("paid"), 1);
}

async fn a_step_by_name_is_attempted_at_most_once_too(engine: TestEngine) {
    const PAY: Step<String, String> = Step::new("pay");
    #[workflow]
    async fn by_name(ctx: Context) -> Result<String, Error> {
        ctx.step(PAY, "open".to_owned()).attempts(3).await
    }
    let worker = engine.worker((by_name, pay)).await;
    let run = engine.client.start(by_name, ()).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    engine.crash(worker);
    let _worker = engine.worker((by_name, pay)).await;
    assert_eq!(run.output().await.unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(engine.steps.count("paid"), 1);
}

async fn a_failed_attempt_is_not_followed_by_another(engine: TestEngine) {
    let _worker = engine.worker((paying, pay)).await;
    engine.steps.open("fails");
    let run = engine.client.start(paying, "fails".to_owned()).await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts(), error.message()), (ErrorKind::Error, 1, "no answer"));
    assert_eq!(engine.steps.count("paid"), 1);
}

async fn a_stopping_worker_makes_the_attempts_that_it_announced(engine: TestEngine) {
    #[workflow]
    async fn long(ctx: Context) -> Result<String, Error> {
        ctx.blocked("before").await?;
        let paid = ctx.step(pay, "open".to_owned()).await?;
        ctx.note("after").await?;
        Ok(paid)
    }
    let worker = engine.worker((long, pay)).await;
    let run = engine.client.start(long, ()).await.unwrap();
    engine.steps.wait_for_log("began before", 1).await;
    let stopping = tokio::spawn(worker.stop());
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    engine.steps.open("before");
    engine.steps.wait_for_log("paid", 1).await;
    engine.steps.open("open");
    stopping.await.unwrap().unwrap();
    assert_eq!(engine.steps.count("after"), 0, "only what cannot be left to others is attempted");
    let _worker = engine.worker((long, pay)).await;
    assert_eq!(run.output().await.unwrap(), "open");
    assert_eq!(engine.steps.count("paid"), 1);
}

async fn a_recorded_outcome_is_not_unknown_after_a_crash(engine: TestEngine) {
    #[workflow]
    async fn paid_before(ctx: Context) -> Result<String, Error> {
        let paid = ctx.step(pay, "open".to_owned()).await?;
        ctx.blocked("slow").await?;
        Ok(paid)
    }
    engine.steps.open("open");
    let worker = engine.worker((paid_before, pay)).await;
    let run = engine.client.start(paid_before, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.crash(worker);
    let _worker = engine.worker((paid_before, pay)).await;
    engine.steps.open("slow");
    assert_eq!(run.output().await.unwrap(), "open");
}
