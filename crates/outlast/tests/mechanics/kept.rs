//! The outcomes of attempts in a turn that got stuck are kept in the run's inbox: once, and until it is delivered.

use outlast::core::{Headers, MessageBody, MessageId, NewMessage, Payload, WorldError};
use outlast::prelude::*;
use outlast::{RunId, Status, StuckReason};

use super::faulty::Call;
use super::rig::{Ask, Desk, Rig, on_every_world};

on_every_world! {
    a_run_that_gets_stuck_again_and_again_keeps_it_once,
    a_turn_that_the_world_refuses_loses_nothing,
    it_is_known_behind_a_full_page_of_messages,
    a_crash_of_the_worker_that_left_it_stuck_loses_nothing,
    a_run_that_is_cancelled_while_stuck_still_has_it,
}

/// How many outcomes each message has that keeps some.
async fn attempted(rig: &Rig, run: RunId) -> Vec<usize> {
    let inbox = rig.world.inbox(run, 0).await.unwrap();
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

async fn a_run_that_gets_stuck_again_and_again_keeps_it_once(rig: Rig) {
    let worker = rig.worker_of_build("a", both_panics).await;
    let run = rig.client.start(both_panics, ()).await.unwrap();
    rig.settle().await;
    let mut sizes = Vec::new();
    for _ in 0..12 {
        assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::Panicked);
        sizes.push(attempted(&rig, run.id()).await);
        rig.client.resume(run.id()).await.unwrap();
        rig.settle().await;
    }
    worker.stop().await.unwrap();
    let last = sizes.last().unwrap().clone();
    let _worker = rig.worker_of_build("b", both_mended).await;
    assert_eq!(rig.mended(&run).await, "a b");
    assert_eq!(rig.desk.notes(), ["a", "b"]);
    assert!(last.len() <= 1, "messages with so many events each: {last:?}");
}

#[step(at_most_once)]
async fn charge(cx: StepContext<Desk>, (): ()) -> u32 {
    cx.state().leave("charged");
    7
}

#[workflow(name = "till")]
async fn till(ctx: Context) -> Result<u32, Error> {
    let charged = ctx.step(charge, ()).await?;
    ctx.note("after").await?;
    Ok(charged)
}

async fn a_turn_that_the_world_refuses_loses_nothing(rig: Rig) {
    let _worker = rig.worker_of_build("a", (till, charge)).await;
    let gate = rig.faults.hold(Call::Commit);
    let run = tokio::spawn({
        let client = rig.client.clone();
        async move { client.start(till, ()).await.unwrap() }
    });
    gate.arrived().await;
    // The commit that follows: the one with the outcome.
    rig.faults.answer_each_turn(WorldError::Invalid("no".into()), false);
    gate.open();
    let run = run.await.unwrap();
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::Refused);
    rig.client.resume(run.id()).await.unwrap();
    rig.settle().await;
    assert_eq!(run.output().await.unwrap(), 7, "not unknown");
    assert_eq!(rig.desk.count("charged"), 1);
}

#[step(at_most_once)]
async fn slow_charge(cx: StepContext<Desk>, (): ()) -> u32 {
    cx.state().leave("charging");
    cx.state().passed("charge").await;
    cx.state().leave("charged");
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

async fn it_is_known_behind_a_full_page_of_messages(rig: Rig) {
    let worker = rig.worker_of_build("a", (page_broken, slow_charge)).await;
    let run = rig.client.start(page_broken, ()).await.unwrap();
    rig.desk.until("charging", 1).await;
    // The commit of a first message takes its time; meanwhile a thousand others come, and the step ends.
    let gate = rig.faults.hold(Call::Commit);
    rig.send(run.id(), "x", 0).await;
    gate.arrived().await;
    let messages: Vec<_> = (0..1000_u128)
        .map(|number| NewMessage {
            id: MessageId::from_bits(1000 + number),
            run: run.id(),
            body: MessageBody::Hook { name: "x".into(), payload: Payload::null() },
            headers: Headers::new(),
        })
        .collect();
    rig.world.send(messages).await.unwrap();
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
    rig.desk.open("charge");
    rig.desk.until("charged", 1).await;
    gate.open();
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::Panicked);
    let view = rig.view(run.id()).await;
    assert_eq!(view.sent - view.consumed, 1001, "a full page, and what is kept behind it");
    worker.stop().await.unwrap();
    let _worker = rig.worker_of_build("b", (page_mended, slow_charge)).await;
    rig.settle().await;
    assert_eq!(run.output().await.unwrap(), 7, "not unknown");
    assert_eq!(rig.desk.count("charged"), 1);
}

async fn a_crash_of_the_worker_that_left_it_stuck_loses_nothing(rig: Rig) {
    let worker = rig.worker_of_build("a", both_panics).await;
    let run = rig.client.start(both_panics, ()).await.unwrap();
    rig.settle().await;
    rig.client.resume(run.id()).await.unwrap();
    rig.settle().await;
    rig.stuck(run.id()).await;
    rig.crash(worker);
    let _worker = rig.worker_of_build("b", both_mended).await;
    assert_eq!(rig.mended(&run).await, "a b");
    assert_eq!(rig.desk.notes(), ["a", "b"]);
}

async fn a_run_that_is_cancelled_while_stuck_still_has_it(rig: Rig) {
    let worker = rig.worker_of_build("a", both_panics).await;
    let run = rig.client.start(both_panics, ()).await.unwrap();
    rig.settle().await;
    rig.stuck(run.id()).await;
    rig.client.cancel(run.id(), "enough").await.unwrap();
    worker.stop().await.unwrap();
    let _worker = rig.worker_of_build("b", both_mended).await;
    rig.settle().await;
    let view = rig.view(run.id()).await;
    assert!(matches!(view.status, Status::Cancelled | Status::Completed));
    assert_eq!(rig.desk.notes(), ["a", "b"]);
}
