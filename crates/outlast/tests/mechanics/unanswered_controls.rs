//! Unknown answers to the calls that control runs: a call that is repeated takes effect once.

use outlast::prelude::*;
use outlast::{Controlled, RunHandle, Status, TokenDelivery};

use super::faulty_world::Call;
use super::test_engine::{StepState, TestEngine, on_every_world, pause_between_reads};

on_every_world! {
    a_pause_and_a_terminate_without_an_answer_are_one_message,
    a_retry_without_an_answer_is_one_retry,
    a_fork_without_an_answer_is_one_run,
    a_restart_without_an_answer_is_one_run,
    a_delete_without_an_answer_is_done,
    an_ask_without_an_answer_is_asked_once,
    a_send_to_a_token_without_an_answer_is_delivered_once,
    a_start_that_sends_without_an_answer_is_one_run_with_one_message,
    a_schedule_without_an_answer_is_created_once,
    a_deletion_of_turns_without_an_answer_is_repeated_by_the_next,
}

/// Fails until the test logs `fixed`.
#[step(attempts = 1)]
async fn work(cx: StepContext<StepState>) -> Result<u32, StepError> {
    cx.state().log("works");
    if cx.state().count("fixed") == 0 { Err(StepError::msg("not yet")) } else { Ok(7) }
}

#[workflow]
async fn job(ctx: Context) -> Result<u32, Error> {
    ctx.step(work, ()).await
}

#[workflow]
async fn sums(ctx: Context) -> Result<u32, Error> {
    Ok(ctx.hook::<u32>("add").await? + ctx.hook::<u32>("add").await?)
}

/// The number of runs, without schedules.
async fn runs(engine: &TestEngine) -> usize {
    engine.client.list().await.unwrap().runs.len()
}

/// A run that has failed.
async fn failed(engine: &TestEngine) -> RunHandle<u32> {
    let run = engine.client.start(job, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap_err().message(), "not yet");
    run
}

async fn a_pause_and_a_terminate_without_an_answer_are_one_message(engine: TestEngine) {
    let run = engine.client.start(sums, ()).await.unwrap();
    engine.faults.lose_answer(Call::Send, 0);
    assert_eq!(run.pause().await.unwrap(), Controlled::Requested);
    let view = engine.view(run.id()).await;
    assert_eq!((engine.faults.count(Call::Send), view.sent, view.shown_status()), (2, 1, "paused"));
    engine.faults.lose_answer(Call::Send, 0);
    run.terminate("not needed").await.unwrap();
    let view = engine.view(run.id()).await;
    assert_eq!((engine.faults.left(), view.sent), (0, 2));
}

async fn a_retry_without_an_answer_is_one_retry(engine: TestEngine) {
    let _worker = engine.worker((job, work)).await;
    let run = failed(&engine).await;
    engine.steps.log("fixed");
    engine.faults.lose_answer(Call::Reopen, 0);
    engine.faults.refuse(Call::Reopen, 0);
    assert_eq!(run.retry().await.unwrap(), Controlled::Requested);
    assert_eq!(run.output().await.unwrap(), 7);
    assert_eq!((engine.faults.count(Call::Reopen), engine.steps.count("works")), (3, 2));
    let history = engine.history(run.id()).await;
    assert_eq!(history.matches("run_retried").count(), 1, "{history}");
}

async fn a_fork_without_an_answer_is_one_run(engine: TestEngine) {
    let _worker = engine.worker((job, work)).await;
    let run = failed(&engine).await;
    engine.steps.log("fixed");
    engine.faults.lose_answer(Call::Fork, 0);
    engine.faults.refuse(Call::Fork, 0);
    let fork = run.fork().at(2).await.unwrap();
    assert_eq!(fork.output().await.unwrap(), 7);
    assert_eq!((engine.faults.count(Call::Fork), runs(&engine).await), (3, 2));
}

async fn a_restart_without_an_answer_is_one_run(engine: TestEngine) {
    let worker = engine.worker((job, work)).await;
    let run = failed(&engine).await;
    worker.stop().await.unwrap();
    engine.faults.lose_answer(Call::Start, 0);
    let again = run.restart().await.unwrap();
    assert!(again.is_new() && again.id() != run.id());
    assert_eq!((engine.faults.left(), runs(&engine).await), (0, 2));
}

async fn a_delete_without_an_answer_is_done(engine: TestEngine) {
    let _worker = engine.worker((job, work)).await;
    let run = failed(&engine).await;
    engine.faults.lose_answer(Call::Delete, 0);
    assert_eq!(engine.client.delete(run.id()).await.unwrap(), Controlled::Requested);
    assert_eq!((engine.faults.count(Call::Delete), runs(&engine).await), (2, 0));
}

const QUOTE: Hook<u32, String> = Hook::new("quote");

#[workflow]
async fn quotes(ctx: Context) -> Result<u32, Error> {
    let message = ctx.hook(QUOTE).received().await?;
    QUOTE.reply(&message, &format!("{} euros", message.payload))?;
    ctx.hook("end").await
}

async fn an_ask_without_an_answer_is_asked_once(engine: TestEngine) {
    let _worker = engine.worker(quotes).await;
    let run = engine.client.start(quotes, ()).await.unwrap();
    engine.faults.lose_answer(Call::Send, 0);
    engine.faults.lose_answer(Call::Reply, 0);
    assert_eq!(engine.client.ask(run.id(), QUOTE, &7).await.unwrap(), "7 euros");
    engine.send(run.id(), "end", 1).await;
    run.output().await.unwrap();
    let history = engine.history(run.id()).await;
    assert_eq!(history.matches("hook_received quote").count(), 1, "{history}");
    assert_eq!(engine.faults.left(), 0);
}

#[workflow]
async fn sums_by_token(ctx: Context) -> Result<u32, Error> {
    let open = ctx.open_hook::<u32>("add").token("adder").await?;
    Ok(open.next().await? + open.next().await?)
}

async fn a_send_to_a_token_without_an_answer_is_delivered_once(engine: TestEngine) {
    let _worker = engine.worker(sums_by_token).await;
    let run = engine.client.start(sums_by_token, ()).await.unwrap();
    while engine.client.token("adder").await.unwrap().is_none() {
        engine.settle().await;
        pause_between_reads().await;
    }
    engine.faults.lose_answer(Call::Send, 0);
    engine.faults.refuse(Call::Token, 0);
    let delivery = engine.client.send_to_token("adder", &1).await.unwrap();
    assert!(matches!(delivery, TokenDelivery::Delivered | TokenDelivery::Duplicate), "{delivery:?}");
    assert_eq!(engine.client.send_to_token("adder", &20).await.unwrap(), TokenDelivery::Delivered);
    assert_eq!(run.output().await.unwrap(), 21);
    assert_eq!(engine.faults.left(), 0);
}

async fn a_start_that_sends_without_an_answer_is_one_run_with_one_message(engine: TestEngine) {
    engine.faults.lose_answer(Call::StartAndSend, 0);
    engine.faults.refuse(Call::StartAndSend, 0);
    let run = engine.client.start(sums, ()).key("k").and_send("add", &1).await.unwrap();
    assert!(run.is_new());
    assert_eq!(engine.faults.count(Call::StartAndSend), 3);
    engine.faults.lose_answer(Call::StartAndSend, 0);
    engine.client.start(sums, ()).key("k").and_send("add", &20).await.unwrap();
    assert_eq!((engine.view(run.id()).await.sent, runs(&engine).await), (2, 1));
    let _worker = engine.worker(sums).await;
    assert_eq!(run.output().await.unwrap(), 21);
}

#[workflow]
async fn tick(ctx: Context) -> Result<(), Error> {
    ctx.step(work, ()).await.map(drop)
}

async fn a_schedule_without_an_answer_is_created_once(engine: TestEngine) {
    engine.steps.log("fixed");
    engine.faults.lose_answer(Call::Start, 0);
    engine.faults.lose_answer(Call::Send, 0);
    let schedule = engine.client.schedule("s").every("10s").start(tick, ()).await.unwrap();
    let _worker = engine.worker((tick, work)).await;
    engine.run_to("25s").await;
    engine.faults.lose_answer(Call::Send, 0);
    schedule.trigger().await.unwrap();
    engine.settle().await;
    let view = schedule.view().await.unwrap();
    assert_eq!((view.counts.fired, view.revision), (3, 1), "{view:?}");
    assert_eq!((engine.steps.count("works"), engine.faults.left()), (3, 0));
    assert_eq!(engine.client.schedules().await.unwrap().schedules.len(), 1);
}

#[workflow]
async fn counts(ctx: Context, of: u32) -> Result<u32, Error> {
    ctx.iterate("count", 0_u32, async |ctx, done| {
        if done == of {
            return Ok(Next::Done(done));
        }
        ctx.step(work, ()).await?;
        Ok(Next::Again(done + 1))
    })
    .await
}

async fn a_deletion_of_turns_without_an_answer_is_repeated_by_the_next(engine: TestEngine) {
    engine.steps.log("fixed");
    engine.faults.refuse(Call::DeleteTurns, 0);
    engine.faults.lose_answer(Call::DeleteTurns, 0);
    let worker = engine.caching_builder().register((counts, work)).start().await.unwrap();
    let run = engine.client.start(counts, 1_500).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 1_500);
    worker.stop().await.unwrap();
    assert!(engine.faults.count(Call::DeleteTurns) >= 3, "{}", engine.faults.count(Call::DeleteTurns));
    let events: usize =
        engine.client.history(run.id()).await.unwrap().iter().map(|turn| turn.events.len()).sum();
    assert!(events < 2_500, "{events} events are left of 4,500");
    assert_eq!(engine.status(run.id()).await, Status::Completed);
}
