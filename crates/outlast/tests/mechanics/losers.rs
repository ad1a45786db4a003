//! Attempts that nobody waits for any more are told to stop, and each attempt has an id of its own.

use std::sync::Arc;

use outlast::prelude::*;
use outlast::{AttemptId, Status, StopReason};
use parking_lot::Mutex;

use super::queued::step_run;
use super::rig::{Ask, Desk, Rig, on_every_world};

on_every_world! {
    the_loser_of_a_race_is_told_to_stop,
    the_loser_of_a_race_that_ends_the_run_is_told_to_stop,
    losers_beside_a_winner_of_the_same_turn_are_told_to_stop,
    a_loser_that_waits_for_its_limit_never_begins,
    a_queued_loser_is_told_to_stop,
    a_queued_loser_that_waits_for_its_limit_never_begins,
    an_attempt_of_a_cancelled_run_is_told_why,
    a_queued_attempt_of_a_cancelled_run_is_told_why,
    an_attempt_of_a_worker_that_is_gone_is_told_why,
    what_an_attempt_left_behind_is_told_of_its_timeout,
    attempts_of_a_session_have_increasing_ids,
    an_attempt_after_a_crash_has_the_same_number_and_another_id,
    a_notice_names_the_attempt_that_failed,
}

/// Waits until it is told to stop, and says why.
#[step]
async fn told(cx: StepContext<Desk>, name: String) -> Result<String, StepError> {
    cx.state().leave(format!("began {name}"));
    assert_eq!((cx.is_cancelled(), cx.stop_reason()), (false, None));
    cx.cancelled().await;
    cx.state().leave(format!("told {name}: {:?}", cx.stop_reason()));
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

async fn the_loser_of_a_race_is_told_to_stop(rig: Rig) {
    let _worker = rig.worker((race_then_wait, told)).await;
    let run = rig.client.start(race_then_wait, ()).await.unwrap();
    rig.desk.until("began loser", 1).await;
    rig.clock.advance("1m");
    rig.desk.until(&told_that("loser", StopReason::Dropped), 1).await;
    rig.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
    let history = rig.history(run.id()).await;
    assert!(!history.contains("0 step_completed"), "its outcome is discarded: {history}");
}

#[workflow]
async fn race_to_the_end(ctx: Context) -> Result<String, Error> {
    select! {
        name = ctx.step(told, "loser") => name,
        slept = ctx.sleep("1m") => slept.map(|()| "slept".to_owned()),
    }
}

async fn the_loser_of_a_race_that_ends_the_run_is_told_to_stop(rig: Rig) {
    let _worker = rig.worker((race_to_the_end, told)).await;
    let run = rig.client.start(race_to_the_end, ()).await.unwrap();
    rig.desk.until("began loser", 1).await;
    rig.clock.advance("1m");
    assert_eq!(run.output().await.unwrap(), "slept");
    rig.desk.until(&told_that("loser", StopReason::Dropped), 1).await;
}

async fn losers_beside_a_winner_of_the_same_turn_are_told_to_stop(rig: Rig) {
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
    let _worker = rig.worker((among_three, told)).await;
    let run = rig.client.start(among_three, ()).await.unwrap();
    for name in ["winner", "second", "third"] {
        rig.desk.until(&format!("began {name}"), 1).await;
    }
    rig.desk.open("winner");
    for name in ["second", "third"] {
        rig.desk.until(&told_that(name, StopReason::Dropped), 1).await;
    }
    rig.send(run.id(), "x", 1).await;
    assert_eq!(run.output().await.unwrap(), "winner");
}

/// One at a time.
#[step(limit = 1)]
async fn narrow(cx: StepContext<Desk>, gate: String) -> String {
    cx.state().leave(format!("began {gate}"));
    cx.state().passed(&gate).await;
    gate
}

async fn a_loser_that_waits_for_its_limit_never_begins(rig: Rig) {
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
    let worker = rig.worker((crowded, narrow)).await;
    let run = rig.client.start(crowded, ()).await.unwrap();
    rig.desk.until("began first", 1).await;
    rig.clock.advance("1m");
    // The attempt that waits for its limit learns of the drop after its commit, and ends.
    while worker.metrics().attempts_failed == 0 {
        tokio::task::yield_now().await;
    }
    for gate in ["first", "second", "third"] {
        rig.desk.open(gate);
    }
    assert_eq!(run.output().await.unwrap(), "first");
    assert_eq!(rig.desk.notes(), ["began first", "began third"]);
}

async fn a_queued_loser_is_told_to_stop(rig: Rig) {
    #[workflow]
    async fn queued_race(ctx: Context) -> Result<u32, Error> {
        select! {
            _ = ctx.step(told, "loser").queue("gpu") => {}
            _ = ctx.sleep("1m") => {}
        }
        ctx.hook::<u32>("x").await
    }
    let _here = rig.caching().session_time("1h").register((queued_race, told)).start().await.unwrap();
    let there = rig.builder().queues(["gpu"]).session_time("1h").register(told).start();
    let _there = there.await.unwrap();
    let run = rig.client.start(queued_race, ()).await.unwrap();
    rig.desk.until("began loser", 1).await;
    rig.clock.advance("1m");
    rig.desk.until(&told_that("loser", StopReason::Dropped), 1).await;
    rig.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn a_queued_loser_that_waits_for_its_limit_never_begins(rig: Rig) {
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
    let _here = rig.caching().register((queued_crowd, narrow)).start().await.unwrap();
    let _there = rig.caching().queues(["gpu"]).register(narrow).start().await.unwrap();
    let run = rig.client.start(queued_crowd, ()).await.unwrap();
    rig.desk.until("began first", 1).await;
    rig.send(run.id(), "begin", 1).await;
    rig.until_history(run.id(), |history| history.contains("2 step_started")).await;
    let second = step_run(&rig, run.id(), 2).await;
    rig.until(second, Status::Running).await;
    rig.send(run.id(), "drop", 1).await;
    rig.until(second, Status::Cancelled).await;
    rig.desk.open("first");
    rig.desk.open("second");
    assert_eq!(run.output().await.unwrap(), "first");
    rig.settle().await;
    assert_eq!(rig.desk.notes(), ["began first"]);
}

#[workflow]
async fn alone(ctx: Context) -> Result<String, Error> {
    ctx.step(told, "only").await
}

async fn an_attempt_of_a_cancelled_run_is_told_why(rig: Rig) {
    let _worker = rig.worker((alone, told)).await;
    let run = rig.client.start(alone, ()).await.unwrap();
    rig.desk.until("began only", 1).await;
    run.cancel("enough").await.unwrap();
    rig.desk.until(&told_that("only", StopReason::Cancelled), 1).await;
}

async fn a_queued_attempt_of_a_cancelled_run_is_told_why(rig: Rig) {
    #[workflow]
    async fn elsewhere(ctx: Context) -> Result<String, Error> {
        ctx.step(told, "only").queue("gpu").await
    }
    let _here = rig.worker((elsewhere, told)).await;
    let _there = rig.builder().queues(["gpu"]).register(told).start().await.unwrap();
    let run = rig.client.start(elsewhere, ()).await.unwrap();
    rig.desk.until("began only", 1).await;
    run.cancel("enough").await.unwrap();
    rig.desk.until(&told_that("only", StopReason::Cancelled), 1).await;
}

async fn an_attempt_of_a_worker_that_is_gone_is_told_why(rig: Rig) {
    // Several attempts have tasks of their own, which outlive that of the run.
    #[workflow]
    async fn two(ctx: Context) -> Result<(), Error> {
        try_join!(ctx.step(told, "one"), ctx.step(told, "other")).map(drop)
    }
    let worker = rig.worker((two, told)).await;
    rig.client.start(two, ()).await.unwrap();
    rig.desk.until("began one", 1).await;
    rig.desk.until("began other", 1).await;
    worker.crash();
    rig.desk.until(&told_that("one", StopReason::Released), 1).await;
    rig.desk.until(&told_that("other", StopReason::Released), 1).await;
}

async fn what_an_attempt_left_behind_is_told_of_its_timeout(rig: Rig) {
    #[step(timeout = "10s", attempts = 1)]
    async fn leaves_work_behind(cx: StepContext<Desk>) -> Result<(), StepError> {
        let left = cx.clone();
        tokio::spawn(async move {
            left.cancelled().await;
            left.state().leave(told_that("left", left.stop_reason().unwrap()));
        });
        cx.state().leave("began");
        std::future::pending().await
    }
    #[workflow]
    async fn leaving(ctx: Context) -> Result<(), Error> {
        ctx.step(leaves_work_behind, ()).await
    }
    let _worker = rig.worker((leaving, leaves_work_behind)).await;
    let run = rig.client.start(leaving, ()).await.unwrap();
    rig.desk.until("began", 1).await;
    rig.clock.advance("10s");
    run.output().await.unwrap_err();
    rig.desk.until(&told_that("left", StopReason::Failed), 1).await;
}

/// Fails twice, and leaves its number and its id.
#[step(attempts = 3, initial = "1s")]
async fn identified(cx: StepContext<Desk>) -> Result<u32, StepError> {
    cx.state().leave(format!("{} {}", cx.attempt(), cx.attempt_id()));
    if cx.attempt() < 3 { Err(StepError::msg("not yet")) } else { Ok(cx.attempt()) }
}

#[workflow]
async fn in_a_row(ctx: Context) -> Result<u32, Error> {
    ctx.step(identified, ()).await?;
    ctx.step(identified, ()).await
}

/// The numbers and ids of the attempts so far.
fn attempts(desk: &Desk) -> Vec<(u32, AttemptId)> {
    let notes = desk.notes();
    let parts = notes.iter().filter_map(|note| note.split_once(' '));
    parts.filter_map(|(number, id)| Some((number.parse().ok()?, id.parse().ok()?))).collect()
}

async fn attempts_of_a_session_have_increasing_ids(rig: Rig) {
    let _worker = rig.worker((in_a_row, identified)).await;
    let run = rig.client.start(in_a_row, ()).await.unwrap();
    rig.clock.run_until_idle().await;
    run.output().await.unwrap();
    let (numbers, ids): (Vec<_>, Vec<_>) = attempts(&rig.desk).into_iter().unzip();
    assert_eq!(numbers, [1, 2, 3, 1, 2, 3]);
    assert!(ids.is_sorted_by(|one, next| one < next && one.session() == next.session()), "{ids:?}");
}

async fn an_attempt_after_a_crash_has_the_same_number_and_another_id(rig: Rig) {
    #[step]
    async fn lasting(cx: StepContext<Desk>) -> u32 {
        cx.state().leave(format!("{} {}", cx.attempt(), cx.attempt_id()));
        cx.state().leave("began");
        cx.state().passed("end").await;
        cx.attempt()
    }
    #[workflow]
    async fn crashing(ctx: Context) -> Result<u32, Error> {
        ctx.step(lasting, ()).await
    }
    let worker = rig.worker((crashing, lasting)).await;
    let run = rig.client.start(crashing, ()).await.unwrap();
    rig.desk.until("began", 1).await;
    rig.crash(worker);
    let _worker = rig.worker((crashing, lasting)).await;
    rig.desk.until("began", 2).await;
    rig.desk.open("end");
    assert_eq!(run.output().await.unwrap(), 1);
    let attempts = attempts(&rig.desk);
    let [(1, before), (1, after)] = attempts[..] else { panic!("{attempts:?}") };
    assert!(before < after && before.session() != after.session(), "{before} {after}");
}

async fn a_notice_names_the_attempt_that_failed(rig: Rig) {
    #[workflow]
    async fn once(ctx: Context) -> Result<u32, Error> {
        ctx.step(identified, ()).await
    }
    let notices = Arc::new(Mutex::new(Vec::new()));
    let told = notices.clone();
    let worker = rig.builder().register((once, identified));
    let worker =
        worker.on_retry(move |notice| told.lock().push((notice.attempt, notice.attempt_id.unwrap())));
    let _worker = worker.start().await.unwrap();
    let run = rig.client.start(once, ()).await.unwrap();
    rig.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(*notices.lock(), attempts(&rig.desk)[..2]);
}
