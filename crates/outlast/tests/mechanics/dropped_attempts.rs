//! Attempts whose step was dropped are asked to stop, and each attempt has an id of its own.

use std::sync::Arc;

use outlast::prelude::*;
use outlast::{AttemptId, Status, StopReason};
use parking_lot::Mutex;

use super::queued::step_run;
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    the_loser_of_a_race_is_asked_to_stop,
    the_loser_of_a_race_that_ends_the_run_is_asked_to_stop,
    losers_of_a_race_are_asked_to_stop_in_the_turn_of_the_winner,
    a_loser_that_waits_for_its_limit_never_begins,
    a_queued_step_that_lost_a_race_is_asked_to_stop,
    a_queued_loser_that_waits_for_its_limit_never_begins,
    an_attempt_of_a_cancelled_run_gets_the_reason,
    a_queued_attempt_of_a_cancelled_run_gets_the_reason,
    an_attempt_of_a_worker_that_lost_its_session_gets_the_reason,
    tasks_of_an_attempt_are_cancelled_at_its_timeout,
    attempts_of_a_session_have_increasing_ids,
    an_attempt_after_a_crash_has_the_same_number_and_another_id,
    a_notice_names_the_attempt_that_failed,
}

/// Waits until it is cancelled, and returns the reason.
#[step]
async fn told(cx: StepContext<StepState>, name: String) -> Result<String, StepError> {
    cx.state().log(format!("began {name}"));
    assert_eq!((cx.is_cancelled(), cx.stop_reason()), (false, None));
    cx.cancelled().await;
    cx.state().log(format!("told {name}: {:?}", cx.stop_reason()));
    Ok(name)
}

fn told_that(name: &str, reason: StopReason) -> String {
    format!("told {name}: {:?}", Some(reason))
}

#[workflow]
async fn race_then_wait(ctx: Context) -> Result<u32, Error> {
    select! {
        _ = ctx.step(told, "loser") => {}
        _ = ctx.sleep("1m") => {}
    }
    ctx.hook::<u32>("x").await
}

async fn the_loser_of_a_race_is_asked_to_stop(engine: TestEngine) {
    let _worker = engine.worker((race_then_wait, told)).await;
    let run = engine.client.start(race_then_wait, ()).await.unwrap();
    engine.steps.wait_for_log("began loser", 1).await;
    engine.clock.advance("1m");
    engine.steps.wait_for_log(&told_that("loser", StopReason::Dropped), 1).await;
    engine.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
    let history = engine.history(run.id()).await;
    assert!(!history.contains("0 step_completed"), "its outcome is discarded: {history}");
}

#[workflow]
async fn race_to_the_end(ctx: Context) -> Result<String, Error> {
    select! {
        name = ctx.step(told, "loser") => name,
        slept = ctx.sleep("1m") => slept.map(|()| "slept".to_owned()),
    }
}

async fn the_loser_of_a_race_that_ends_the_run_is_asked_to_stop(engine: TestEngine) {
    let _worker = engine.worker((race_to_the_end, told)).await;
    let run = engine.client.start(race_to_the_end, ()).await.unwrap();
    engine.steps.wait_for_log("began loser", 1).await;
    engine.clock.advance("1m");
    assert_eq!(run.output().await.unwrap(), "slept");
    engine.steps.wait_for_log(&told_that("loser", StopReason::Dropped), 1).await;
}

async fn losers_of_a_race_are_asked_to_stop_in_the_turn_of_the_winner(engine: TestEngine) {
    #[workflow]
    async fn among_three(ctx: Context) -> Result<String, Error> {
        let first = select! {
            word = ctx.blocked("winner") => word?,
            word = ctx.step(told, "second") => word?,
            word = ctx.step(told, "third") => word?,
        };
        ctx.hook::<u32>("x").await?;
        Ok(first)
    }
    let _worker = engine.worker((among_three, told)).await;
    let run = engine.client.start(among_three, ()).await.unwrap();
    for name in ["winner", "second", "third"] {
        engine.steps.wait_for_log(&format!("began {name}"), 1).await;
    }
    engine.steps.open("winner");
    for name in ["second", "third"] {
        engine.steps.wait_for_log(&told_that(name, StopReason::Dropped), 1).await;
    }
    engine.send(run.id(), "x", 1).await;
    assert_eq!(run.output().await.unwrap(), "winner");
}

/// One at a time.
#[step(limit = 1)]
async fn narrow(cx: StepContext<StepState>, gate: String) -> String {
    cx.state().log(format!("began {gate}"));
    cx.state().wait_for_gate(&gate).await;
    gate
}

async fn a_loser_that_waits_for_its_limit_never_begins(engine: TestEngine) {
    #[workflow]
    async fn crowded(ctx: Context) -> Result<String, Error> {
        let first = ctx.step(narrow, "first");
        let late = async {
            select! {
                _ = ctx.step(narrow, "second") => {}
                _ = ctx.sleep("1m") => {}
            }
        };
        let (first, ()) = join!(first, late);
        ctx.step(narrow, "third").await?;
        first
    }
    let worker = engine.worker((crowded, narrow)).await;
    let run = engine.client.start(crowded, ()).await.unwrap();
    engine.steps.wait_for_log("began first", 1).await;
    engine.clock.advance("1m");
    // The attempt that waits for its limit learns of the drop after its commit, and ends.
    while worker.metrics().attempts_failed == 0 {
        tokio::task::yield_now().await;
    }
    for gate in ["first", "second", "third"] {
        engine.steps.open(gate);
    }
    assert_eq!(run.output().await.unwrap(), "first");
    assert_eq!(engine.steps.logged(), ["began first", "began third"]);
}

async fn a_queued_step_that_lost_a_race_is_asked_to_stop(engine: TestEngine) {
    #[workflow]
    async fn queued_race(ctx: Context) -> Result<u32, Error> {
        select! {
            _ = ctx.step(told, "loser").queue("gpu") => {}
            _ = ctx.sleep("1m") => {}
        }
        ctx.hook::<u32>("x").await
    }
    let _here =
        engine.caching_builder().session_time("1h").register((queued_race, told)).start().await.unwrap();
    let there = engine.builder().queues(["gpu"]).session_time("1h").register(told).start();
    let _there = there.await.unwrap();
    let run = engine.client.start(queued_race, ()).await.unwrap();
    engine.steps.wait_for_log("began loser", 1).await;
    engine.clock.advance("1m");
    engine.steps.wait_for_log(&told_that("loser", StopReason::Dropped), 1).await;
    engine.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn a_queued_loser_that_waits_for_its_limit_never_begins(engine: TestEngine) {
    #[workflow]
    async fn queued_crowd(ctx: Context) -> Result<String, Error> {
        let first = ctx.step(narrow, "first").queue("gpu");
        let late = async {
            let _ = ctx.hook::<u32>("begin").await;
            select! {
                _ = ctx.step(narrow, "second").queue("gpu") => {}
                _ = ctx.hook::<u32>("drop") => {}
            }
        };
        let (first, ()) = join!(first, late);
        first
    }
    let _here = engine.caching_builder().register((queued_crowd, narrow)).start().await.unwrap();
    let _there = engine.caching_builder().queues(["gpu"]).register(narrow).start().await.unwrap();
    let run = engine.client.start(queued_crowd, ()).await.unwrap();
    engine.steps.wait_for_log("began first", 1).await;
    engine.send(run.id(), "begin", 1).await;
    engine.wait_for_history(run.id(), |history| history.contains("2 step_started")).await;
    let second = step_run(&engine, run.id(), 2).await;
    engine.wait_for_status(second, Status::Running).await;
    engine.send(run.id(), "drop", 1).await;
    engine.wait_for_status(second, Status::Cancelled).await;
    engine.steps.open("first");
    engine.steps.open("second");
    assert_eq!(run.output().await.unwrap(), "first");
    engine.settle().await;
    assert_eq!(engine.steps.logged(), ["began first"]);
}

#[workflow]
async fn alone(ctx: Context) -> Result<String, Error> {
    ctx.step(told, "only").await
}

async fn an_attempt_of_a_cancelled_run_gets_the_reason(engine: TestEngine) {
    let _worker = engine.worker((alone, told)).await;
    let run = engine.client.start(alone, ()).await.unwrap();
    engine.steps.wait_for_log("began only", 1).await;
    run.cancel("enough").await.unwrap();
    engine.steps.wait_for_log(&told_that("only", StopReason::Cancelled), 1).await;
}

async fn a_queued_attempt_of_a_cancelled_run_gets_the_reason(engine: TestEngine) {
    #[workflow]
    async fn elsewhere(ctx: Context) -> Result<String, Error> {
        ctx.step(told, "only").queue("gpu").await
    }
    let _here = engine.worker((elsewhere, told)).await;
    let _there = engine.builder().queues(["gpu"]).register(told).start().await.unwrap();
    let run = engine.client.start(elsewhere, ()).await.unwrap();
    engine.steps.wait_for_log("began only", 1).await;
    run.cancel("enough").await.unwrap();
    engine.steps.wait_for_log(&told_that("only", StopReason::Cancelled), 1).await;
}

async fn an_attempt_of_a_worker_that_lost_its_session_gets_the_reason(engine: TestEngine) {
    // Attempts have tasks of their own, which outlive that of the run.
    #[workflow]
    async fn two(ctx: Context) -> Result<(), Error> {
        try_join!(ctx.step(told, "one"), ctx.step(told, "other")).map(drop)
    }
    let worker = engine.worker((two, told)).await;
    engine.client.start(two, ()).await.unwrap();
    engine.steps.wait_for_log("began one", 1).await;
    engine.steps.wait_for_log("began other", 1).await;
    worker.crash();
    engine.steps.wait_for_log(&told_that("one", StopReason::Released), 1).await;
    engine.steps.wait_for_log(&told_that("other", StopReason::Released), 1).await;
}

async fn tasks_of_an_attempt_are_cancelled_at_its_timeout(engine: TestEngine) {
    #[step(timeout = "10s", attempts = 1)]
    async fn leaves_work_behind(cx: StepContext<StepState>) -> Result<(), StepError> {
        let left = cx.clone();
        tokio::spawn(async move {
            left.cancelled().await;
            left.state().log(told_that("left", left.stop_reason().unwrap()));
        });
        cx.state().log("began");
        std::future::pending().await
    }
    #[workflow]
    async fn leaving(ctx: Context) -> Result<(), Error> {
        ctx.step(leaves_work_behind, ()).await
    }
    let _worker = engine.worker((leaving, leaves_work_behind)).await;
    let run = engine.client.start(leaving, ()).await.unwrap();
    engine.steps.wait_for_log("began", 1).await;
    engine.clock.advance("10s");
    run.output().await.unwrap_err();
    engine.steps.wait_for_log(&told_that("left", StopReason::Failed), 1).await;
}

/// Fails twice, and logs its number and its id.
#[step(attempts = 3, initial = "1s")]
async fn identified(cx: StepContext<StepState>) -> Result<u32, StepError> {
    cx.state().log(format!("{} {}", cx.attempt(), cx.attempt_id()));
    if cx.attempt() < 3 { Err(StepError::msg("not yet")) } else { Ok(cx.attempt()) }
}

#[workflow]
async fn in_a_row(ctx: Context) -> Result<u32, Error> {
    ctx.step(identified, ()).await?;
    ctx.step(identified, ()).await
}

/// The numbers and ids of the attempts so far.
fn attempts(steps: &StepState) -> Vec<(u32, AttemptId)> {
    let notes = steps.logged();
    let parts = notes.iter().filter_map(|note| note.split_once(' '));
    parts.filter_map(|(number, id)| Some((number.parse().ok()?, id.parse().ok()?))).collect()
}

async fn attempts_of_a_session_have_increasing_ids(engine: TestEngine) {
    let _worker = engine.worker((in_a_row, identified)).await;
    let run = engine.client.start(in_a_row, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    let (numbers, ids): (Vec<_>, Vec<_>) = attempts(&engine.steps).into_iter().unzip();
    assert_eq!(numbers, [1, 2, 3, 1, 2, 3]);
    assert!(ids.is_sorted_by(|one, next| one < next && one.session() == next.session()), "{ids:?}");
}

async fn an_attempt_after_a_crash_has_the_same_number_and_another_id(engine: TestEngine) {
    #[step]
    async fn lasting(cx: StepContext<StepState>) -> u32 {
        cx.state().log(format!("{} {}", cx.attempt(), cx.attempt_id()));
        cx.state().log("began");
        cx.state().wait_for_gate("end").await;
        cx.attempt()
    }
    #[workflow]
    async fn crashing(ctx: Context) -> Result<u32, Error> {
        ctx.step(lasting, ()).await
    }
    let worker = engine.worker((crashing, lasting)).await;
    let run = engine.client.start(crashing, ()).await.unwrap();
    engine.steps.wait_for_log("began", 1).await;
    engine.crash(worker);
    let _worker = engine.worker((crashing, lasting)).await;
    engine.steps.wait_for_log("began", 2).await;
    engine.steps.open("end");
    assert_eq!(run.output().await.unwrap(), 1);
    let attempts = attempts(&engine.steps);
    let [(1, before), (1, after)] = attempts[..] else { panic!("{attempts:?}") };
    assert!(before < after && before.session() != after.session(), "{before} {after}");
}

async fn a_notice_names_the_attempt_that_failed(engine: TestEngine) {
    #[workflow]
    async fn once(ctx: Context) -> Result<u32, Error> {
        ctx.step(identified, ()).await
    }
    let notices = Arc::new(Mutex::new(Vec::new()));
    let told = notices.clone();
    let worker = engine.builder().register((once, identified));
    let worker =
        worker.on_retry(move |notice| told.lock().push((notice.attempt, notice.attempt_id.unwrap())));
    let _worker = worker.start().await.unwrap();
    let run = engine.client.start(once, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(*notices.lock(), attempts(&engine.steps)[..2]);
}
