//! Steps that block a thread, and limits of attempts at the same time.

use outlast::prelude::*;
use outlast::{ErrorKind, Status};
use tokio::runtime::Handle;

use super::rig::{Ask, Desk, Rig, on_every_world};

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
fn gated(cx: StepContext<Desk>, gate: String) -> String {
    cx.state().enter();
    cx.state().leave(format!("began {gate}"));
    Handle::current().block_on(cx.state().passed(&gate));
    cx.state().exit();
    gate
}

#[workflow]
async fn all(ctx: Context, gates: Vec<String>) -> Result<usize, Error> {
    let steps = gates.into_iter().map(|gate| ctx.step(gated, gate)).collect::<FuturesUnordered<_>>();
    Ok(steps.collect::<Vec<_>>().await.into_iter().filter(Result::is_ok).count())
}

async fn a_blocking_step_does_not_block_the_runtime(rig: Rig) {
    let _worker = rig.worker((all, gated)).await;
    let run = rig.client.start(all, vec!["a".into(), "b".into()]).await.unwrap();
    rig.desk.until("began a", 1).await;
    rig.desk.until("began b", 1).await;
    rig.desk.open("a");
    rig.desk.open("b");
    assert_eq!(run.output().await.unwrap(), 2);
}

async fn blocking_steps_fail_panic_and_are_retried_like_others(rig: Rig) {
    #[step(blocking, attempts = 3)]
    fn clumsy(cx: StepContext<Desk>, panics: bool) -> Result<u32, StepError> {
        cx.state().leave("attempt");
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
    let _worker = rig.worker((twice, clumsy)).await;
    let run = rig.client.start(twice, ()).await.unwrap();
    rig.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 3);
    assert_eq!(rig.desk.count("attempt"), 6);
}

async fn a_worker_makes_no_more_blocking_attempts_than_it_may(rig: Rig) {
    let builder = rig.builder().register((all, gated)).blocking_attempts(2);
    let _worker = builder.start().await.unwrap();
    for gate in ["a", "b", "c"] {
        rig.desk.open(gate);
    }
    let gates: Vec<String> = ["a", "b", "c", "a", "b", "c"].map(Into::into).into();
    let run = rig.client.start(all, gates).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 6);
    assert!(rig.desk.crowd() <= 2, "{}", rig.desk.crowd());
}

async fn a_thread_that_outlives_its_attempt_keeps_its_place(rig: Rig) {
    let builder = rig.builder().register((all, gated)).blocking_attempts(1);
    let _worker = builder.start().await.unwrap();
    let run = rig.client.start(all, vec!["slow".into()]).await.unwrap();
    rig.desk.until("began slow", 1).await;
    rig.clock.advance("30s");
    rig.until(run.id(), Status::Waiting).await;
    rig.clock.advance("1s");
    rig.until(run.id(), Status::Running).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.desk.count("began slow"), 1, "its thread is still blocked");
    rig.desk.open("slow");
    assert_eq!(run.output().await.unwrap(), 1);
    assert_eq!((rig.desk.count("began slow"), rig.desk.crowd()), (2, 1));
}

/// At most two at the same time, on one worker.
#[step(limit = 2, timeout = "10s", attempts = 1)]
async fn narrow(cx: StepContext<Desk>, gate: String) -> String {
    cx.state().enter();
    cx.state().leave(format!("began {gate}"));
    cx.state().passed(&gate).await;
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

async fn a_step_is_not_attempted_more_often_at_the_same_time_than_its_limit(rig: Rig) {
    let _worker = rig.worker((through, narrow)).await;
    let gates = || vec!["a".to_owned(); 5];
    let one = rig.client.start(through, gates()).await.unwrap();
    let other = rig.client.start(through, gates()).await.unwrap();
    rig.desk.until("began a", 2).await;
    rig.desk.open("a");
    assert_eq!((one.output().await.unwrap(), other.output().await.unwrap()), (5, 5));
    assert_eq!(rig.desk.crowd(), 2);
}

async fn the_timeout_of_an_attempt_counts_from_its_turn(rig: Rig) {
    let _worker = rig.worker((through, narrow)).await;
    let gates: Vec<_> = ["a", "b", "c"].map(String::from).into();
    let run = rig.client.start(through, gates).await.unwrap();
    rig.desk.until("began b", 1).await;
    rig.clock.advance("8s");
    rig.desk.open("a");
    rig.desk.until("began c", 1).await;
    rig.desk.open("b");
    rig.until_history(run.id(), |history| history.matches("step_completed").count() == 2).await;
    rig.clock.advance("8s");
    rig.desk.open("c");
    assert_eq!(run.output().await.unwrap(), 3);
}

async fn a_cancel_reaches_a_step_that_waits_for_its_turn(rig: Rig) {
    #[workflow]
    async fn patient(ctx: Context) -> Result<String, Error> {
        let _hold = (ctx.step(narrow, "a".to_owned()), ctx.step(narrow, "b".to_owned()));
        let error = ctx.step(narrow, "c".to_owned()).await.unwrap_err();
        assert!(error.is_cancelled());
        ctx.shielded().note("cleaned up").await?;
        Err(error)
    }
    let _worker = rig.worker((patient, narrow)).await;
    let run = rig.client.start(patient, ()).await.unwrap();
    rig.desk.until("began b", 1).await;
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!(error.message(), "cancelled: enough");
    assert_eq!((rig.desk.count("began c"), rig.desk.count("cleaned up")), (0, 1));
    rig.desk.open("a");
    rig.desk.open("b");
}

// Found by the simulation.
async fn a_dropped_step_that_waits_for_its_turn_is_not_attempted(rig: Rig) {
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
    let _worker = rig.worker((fickle, narrow)).await;
    let run = rig.client.start(fickle, ()).await.unwrap();
    rig.desk.until("began b", 1).await;
    run.send("x", &1).await.unwrap();
    rig.desk.until("went on", 1).await;
    rig.desk.open("c");
    rig.desk.open("a");
    rig.desk.open("b");
    assert_eq!(run.output().await.unwrap(), "b");
    assert_eq!(rig.desk.count("began c"), 0);
}
