//! Direct calls: a workflow that awaits a step's function itself is stuck before the step has any effect.

use futures_util::FutureExt;
use outlast::prelude::*;
use outlast::{RunId, StuckReason};

use super::test_engine::{StepCalls, TestEngine, on_every_world, trace, traces};

on_every_world! {
    a_step_that_a_workflow_calls_directly_is_stuck_without_an_effect,
    a_direct_call_after_a_replayed_step_is_stuck_and_a_fixed_build_continues,
    a_direct_call_that_is_polled_once_is_found,
    a_blocking_step_that_is_called_directly_has_no_effect,
    steps_may_call_the_functions_of_others,
}

#[step]
async fn mail(run: RunId) -> Result<u32, StepError> {
    trace(run, "mailed");
    Ok(7)
}

#[workflow]
async fn direct(ctx: Context) -> Result<u32, Error> {
    Ok(mail(ctx.run()).await?)
}

async fn a_step_that_a_workflow_calls_directly_is_stuck_without_an_effect(engine: TestEngine) {
    let _worker = engine.worker((direct, mail)).await;
    let run = engine.client.start(direct, ()).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::CalledDirectly);
    assert!(
        stuck.message.starts_with("step `mail` was called directly; write `ctx.step(mail, …)`"),
        "{}",
        stuck.message
    );
    assert_eq!(traces(run.id(), "mailed"), 0);
}

#[workflow(name = "letter")]
async fn letter_by_hand(ctx: Context) -> Result<u32, Error> {
    ctx.note("before").await?;
    Ok(mail(ctx.run()).await?)
}

#[workflow(name = "letter")]
async fn letter(ctx: Context) -> Result<u32, Error> {
    ctx.note("before").await?;
    ctx.step(mail, ctx.run()).await
}

async fn a_direct_call_after_a_replayed_step_is_stuck_and_a_fixed_build_continues(engine: TestEngine) {
    let worker = engine.worker_of_build("a", (letter_by_hand, mail)).await;
    let run = engine.client.start(letter_by_hand, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::CalledDirectly);
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", (letter, mail)).await;
    assert_eq!(engine.output_after_fix(&run).await, 7);
    assert_eq!((traces(run.id(), "mailed"), engine.steps.logged()), (1, vec!["before".to_owned()]));
}

async fn a_direct_call_that_is_polled_once_is_found(engine: TestEngine) {
    #[workflow]
    async fn polled_once(ctx: Context) -> Result<u32, Error> {
        // A step that is dropped after one poll would already have had its effect.
        let _ = mail(ctx.run()).now_or_never();
        ctx.step(mail, ctx.run()).await
    }
    let _worker = engine.worker((polled_once, mail)).await;
    let run = engine.client.start(polled_once, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::CalledDirectly);
    assert_eq!(traces(run.id(), "mailed"), 0);
}

async fn a_blocking_step_that_is_called_directly_has_no_effect(engine: TestEngine) {
    #[step(blocking)]
    fn mail_slowly(run: RunId) -> u32 {
        trace(run, "mailed");
        7
    }
    #[workflow]
    async fn slowly(ctx: Context) -> Result<u32, Error> {
        let (slow, noted) = join!(mail_slowly(ctx.run()), ctx.note("beside"));
        noted?;
        Ok(slow?)
    }
    let _worker = engine.worker((slowly, mail_slowly)).await;
    let run = engine.client.start(slowly, ()).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::CalledDirectly);
    assert!(stuck.message.contains("`mail_slowly`"), "{}", stuck.message);
    assert_eq!((traces(run.id(), "mailed"), engine.steps.logged().len()), (0, 0));
}

async fn steps_may_call_the_functions_of_others(engine: TestEngine) {
    #[step]
    async fn mail_twice(run: RunId) -> Result<u32, StepError> {
        Ok(mail(run).await? + mail(run).await?)
    }
    #[workflow]
    async fn through_steps(ctx: Context) -> Result<u32, Error> {
        let twice = ctx.step(mail_twice, ctx.run()).await?;
        let in_place = ctx.call("in place", ctx.run(), async |run: RunId| mail(run).await).await?;
        Ok(twice + in_place)
    }
    let _worker = engine.worker((through_steps, mail_twice)).await;
    let run = engine.client.start(through_steps, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 21);
    assert_eq!(traces(run.id(), "mailed"), 3);
    assert_eq!(mail(run.id()).await.unwrap(), 7, "and so may a test");
}
