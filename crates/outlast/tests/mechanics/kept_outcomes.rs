//! Outcomes of attempts in a stuck turn are kept in the run's inbox, once, until they are delivered.

use outlast::core::{Headers, MessageBody, MessageId, NewMessage, Payload, WorldError};
use outlast::prelude::*;
use outlast::{RunId, Status, StuckReason};

use super::faulty_world::Call;
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    a_run_that_gets_stuck_again_and_again_keeps_it_once,
    a_turn_that_the_world_refuses_loses_nothing,
    it_is_known_behind_a_full_page_of_messages,
    a_crash_of_the_worker_that_left_it_stuck_loses_nothing,
    a_run_that_is_cancelled_while_stuck_still_has_it,
}

/// The number of outcomes in each message that keeps some.
async fn attempted(engine: &TestEngine, run: RunId) -> Vec<usize> {
    let inbox = engine.world.inbox(run, 0).await.unwrap();
    inbox
        .iter()
        .filter_map(|message| match &message.body {
            MessageBody::Attempted { events } => Some(events.len()),
            _ => None,
        })
        .collect()
}

#[workflow(name = "both")]
async fn both_panics(ctx: Context) -> Result<String, Error> {
    let (a, b) = join!(ctx.note("a"), ctx.note("b"));
    let (a, b) = (a?, b?);
    panic!("no use for {a} {b}");
}

#[workflow(name = "both")]
async fn both_mended(ctx: Context) -> Result<String, Error> {
    let (a, b) = join!(ctx.note("a"), ctx.note("b"));
    Ok(format!("{} {}", a?, b?))
}

async fn a_run_that_gets_stuck_again_and_again_keeps_it_once(engine: TestEngine) {
    let worker = engine.worker_of_build("a", both_panics).await;
    let run = engine.client.start(both_panics, ()).await.unwrap();
    engine.settle().await;
    let mut sizes = Vec::new();
    for _ in 0..12 {
        assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Panicked);
        sizes.push(attempted(&engine, run.id()).await);
        engine.client.resume(run.id()).await.unwrap();
        engine.settle().await;
    }
    worker.stop().await.unwrap();
    let last = sizes.last().unwrap().clone();
    let _worker = engine.worker_of_build("b", both_mended).await;
    assert_eq!(engine.output_after_fix(&run).await, "a b");
    assert_eq!(engine.steps.logged(), ["a", "b"]);
    assert!(last.len() <= 1, "messages with so many events each: {last:?}");
}

#[step(at_most_once)]
async fn charge(cx: StepContext<StepState>, (): ()) -> u32 {
    cx.state().log("charged");
    7
}

#[workflow(name = "till")]
async fn till(ctx: Context) -> Result<u32, Error> {
    let charged = ctx.step(charge, ()).await?;
    ctx.note("after").await?;
    Ok(charged)
}

async fn a_turn_that_the_world_refuses_loses_nothing(engine: TestEngine) {
    let _worker = engine.worker_of_build("a", (till, charge)).await;
    let gate = engine.faults.hold(Call::Commit);
    let run = tokio::spawn({
        let client = engine.client.clone();
        async move { client.start(till, ()).await.unwrap() }
    });
    gate.wait_for_call().await;
    // The next commit is the one with the outcome.
    engine.faults.answer_each_turn(WorldError::Invalid("no".into()), false);
    gate.open();
    let run = run.await.unwrap();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Refused);
    engine.client.resume(run.id()).await.unwrap();
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), 7, "not unknown");
    assert_eq!(engine.steps.count("charged"), 1);
}

#[step(at_most_once)]
async fn slow_charge(cx: StepContext<StepState>, (): ()) -> u32 {
    cx.state().log("charging");
    cx.state().wait_for_gate("charge").await;
    cx.state().log("charged");
    7
}

#[workflow(name = "page")]
async fn page_broken(ctx: Context) -> Result<u32, Error> {
    let charged = ctx.step(slow_charge, ()).await?;
    panic!("no drawer for {charged}");
}

#[workflow(name = "page")]
async fn page_mended(ctx: Context) -> Result<u32, Error> {
    ctx.step(slow_charge, ()).await
}

async fn it_is_known_behind_a_full_page_of_messages(engine: TestEngine) {
    let worker = engine.worker_of_build("a", (page_broken, slow_charge)).await;
    let run = engine.client.start(page_broken, ()).await.unwrap();
    engine.steps.wait_for_log("charging", 1).await;
    // While the commit of a first message is delayed, a thousand others arrive, and the step ends.
    let gate = engine.faults.hold(Call::Commit);
    engine.send(run.id(), "x", 0).await;
    gate.wait_for_call().await;
    let messages: Vec<_> = (0..1000_u128)
        .map(|number| NewMessage {
            id: MessageId::from_bits(1000 + number),
            run: run.id(),
            body: MessageBody::Hook { name: "x".into(), payload: Payload::null(), to: Default::default() },
            headers: Headers::new(),
        })
        .collect();
    engine.world.send(messages).await.unwrap();
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
    engine.steps.open("charge");
    engine.steps.wait_for_log("charged", 1).await;
    gate.open();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Panicked);
    let view = engine.view(run.id()).await;
    assert_eq!(view.sent - view.consumed, 1001, "a full page, and what is kept behind it");
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", (page_mended, slow_charge)).await;
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), 7, "not unknown");
    assert_eq!(engine.steps.count("charged"), 1);
}

async fn a_crash_of_the_worker_that_left_it_stuck_loses_nothing(engine: TestEngine) {
    let worker = engine.worker_of_build("a", both_panics).await;
    let run = engine.client.start(both_panics, ()).await.unwrap();
    engine.settle().await;
    engine.client.resume(run.id()).await.unwrap();
    engine.settle().await;
    engine.stuck(run.id()).await;
    engine.crash(worker);
    let _worker = engine.worker_of_build("b", both_mended).await;
    assert_eq!(engine.output_after_fix(&run).await, "a b");
    assert_eq!(engine.steps.logged(), ["a", "b"]);
}

async fn a_run_that_is_cancelled_while_stuck_still_has_it(engine: TestEngine) {
    let worker = engine.worker_of_build("a", both_panics).await;
    let run = engine.client.start(both_panics, ()).await.unwrap();
    engine.settle().await;
    engine.stuck(run.id()).await;
    engine.client.cancel(run.id(), "enough").await.unwrap();
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", both_mended).await;
    engine.settle().await;
    let view = engine.view(run.id()).await;
    assert!(matches!(view.status, Status::Cancelled | Status::Completed));
    assert_eq!(engine.steps.logged(), ["a", "b"]);
}
