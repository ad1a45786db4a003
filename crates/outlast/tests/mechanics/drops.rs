//! Drop: the loser of a race ends, and drops outside the workflow's own code have no effect.

use outlast::Status;
use outlast::prelude::*;

use super::test_engine::{StepCalls, TestEngine, on_every_world, trace, traces};

on_every_world! {
    the_loser_of_a_race_neither_blocks_the_end_nor_writes_after_it,
    the_outcome_of_a_dropped_step_is_discarded,
    a_dropped_step_is_not_attempted_again_after_a_crash,
    a_step_dropped_between_two_attempts_is_not_attempted_again,
    a_dropped_timer_does_not_wake_the_run,
    an_operation_dropped_before_it_was_requested_keeps_its_number_and_leaves_no_event,
    drops_at_eviction_mean_nothing,
    drops_at_a_stop_mean_nothing,
    operations_of_an_evicted_run_are_inert,
    after_the_final_event_nothing_is_appended,
}

#[workflow]
async fn race_to_the_end(ctx: Context) -> Result<String, Error> {
    select! {
        word = ctx.blocked("slow") => word,
        slept = ctx.sleep("1m") => slept.map(|()| "slept".to_owned()),
    }
}

async fn the_loser_of_a_race_neither_blocks_the_end_nor_writes_after_it(engine: TestEngine) {
    let worker = engine.worker(race_to_the_end).await;
    let run = engine.client.start(race_to_the_end, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.clock.advance("1m");
    assert_eq!(run.output().await.unwrap(), "slept");
    let before = engine.turns(run.id()).await;
    engine.steps.open("slow");
    engine.steps.wait_for_log("ended slow", 1).await;
    worker.stop().await.unwrap();
    assert_eq!(engine.turns(run.id()).await, before);
    engine
        .assert_history(
            run.id(),
            "0 step_started blocked\n 1 timer_started 1m\n 1 timer_fired\n run_completed \"slept\"",
        )
        .await;
}

#[workflow]
async fn race_then_wait(ctx: Context) -> Result<u32, Error> {
    select! {
        _ = ctx.blocked("slow") => {}
        _ = ctx.sleep("1m") => {}
    }
    ctx.hook::<u32>("x").await
}

async fn the_outcome_of_a_dropped_step_is_discarded(engine: TestEngine) {
    let _worker = engine.worker(race_then_wait).await;
    let run = engine.client.start(race_then_wait, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.clock.advance("1m");
    engine.wait_for_status(run.id(), Status::Waiting).await;
    engine.steps.open("slow");
    engine.steps.wait_for_log("ended slow", 1).await;
    engine.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
    engine
        .assert_history(
            run.id(),
            "0 step_started blocked
         1 timer_started 1m
         1 timer_fired
         0 step_dropped
         2 hook_opened x
         hook_received x 7
         run_completed 7",
        )
        .await;
}

async fn a_dropped_step_is_not_attempted_again_after_a_crash(engine: TestEngine) {
    let worker = engine.worker(race_then_wait).await;
    let run = engine.client.start(race_then_wait, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.clock.advance("1m");
    engine.wait_for_status(run.id(), Status::Waiting).await;
    engine.crash(worker);
    let _worker = engine.worker(race_then_wait).await;
    engine.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
    assert_eq!(engine.steps.count("began slow"), 1);
}

async fn a_step_dropped_between_two_attempts_is_not_attempted_again(engine: TestEngine) {
    #[workflow]
    async fn impatient(ctx: Context) -> Result<(), Error> {
        select! {
            _ = ctx.flaky(9) => {}
            _ = ctx.sleep("100ms") => {}
        }
        ctx.sleep("1h").await
    }
    let _worker = engine.worker(impatient).await;
    let run = engine.client.start(impatient, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(engine.steps.count("flaky"), 1);
}

async fn a_dropped_timer_does_not_wake_the_run(engine: TestEngine) {
    #[workflow]
    async fn calm(ctx: Context) -> Result<u32, Error> {
        select! {
            _ = ctx.hook::<u32>("go") => {}
            _ = ctx.sleep("1m") => {}
        }
        ctx.hook::<u32>("x").await
    }
    let _worker = engine.worker(calm).await;
    let run = engine.client.start(calm, ()).await.unwrap();
    engine.send(run.id(), "go", 1).await;
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.wake_at, None);
    assert_eq!(engine.clock.next_sleeper(), None);
}

async fn an_operation_dropped_before_it_was_requested_keeps_its_number_and_leaves_no_event(
    engine: TestEngine,
) {
    #[workflow]
    async fn undecided(ctx: Context) -> Result<(), Error> {
        drop(ctx.note("never"));
        drop(ctx.sleep("1h"));
        drop(ctx.hook::<u32>("x"));
        ctx.note("a").await.map(drop)
    }
    let _worker = engine.worker(undecided).await;
    let run = engine.client.start(undecided, ()).await.unwrap();
    run.output().await.unwrap();
    engine
        .assert_history(run.id(), "3 step_started note\n 3 step_completed \"a\"\n run_completed null")
        .await;
    assert_eq!(engine.steps.logged(), ["a"]);
}

/// Requests operations when it is dropped.
struct Guard(Context);

impl Drop for Guard {
    fn drop(&mut self) {
        trace(self.0.run(), "dropped");
        std::mem::forget(self.0.note("from a drop"));
        std::mem::forget(self.0.sleep("1h"));
    }
}

#[workflow]
async fn guarded(ctx: Context) -> Result<u32, Error> {
    let _guard = Guard(ctx.clone());
    let _open = ctx.hook::<u32>("never");
    let first = ctx.hook::<u32>("x").await?;
    Ok(first + ctx.hook::<u32>("x").await?)
}

const GUARDED: &str = "
    0 hook_opened never
    1 hook_opened x
    hook_received x 1
    2 hook_opened x
    hook_received x 2
    run_completed 3";

async fn drops_at_eviction_mean_nothing(engine: TestEngine) {
    let _worker = engine.worker(guarded).await;
    let run = engine.client.start(guarded, ()).await.unwrap();
    engine.settle().await;
    engine.send(run.id(), "x", 1).await;
    engine.settle().await;
    assert!(traces(run.id(), "dropped") >= 2, "it was evicted after every turn");
    engine.send(run.id(), "x", 2).await;
    assert_eq!(run.output().await.unwrap(), 3);
    engine.assert_history(run.id(), GUARDED).await;
    assert_eq!(engine.steps.logged().len(), 0);
}

async fn drops_at_a_stop_mean_nothing(engine: TestEngine) {
    let worker = engine.caching_builder().register(guarded).start().await.unwrap();
    let run = engine.client.start(guarded, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    assert_eq!(traces(run.id(), "dropped"), 1);
    let _worker = engine.worker(guarded).await;
    engine.send(run.id(), "x", 1).await;
    engine.send(run.id(), "x", 2).await;
    assert_eq!(run.output().await.unwrap(), 3);
    engine.assert_history(run.id(), GUARDED).await;
}

/// Calls a builder method when it is dropped: on a requested operation of a live run, that panics.
struct Late(Option<outlast::HookOperation<u32>>);

impl Drop for Late {
    fn drop(&mut self) {
        drop(self.0.take().map(|hook| hook.timeout("1h")));
    }
}

async fn operations_of_an_evicted_run_are_inert(engine: TestEngine) {
    #[workflow]
    async fn late(ctx: Context) -> Result<u32, Error> {
        let late = Late(Some(ctx.hook::<u32>("never")));
        let payload = ctx.hook::<u32>("x").await?;
        std::mem::forget(late);
        Ok(payload)
    }
    let _worker = engine.worker(late).await;
    let run = engine.client.start(late, ()).await.unwrap();
    engine.settle().await;
    engine.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn after_the_final_event_nothing_is_appended(engine: TestEngine) {
    #[workflow]
    async fn hasty(ctx: Context) -> Result<u32, Error> {
        let payload = ctx.hook::<u32>("x").await?;
        let _open = (ctx.note("never"), ctx.sleep("1h"), ctx.hook::<u32>("x"));
        Ok(payload)
    }
    let run = engine.client.start(hasty, ()).await.unwrap();
    for payload in [1, 2, 3] {
        engine.send(run.id(), "x", payload).await;
    }
    let worker = engine.worker(hasty).await;
    assert_eq!(run.output().await.unwrap(), 1);
    worker.stop().await.unwrap();
    engine.assert_history(run.id(), "0 hook_opened x\n hook_received x 1\n run_completed 1").await;
    assert_eq!(engine.steps.logged().len(), 0);
    let error = engine.client.send(run.id(), "x", &4).await.unwrap_err();
    assert_eq!(error.kind(), outlast::ErrorKind::Conflict, "{error}");
}
