//! Steps that block a thread, and limits of attempts at the same time.

use outlast::prelude::*;
use outlast::{ErrorKind, Status};
use tokio::runtime::Handle;

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    a_blocking_step_does_not_block_the_runtime,
    blocking_steps_fail_panic_and_are_retried_like_others,
    a_worker_makes_no_more_blocking_attempts_than_it_may,
    a_thread_that_outlives_its_attempt_keeps_its_place,
    a_step_is_not_attempted_more_often_at_the_same_time_than_its_limit,
    the_timeout_of_an_attempt_counts_from_its_turn,
    a_cancel_reaches_a_step_that_waits_for_its_turn,
    a_dropped_step_that_waits_for_its_turn_is_not_attempted,
}

/// Blocks its thread until the test opens the gate.
#[step(blocking, timeout = "30s", attempts = 2)]
fn gated(cx: StepContext<StepState>, gate: String) -> String {
    cx.state().enter();
    cx.state().log(format!("began {gate}"));
    Handle::current().block_on(cx.state().wait_for_gate(&gate));
    cx.state().exit();
    gate
}

#[workflow]
async fn all(ctx: Context, gates: Vec<String>) -> Result<usize, Error> {
    let steps = gates.into_iter().map(|gate| ctx.step(gated, gate)).collect::<FuturesUnordered<_>>();
    Ok(steps.collect::<Vec<_>>().await.into_iter().filter(Result::is_ok).count())
}

async fn a_blocking_step_does_not_block_the_runtime(engine: TestEngine) {
    let _worker = engine.worker((all, gated)).await;
    let run = engine.client.start(all, vec!["a".into(), "b".into()]).await.unwrap();
    engine.steps.wait_for_log("began a", 1).await;
    engine.steps.wait_for_log("began b", 1).await;
    engine.steps.open("a");
    engine.steps.open("b");
    assert_eq!(run.output().await.unwrap(), 2);
}

async fn blocking_steps_fail_panic_and_are_retried_like_others(engine: TestEngine) {
    #[step(blocking, attempts = 3)]
    fn clumsy(cx: StepContext<StepState>, panics: bool) -> Result<u32, StepError> {
        cx.state().log("attempt");
        assert!(!panics, "fell at attempt {}", cx.attempt());
        if cx.attempt() < 3 { Err(StepError::msg("not yet")) } else { Ok(cx.attempt()) }
    }
    #[workflow]
    async fn twice(ctx: Context) -> Result<u32, Error> {
        let error = ctx.step(clumsy, true).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (ErrorKind::Panic, 3));
        assert!(error.message().contains("fell at attempt 3"), "{error}");
        ctx.step(clumsy, false).await
    }
    let _worker = engine.worker((twice, clumsy)).await;
    let run = engine.client.start(twice, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 3);
    assert_eq!(engine.steps.count("attempt"), 6);
}

async fn a_worker_makes_no_more_blocking_attempts_than_it_may(engine: TestEngine) {
    let builder = engine.builder().register((all, gated)).blocking_attempts(2);
    let _worker = builder.start().await.unwrap();
    for gate in ["a", "b", "c"] {
        engine.steps.open(gate);
    }
    let gates: Vec<String> = ["a", "b", "c", "a", "b", "c"].map(Into::into).into();
    let run = engine.client.start(all, gates).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 6);
    assert!(engine.steps.concurrent_max() <= 2, "{}", engine.steps.concurrent_max());
}

async fn a_thread_that_outlives_its_attempt_keeps_its_place(engine: TestEngine) {
    let builder = engine.builder().register((all, gated)).blocking_attempts(1);
    let _worker = builder.start().await.unwrap();
    let run = engine.client.start(all, vec!["slow".into()]).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.clock.advance("30s");
    engine.wait_for_status(run.id(), Status::Waiting).await;
    engine.clock.advance("1s");
    engine.wait_for_status(run.id(), Status::Running).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.steps.count("began slow"), 1, "its thread is still blocked");
    engine.steps.open("slow");
    assert_eq!(run.output().await.unwrap(), 1);
    assert_eq!((engine.steps.count("began slow"), engine.steps.concurrent_max()), (2, 1));
}

/// At most two attempts at the same time on one worker.
#[step(limit = 2, timeout = "10s", attempts = 1)]
async fn narrow(cx: StepContext<StepState>, gate: String) -> String {
    cx.state().enter();
    cx.state().log(format!("began {gate}"));
    cx.state().wait_for_gate(&gate).await;
    cx.state().exit();
    gate
}

#[workflow]
async fn through(ctx: Context, gates: Vec<String>) -> Result<usize, Error> {
    let steps: Vec<_> = gates.into_iter().map(|gate| ctx.step(narrow, gate)).collect();
    let mut passed = 0;
    for step in steps {
        passed += usize::from(step.await.is_ok());
    }
    Ok(passed)
}

async fn a_step_is_not_attempted_more_often_at_the_same_time_than_its_limit(engine: TestEngine) {
    let _worker = engine.worker((through, narrow)).await;
    let gates = || vec!["a".to_owned(); 5];
    let one = engine.client.start(through, gates()).await.unwrap();
    let other = engine.client.start(through, gates()).await.unwrap();
    engine.steps.wait_for_log("began a", 2).await;
    engine.steps.open("a");
    assert_eq!((one.output().await.unwrap(), other.output().await.unwrap()), (5, 5));
    assert_eq!(engine.steps.concurrent_max(), 2);
}

async fn the_timeout_of_an_attempt_counts_from_its_turn(engine: TestEngine) {
    let _worker = engine.worker((through, narrow)).await;
    let gates: Vec<_> = ["a", "b", "c"].map(String::from).into();
    let run = engine.client.start(through, gates).await.unwrap();
    engine.steps.wait_for_log("began b", 1).await;
    engine.clock.advance("8s");
    engine.steps.open("a");
    engine.steps.wait_for_log("began c", 1).await;
    engine.steps.open("b");
    engine.wait_for_history(run.id(), |history| history.matches("step_completed").count() == 2).await;
    engine.clock.advance("8s");
    engine.steps.open("c");
    assert_eq!(run.output().await.unwrap(), 3);
}

async fn a_cancel_reaches_a_step_that_waits_for_its_turn(engine: TestEngine) {
    #[workflow]
    async fn patient(ctx: Context) -> Result<String, Error> {
        let _hold = (ctx.step(narrow, "a".to_owned()), ctx.step(narrow, "b".to_owned()));
        let error = ctx.step(narrow, "c".to_owned()).await.unwrap_err();
        assert!(error.is_cancelled());
        ctx.shielded().note("cleaned up").await?;
        Err(error)
    }
    let _worker = engine.worker((patient, narrow)).await;
    let run = engine.client.start(patient, ()).await.unwrap();
    engine.steps.wait_for_log("began b", 1).await;
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!(error.message(), "cancelled: enough");
    assert_eq!((engine.steps.count("began c"), engine.steps.count("cleaned up")), (0, 1));
    engine.steps.open("a");
    engine.steps.open("b");
}

// Found by the simulation.
async fn a_dropped_step_that_waits_for_its_turn_is_not_attempted(engine: TestEngine) {
    #[workflow]
    async fn fickle(ctx: Context) -> Result<String, Error> {
        let (a, b) = (ctx.step(narrow, "a".to_owned()), ctx.step(narrow, "b".to_owned()));
        select! {
            _ = ctx.step(narrow, "c".to_owned()) => {}
            _ = ctx.hook::<u32>("x") => {}
        }
        ctx.note("went on").await?;
        a.await?;
        b.await
    }
    let _worker = engine.worker((fickle, narrow)).await;
    let run = engine.client.start(fickle, ()).await.unwrap();
    engine.steps.wait_for_log("began b", 1).await;
    run.send("x", &1).await.unwrap();
    engine.steps.wait_for_log("went on", 1).await;
    engine.steps.open("c");
    engine.steps.open("a");
    engine.steps.open("b");
    assert_eq!(run.output().await.unwrap(), "b");
    assert_eq!(engine.steps.count("began c"), 0);
}
