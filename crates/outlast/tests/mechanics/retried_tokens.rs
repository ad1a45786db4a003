//! Retries of runs with tokens, queued steps and unread messages: what the run still has, gets again, and never repeats.

use outlast::core::History;
use outlast::prelude::*;
use outlast::{Controlled, ErrorKind, OpNumber, RunId, Status, TokenDelivery};

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world, pause_between_reads};

on_every_world! {
    a_queued_step_that_completed_after_the_failure_does_not_run_again,
    a_token_that_was_closed_after_the_failure_is_taken_again,
    a_token_that_another_run_has_taken_refuses_the_retry,
    a_payload_behind_the_one_that_ended_the_run_is_not_lost,
    the_end_of_a_queued_step_behind_the_payload_that_ended_the_run_is_not_lost,
    a_run_that_is_terminated_before_its_retry_is_recorded_has_one_end,
    the_refusal_of_a_child_that_was_replaced_concerns_nobody,
}

/// Fails until the test logs `fixed <name>`; waits for the gate of its name if that begins with `slow`.
#[step(attempts = 1)]
async fn work(cx: StepContext<StepState>, name: String) -> Result<String, StepError> {
    cx.state().log(format!("began {name}"));
    if name.starts_with("slow") {
        cx.state().wait_for_gate(&name).await;
    }
    let is_bad = name.contains("bad") && cx.state().count(&format!("fixed {name}")) == 0;
    if is_bad { Err(StepError::msg(format!("{name} failed"))) } else { Ok(name) }
}

async fn retry(engine: &TestEngine, run: RunId) {
    assert_eq!(engine.client.retry(run).await.unwrap(), Controlled::Requested);
}

async fn a_queued_step_that_completed_after_the_failure_does_not_run_again(engine: TestEngine) {
    #[workflow]
    async fn both(ctx: Context) -> Result<String, Error> {
        let both = futures_util::future::join(
            ctx.step(work, "bad".to_owned()),
            ctx.step(work, "slow queued".to_owned()).queue("default"),
        );
        let (here, there) = both.await;
        Ok(format!("{} {}", here?, there?))
    }
    let _worker = engine.worker((both, work)).await;
    let run = engine.client.start(both, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("step_failed")).await;
    engine.steps.open("slow queued");
    assert!(run.output().await.is_err());
    let plan = engine.client.retry(run.id()).dry_run().await.unwrap();
    assert_eq!(plan.steps().map(|step| step.op.0).collect::<Vec<_>>(), [0]);
    let runs = engine.client.counts().await.unwrap().values().sum::<u64>();
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), "bad slow queued");
    engine.settle().await;
    assert_eq!(engine.steps.count("began slow queued"), 1);
    assert_eq!(
        engine.client.counts().await.unwrap().values().sum::<u64>(),
        runs,
        "nothing was started again"
    );
}

/// Takes a payload of its token after a step. If that fails, it closes the token before it ends.
#[workflow]
async fn guarded(ctx: Context, token: String) -> Result<u32, Error> {
    let open = ctx.open_hook::<u32>("review").token(token).await?;
    match ctx.step(work, "bad".to_owned()).await {
        Ok(_) => open.next().await,
        Err(error) => {
            open.close();
            ctx.note("closed").await?;
            Err(error)
        }
    }
}

async fn a_token_that_was_closed_after_the_failure_is_taken_again(engine: TestEngine) {
    let _worker = engine.worker((guarded, work)).await;
    let run = engine.client.start(guarded, "order-7").await.unwrap();
    assert!(run.output().await.is_err());
    assert_eq!(engine.client.send_to_token("order-7", &1).await.unwrap(), TokenDelivery::Unknown);
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    engine.wait_for_status(run.id(), Status::Waiting).await;
    assert_eq!(engine.client.send_to_token("order-7", &2).await.unwrap(), TokenDelivery::Delivered);
    assert_eq!(run.output().await.unwrap(), 2);
}

async fn a_token_that_another_run_has_taken_refuses_the_retry(engine: TestEngine) {
    #[workflow]
    async fn holder(ctx: Context, token: String) -> Result<u32, Error> {
        let open = ctx.open_hook::<u32>("review").token(token).await?;
        open.next().await
    }
    let _worker = engine.worker((guarded, holder, work)).await;
    let run = engine.client.start(guarded, "order-7").await.unwrap();
    assert!(run.output().await.is_err());
    let other = engine.client.start(holder, "order-7").await.unwrap();
    engine.wait_for_status(other.id(), Status::Waiting).await;
    while engine.client.token("order-7").await.unwrap().is_none() {
        engine.settle().await;
        pause_between_reads().await;
    }
    let error = engine.client.retry(run.id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let reason = format!("its token for hook `review` (operation 0) is taken by run {}", other.id());
    assert!(error.to_string().contains(&reason), "{error}");
    engine.client.send_to_token("order-7", &3).await.unwrap();
    assert_eq!(other.output().await.unwrap(), 3);
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    engine.wait_for_status(run.id(), Status::Waiting).await;
    assert_eq!(engine.client.send_to_token("order-7", &4).await.unwrap(), TokenDelivery::Delivered);
    assert_eq!(run.output().await.unwrap(), 4);
}

async fn a_payload_behind_the_one_that_ended_the_run_is_not_lost(engine: TestEngine) {
    #[workflow]
    async fn picky(ctx: Context) -> Result<u32, Error> {
        match ctx.hook::<u32>("number").await? {
            1 => Err(Error::msg("not 1")),
            other => Ok(other),
        }
    }
    let run = engine.client.start(picky, ()).await.unwrap();
    // Both are read in one turn, and the first ends the run.
    engine.send(run.id(), "number", 1).await;
    engine.send(run.id(), "number", 2).await;
    let _worker = engine.worker(picky).await;
    assert!(run.output().await.is_err());
    let call = engine.client.retry(run.id()).from(OpNumber(0));
    assert_eq!(call.await.unwrap(), Controlled::Requested);
    assert_eq!(run.output().await.unwrap(), 2);
}

async fn the_end_of_a_queued_step_behind_the_payload_that_ended_the_run_is_not_lost(engine: TestEngine) {
    #[workflow]
    async fn picky(ctx: Context) -> Result<String, Error> {
        let number = async {
            match ctx.hook::<u32>("number").await? {
                1 => Err(Error::msg("not 1")),
                other => Ok(other),
            }
        };
        let queued = ctx.step(work, "queued".to_owned()).queue("gpu");
        let (worked, number) = futures_util::future::try_join(queued, number).await?;
        Ok(format!("{worked} {number}"))
    }
    let worker = engine.worker(picky).await;
    let run = engine.client.start(picky, ()).await.unwrap();
    engine.wait_for_status(run.id(), Status::Waiting).await;
    worker.stop().await.unwrap();
    engine.send(run.id(), "number", 1).await;
    let gpu = engine.builder().queues(["gpu"]).register(work).start().await.unwrap();
    engine.wait_for_view(run.id(), |view| view.sent == 2).await;
    gpu.stop().await.unwrap();
    // Both are read in one turn, and the first ends the run.
    let _worker = engine.worker(picky).await;
    assert!(run.output().await.is_err());
    let number = engine.client.operations(run.id()).await.unwrap()[1].op;
    assert_eq!(engine.client.retry(run.id()).from(number).await.unwrap(), Controlled::Requested);
    engine.send(run.id(), "number", 2).await;
    assert_eq!(run.output().await.unwrap(), "queued 2");
    assert_eq!(engine.steps.count("began queued"), 1);
}

async fn a_run_that_is_terminated_before_its_retry_is_recorded_has_one_end(engine: TestEngine) {
    #[workflow]
    async fn fails(ctx: Context) -> Result<String, Error> {
        ctx.step(work, "bad".to_owned()).await
    }
    let worker = engine.worker((fails, work)).await;
    let run = engine.client.start(fails, ()).await.unwrap();
    assert!(run.output().await.is_err());
    worker.stop().await.unwrap();
    retry(&engine, run.id()).await;
    engine.client.terminate(run.id(), "enough").await.unwrap();
    let _worker = engine.worker((fails, work)).await;
    engine.wait_for_status(run.id(), Status::Cancelled).await;
    let history = engine.history(run.id()).await;
    assert!(history.contains("run_retried\nrun_terminated"), "{history}");
    let exported = engine.client.export(run.id()).await.unwrap();
    outlast::replay(fails, History::from_json(&exported).unwrap()).unwrap();
}

async fn the_refusal_of_a_child_that_was_replaced_concerns_nobody(engine: TestEngine) {
    #[workflow]
    async fn echo(ctx: Context, text: String) -> Result<String, Error> {
        ctx.hook::<u32>("end").await?;
        Ok(text)
    }
    #[workflow]
    async fn over(ctx: Context) -> Result<String, Error> {
        ctx.hook::<u32>("go").await?;
        ctx.child(echo, "own".to_owned()).key("taken").await
    }
    let _worker = engine.worker((over, echo)).await;
    engine.client.start(echo, "other".to_owned()).key("taken").await.unwrap();
    let run = engine.client.start(over, ()).await.unwrap();
    engine.wait_for_status(run.id(), Status::Waiting).await;
    // The cancel is in the inbox before the refusal, and the run ends with it.
    let (client, id) = (engine.client.clone(), run.id());
    let cancel = async move { client.cancel(id, "not now").await.map(|_| ()).unwrap() };
    engine.faults.before_commit(0, cancel);
    engine.send(run.id(), "go", 1).await;
    engine.wait_for_status(run.id(), Status::Cancelled).await;
    retry(&engine, run.id()).await;
    engine.settle().await;
    let child = engine.client.operations(run.id()).await.unwrap()[1].child.unwrap();
    engine.send(child, "end", 1).await;
    assert_eq!(run.output().await.unwrap(), "own");
}
