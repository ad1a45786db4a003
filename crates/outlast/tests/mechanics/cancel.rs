//! Cancel: told once, waits end, steps under way are awaited, clean-up works.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outlast::prelude::*;
use outlast::{Cancel, ErrorKind, RunId, Status};
use parking_lot::Mutex;

use super::rig::{Ask, Rig, on_every_world};

on_every_world! {
    waits_end_in_operation_order_one_per_poll,
    a_step_being_attempted_is_told_and_its_real_outcome_is_awaited,
    a_step_that_ignores_the_cancel_is_awaited_all_the_same,
    a_step_that_fails_after_the_cancel_is_not_attempted_again,
    operations_after_a_cancel_work,
    ok_after_a_cancel_is_completed,
    err_after_a_cancel_is_cancelled,
    a_run_without_a_turn_is_cancelled_without_any_worker,
    a_run_without_a_turn_is_cancelled_by_a_worker_without_its_code,
    a_run_without_a_turn_keeps_its_messages_when_cancelled,
    a_pause_between_attempts_ends_with_the_cancel,
    a_second_cancel_changes_nothing,
    cancel_of_an_ended_run_says_how_it_ended,
    cancel_of_an_unknown_run_is_refused,
    a_cancel_survives_a_crash,
}

async fn waits_end_in_operation_order_one_per_poll(rig: Rig) {
    #[workflow]
    async fn three_waits(ctx: Context) -> Result<Vec<(u32, u32)>, Error> {
        let (polls, ended) = (AtomicU32::new(0), Arc::new(Mutex::new(Vec::new())));
        let (first, second, third) = (ctx.hook::<u32>("a"), ctx.sleep("1h"), ctx.hook::<u32>("b"));
        let log = |op: u32, is_cancelled: bool| {
            assert!(is_cancelled);
            ended.lock().push((op, polls.load(Ordering::SeqCst)));
        };
        let mut all = pin!(async {
            join!(
                async { log(2, third.await.is_err_and(|error| error.is_cancelled())) },
                async { log(0, first.await.is_err_and(|error| error.is_cancelled())) },
                async { log(1, second.await.is_err_and(|error| error.is_cancelled())) },
            )
        });
        poll_fn(|cx| {
            polls.fetch_add(1, Ordering::SeqCst);
            all.as_mut().poll(cx)
        })
        .await;
        let ended = ended.lock().clone();
        Ok(ended)
    }
    let _worker = rig.worker(three_waits).await;
    let run = rig.client.start(three_waits, ()).await.unwrap();
    rig.settle().await;
    run.cancel("enough").await.unwrap();
    assert_eq!(run.output().await.unwrap(), [(0, 2), (1, 3), (2, 4)]);
}

#[workflow]
async fn stoppable_step(ctx: Context) -> Result<String, Error> {
    let outcome = ctx.stoppable("work").await?;
    Ok(format!("{outcome}, cancelled: {}", ctx.is_cancelled()))
}

async fn a_step_being_attempted_is_told_and_its_real_outcome_is_awaited(rig: Rig) {
    let _worker = rig.worker(stoppable_step).await;
    let run = rig.client.start(stoppable_step, ()).await.unwrap();
    rig.desk.until("began work", 1).await;
    run.cancel("enough").await.unwrap();
    assert_eq!(run.output().await.unwrap(), "stopped, cancelled: true");
    rig.assert_history(
        run.id(),
        "0 step_started stoppable
         cancel_requested enough
         0 step_completed \"stopped\"
         run_completed \"stopped, cancelled: true\"",
    )
    .await;
}

async fn a_step_that_ignores_the_cancel_is_awaited_all_the_same(rig: Rig) {
    #[workflow]
    async fn ignorant(ctx: Context) -> Result<String, Error> {
        ctx.blocked("work").await
    }
    let _worker = rig.worker(ignorant).await;
    let run = rig.client.start(ignorant, ()).await.unwrap();
    rig.desk.until("began work", 1).await;
    run.cancel("enough").await.unwrap();
    rig.until_view(run.id(), |view| view.consumed == 1).await;
    rig.desk.open("work");
    assert_eq!(run.output().await.unwrap(), "work");
    assert_eq!(rig.desk.notes(), ["began work", "ended work"]);
}

async fn a_step_that_fails_after_the_cancel_is_not_attempted_again(rig: Rig) {
    #[step(attempts = 5)]
    async fn give_up(cx: StepContext<super::rig::Desk>) -> Result<(), StepError> {
        cx.state().leave("attempt");
        cx.cancelled().await;
        Err(StepError::msg("stopped half-way"))
    }
    #[workflow]
    async fn one_step(ctx: Context) -> Result<(), Error> {
        ctx.step(give_up, ()).await
    }
    let _worker = rig.worker((one_step, give_up)).await;
    let run = rig.client.start(one_step, ()).await.unwrap();
    rig.desk.until("attempt", 1).await;
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!((error.step(), error.attempts()), (Some("give_up"), 1), "{error}");
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
    assert_eq!(rig.desk.count("attempt"), 1);
}

#[workflow]
async fn cleaning(ctx: Context) -> Result<(), Error> {
    let Err(error) = ctx.sleep("1d").await else { return Ok(()) };
    ctx.flaky(2).await?;
    ctx.sleep("1h").await?;
    ctx.hook::<u32>("signed").await?;
    Err(error)
}

async fn operations_after_a_cancel_work(rig: Rig) {
    let _worker = rig.worker(cleaning).await;
    let run = rig.client.start(cleaning, ()).await.unwrap();
    rig.run_to("1h").await;
    run.cancel("enough").await.unwrap();
    rig.run_to("3h").await;
    rig.send(run.id(), "signed", 1).await;
    rig.settle().await;
    rig.assert_history(
        run.id(),
        "0 timer_started 1d
         cancel_requested enough
         1 step_started flaky
         1 step_retried 1s
         1 step_retried 2s
         1 step_completed 3
         2 timer_started 1h
         2 timer_fired
         3 hook_opened signed
         hook_received signed 1
         run_cancelled cancelled: enough",
    )
    .await;
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
}

#[workflow]
async fn sleeper(ctx: Context) -> Result<u32, Error> {
    ctx.sleep("1d").await?;
    Ok(1)
}

#[workflow]
async fn saver(ctx: Context) -> Result<u32, Error> {
    Ok(if ctx.sleep("1d").await.is_err() { 2 } else { 1 })
}

async fn ok_after_a_cancel_is_completed(rig: Rig) {
    let _worker = rig.worker(saver).await;
    let run = rig.client.start(saver, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::Requested);
    assert_eq!(run.output().await.unwrap(), 2);
    assert_eq!(rig.status(run.id()).await, Status::Completed);
}

async fn err_after_a_cancel_is_cancelled(rig: Rig) {
    let _worker = rig.worker(sleeper).await;
    let run = rig.client.start(sleeper, ()).await.unwrap();
    rig.settle().await;
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.message() == "cancelled: enough", "{error}");
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
}

async fn a_run_without_a_turn_is_cancelled_without_any_worker(rig: Rig) {
    let run = rig.client.start(sleeper, ()).await.unwrap();
    run.cancel("enough").await.unwrap();
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
    assert!(run.output().await.unwrap_err().is_cancelled());
    rig.assert_history(run.id(), "cancel_requested enough\n run_cancelled cancelled: enough").await;
    assert_eq!(rig.client.workers().await.unwrap().len(), 0, "the client has left again");
}

async fn a_run_without_a_turn_is_cancelled_by_a_worker_without_its_code(rig: Rig) {
    let run = rig.client.start(sleeper, ()).await.unwrap();
    let _worker = rig.worker(saver).await;
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Pending);
    run.cancel("enough").await.unwrap();
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
}

async fn a_run_without_a_turn_keeps_its_messages_when_cancelled(rig: Rig) {
    let run = rig.client.start(sleeper, ()).await.unwrap();
    rig.send(run.id(), "x", 7).await;
    run.cancel("enough").await.unwrap();
    rig.assert_history(
        run.id(),
        "hook_received x 7\n cancel_requested enough\n run_cancelled cancelled: enough",
    )
    .await;
}

async fn a_pause_between_attempts_ends_with_the_cancel(rig: Rig) {
    #[workflow]
    async fn hopeless(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(99).await
    }
    let _worker = rig.worker(hopeless).await;
    let run = rig.client.start(hopeless, ()).await.unwrap();
    rig.settle().await;
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_eq!((error.step(), error.attempts()), (Some("flaky"), 1));
    rig.pass("1h").await;
    assert_eq!(rig.desk.count("flaky"), 1);
}

async fn a_second_cancel_changes_nothing(rig: Rig) {
    #[workflow]
    async fn stubborn(ctx: Context) -> Result<u32, Error> {
        assert!(ctx.sleep("1d").await.is_err());
        ctx.hook::<u32>("clean").await
    }
    let _worker = rig.worker(stubborn).await;
    let run = rig.client.start(stubborn, ()).await.unwrap();
    rig.settle().await;
    run.cancel("enough").await.unwrap();
    rig.settle().await;
    assert_eq!(run.cancel("really").await.unwrap(), Cancel::Requested);
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Waiting);
    rig.send(run.id(), "clean", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn cancel_of_an_ended_run_says_how_it_ended(rig: Rig) {
    let _worker = rig.worker(saver).await;
    let run = rig.client.start(saver, ()).await.unwrap();
    rig.clock.run_until_idle().await;
    let before = rig.history(run.id()).await;
    assert_eq!(run.cancel("late").await.unwrap(), Cancel::AlreadyEnded(Status::Completed));
    assert_eq!(rig.history(run.id()).await, before);
}

async fn cancel_of_an_unknown_run_is_refused(rig: Rig) {
    let error = rig.client.cancel(RunId::from_bits(7), "who").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

async fn a_cancel_survives_a_crash(rig: Rig) {
    let worker = rig.worker(cleaning).await;
    let run = rig.client.start(cleaning, ()).await.unwrap();
    rig.settle().await;
    worker.crash();
    run.cancel("enough").await.unwrap();
    rig.clock.advance(super::rig::SESSION);
    let worker = rig.worker(cleaning).await;
    rig.settle().await;
    rig.crash(worker);
    let _worker = rig.worker(cleaning).await;
    rig.pass("2h").await;
    rig.send(run.id(), "signed", 1).await;
    assert!(run.output().await.unwrap_err().is_cancelled());
    assert_eq!(rig.history(run.id()).await.matches("cancel_requested").count(), 1);
}
