//! Retries: pauses are durable and exact, and the last error is returned.

use std::future::pending;

use outlast::prelude::*;
use outlast::{ErrorKind, Status};

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    pauses_grow_and_are_exact,
    a_pause_survives_a_stop_and_only_the_rest_of_it_is_waited,
    a_pause_survives_a_crash_and_the_attempts_are_counted_on,
    an_exhausted_step_surfaces_with_its_last_failure,
    the_number_of_attempts_can_be_set_where_the_step_is_asked_for,
    a_fatal_error_is_not_retried,
    an_attempt_that_takes_too_long_fails_and_is_retried,
    a_panic_is_a_failed_attempt,
    an_error_can_say_when_to_retry,
    a_failed_step_fails_again_in_every_replay,
    details_of_an_error_reach_the_workflow,
    an_attempt_that_exceeded_its_timeout_is_asked_to_stop,
}

#[workflow]
async fn persistent(ctx: Context, fails: u32) -> Result<u32, Error> {
    ctx.flaky(fails).await
}

async fn pauses_grow_and_are_exact(engine: TestEngine) {
    let _worker = engine.worker(persistent).await;
    let run = engine.client.start(persistent, 3).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 4);
    assert_eq!(engine.steps.times("flaky"), ["0s", "1s", "3s", "7s"]);
}

/// A step with one long pause.
#[step(attempts = 2, initial = "1m")]
async fn slow_to_retry(cx: StepContext<StepState>) -> Result<u32, StepError> {
    cx.state().log("attempt");
    if cx.attempt() == 1 { Err(StepError::msg("not yet")) } else { Ok(cx.attempt()) }
}

#[workflow]
async fn patient(ctx: Context) -> Result<u32, Error> {
    ctx.step(slow_to_retry, ()).await
}

async fn a_pause_survives_a_stop_and_only_the_rest_of_it_is_waited(engine: TestEngine) {
    let worker = engine.worker((patient, slow_to_retry)).await;
    let run = engine.client.start(patient, ()).await.unwrap();
    engine.run_to("20s").await;
    worker.stop().await.unwrap();
    engine.run_to("40s").await;
    let _worker = engine.worker((patient, slow_to_retry)).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 2);
    assert_eq!(engine.steps.times("attempt"), ["0s", "1m"]);
}

async fn a_pause_survives_a_crash_and_the_attempts_are_counted_on(engine: TestEngine) {
    let worker = engine.worker((patient, slow_to_retry)).await;
    let run = engine.client.start(patient, ()).await.unwrap();
    engine.run_to("20s").await;
    engine.crash(worker);
    let _worker = engine.worker((patient, slow_to_retry)).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 2);
    assert_eq!(engine.steps.times("attempt"), ["0s", "1m"]);
}

async fn an_exhausted_step_surfaces_with_its_last_failure(engine: TestEngine) {
    let _worker = engine.worker(persistent).await;
    let run = engine.client.start(persistent, 99).await.unwrap();
    engine.clock.run_until_idle().await;
    let error = run.output().await.unwrap_err();
    assert_eq!(error.to_string(), "step `flaky` failed after 4 attempts: failure 4");
    assert_eq!((error.kind(), error.step(), error.attempts()), (ErrorKind::Error, Some("flaky"), 4));
    assert_eq!(engine.status(run.id()).await, Status::Failed);
    engine
        .assert_history(
            run.id(),
            "0 step_started flaky
         0 step_retried 1s
         0 step_retried 2s
         0 step_retried 4s
         0 step_failed failure 4
         run_failed failure 4",
        )
        .await;
}

async fn the_number_of_attempts_can_be_set_where_the_step_is_asked_for(engine: TestEngine) {
    #[workflow]
    async fn twice(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(99).attempts(2).await
    }
    let _worker = engine.worker(twice).await;
    let run = engine.client.start(twice, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap_err().attempts(), 2);
    assert_eq!(engine.steps.count("flaky"), 2);
}

async fn a_fatal_error_is_not_retried(engine: TestEngine) {
    #[workflow]
    async fn doomed(ctx: Context) -> Result<(), Error> {
        ctx.call("doom", (), async |()| Err::<(), _>(StepError::fatal("never"))).await
    }
    let _worker = engine.worker(doomed).await;
    let run = engine.client.start(doomed, ()).await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Fatal, 1), "{error}");
}

async fn an_attempt_that_takes_too_long_fails_and_is_retried(engine: TestEngine) {
    #[workflow]
    async fn timed(ctx: Context) -> Result<String, Error> {
        ctx.blocked("slow").timeout("30s").attempts(2).await
    }
    let _worker = engine.worker(timed).await;
    let run = engine.client.start(timed, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.clock.advance("30s");
    engine.wait_for_status(run.id(), Status::Waiting).await;
    engine.clock.advance("200ms");
    engine.steps.wait_for_log("began slow", 2).await;
    engine.clock.advance("30s");
    let error = run.output().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Timeout, 2));
    assert!(error.message().contains("its timeout of 30s"), "{error}");
}

async fn a_panic_is_a_failed_attempt(engine: TestEngine) {
    #[step(attempts = 2)]
    async fn panics(cx: StepContext<StepState>) -> u32 {
        cx.state().log("attempt");
        assert!(cx.attempt() > 3, "attempt {} is too early", cx.attempt());
        1
    }
    #[workflow]
    async fn brave(ctx: Context) -> Result<u32, Error> {
        ctx.step(panics, ()).await
    }
    let _worker = engine.worker((brave, panics)).await;
    let run = engine.client.start(brave, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    let error = run.output().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Panic, 2));
    assert!(error.message().contains("attempt 2 is too early"), "{error}");
    assert_eq!(engine.steps.count("attempt"), 2);
}

async fn an_error_can_say_when_to_retry(engine: TestEngine) {
    #[step]
    async fn later(cx: StepContext<StepState>) -> Result<(), StepError> {
        cx.state().log("attempt");
        if cx.attempt() < 3 { Err(StepError::retry_after("busy", "10m")) } else { Ok(()) }
    }
    #[workflow]
    async fn polite(ctx: Context) -> Result<(), Error> {
        ctx.step(later, ()).await
    }
    let _worker = engine.worker((polite, later)).await;
    let run = engine.client.start(polite, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(engine.steps.times("attempt"), ["0s", "10m", "20m"]);
}

async fn a_failed_step_fails_again_in_every_replay(engine: TestEngine) {
    #[workflow]
    async fn handled(ctx: Context) -> Result<String, Error> {
        let failed = ctx.flaky(99).attempts(1).await;
        ctx.hook::<u32>("x").await?;
        match failed {
            Ok(_) => Ok("a failure became a value".into()),
            Err(error) => Ok(error.to_string()),
        }
    }
    let worker = engine.worker(handled).await;
    let run = engine.client.start(handled, ()).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.worker(handled).await;
    engine.send(run.id(), "x", 1).await;
    assert_eq!(run.output().await.unwrap(), "step `flaky` failed: failure 1");
    assert_eq!(engine.steps.count("flaky"), 1);
}

async fn details_of_an_error_reach_the_workflow(engine: TestEngine) {
    #[workflow]
    async fn detailed(ctx: Context) -> Result<(String, Vec<u32>), Error> {
        let refused = async |()| Err::<(), _>(StepError::fatal("refused").with_details([4, 2]));
        let error = ctx.call("detail", (), refused).await.unwrap_err();
        ctx.sleep("1m").await?;
        let plain = async |text: String| Ok::<u32, StepError>(text.parse::<u32>()?);
        let other = ctx.call("parse", "x".to_owned(), plain).attempts(1).await.unwrap_err();
        Ok((other.message().to_owned(), error.details().unwrap()))
    }
    let _worker = engine.worker(detailed).await;
    let run = engine.client.start(detailed, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), ("invalid digit found in string".into(), vec![4, 2]));
}

async fn an_attempt_that_exceeded_its_timeout_is_asked_to_stop(engine: TestEngine) {
    #[step(attempts = 1, timeout = "30s")]
    async fn delegates(cx: StepContext<StepState>) -> Result<(), StepError> {
        let steps = cx.state().clone();
        let helper = async move {
            steps.log("began");
            cx.cancelled().await;
            steps.log("told");
        };
        tokio::spawn(helper);
        pending().await
    }
    #[workflow]
    async fn delegating(ctx: Context) -> Result<(), Error> {
        ctx.step(delegates, ()).await
    }
    let _worker = engine.worker((delegating, delegates)).await;
    let run = engine.client.start(delegating, ()).await.unwrap();
    engine.steps.wait_for_log("began", 1).await;
    engine.clock.advance("30s");
    assert!(run.output().await.unwrap_err().is_timeout());
    engine.steps.wait_for_log("told", 1).await;
}
