//! Cancel: told once, waits end, steps under way are awaited, and what follows is refused.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outlast::core::{Event, OperationStatus};
use outlast::prelude::*;
use outlast::{Cancel, ErrorKind, RunId, Status, StuckReason};
use parking_lot::Mutex;

use super::rig::{Ask, Rig, on_every_world};

on_every_world! {
    waits_end_in_operation_order_one_per_poll,
    a_step_being_attempted_is_told_and_its_real_outcome_is_awaited,
    a_step_that_ignores_the_cancel_is_awaited_all_the_same,
    a_step_that_fails_after_the_cancel_is_not_attempted_again,
    shielded_operations_after_a_cancel_work,
    a_cancel_during_a_step_ends_the_run_after_it,
    a_step_that_nobody_attempts_ends_with_the_cancel,
    a_step_that_a_lost_worker_may_have_attempted_says_so,
    a_retry_that_a_lost_worker_may_have_begun_says_so,
    a_run_that_ignores_the_cancel_is_stuck_until_its_code_is_mended,
    no_attempt_begins_after_the_cancel_that_came_with_its_announcement,
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
    let ctx = ctx.shielded();
    ctx.flaky(2).await?;
    ctx.sleep("1h").await?;
    ctx.hook::<u32>("signed").await?;
    Err(error)
}

async fn shielded_operations_after_a_cancel_work(rig: Rig) {
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
        ctx.shielded().hook::<u32>("clean").await
    }
    let worker = rig.worker(stubborn).await;
    let run = rig.client.start(stubborn, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::Requested);
    assert_eq!(run.cancel("unread").await.unwrap(), Cancel::AlreadyRequested);
    let _worker = rig.worker(stubborn).await;
    rig.settle().await;
    assert_eq!(run.cancel("delivered").await.unwrap(), Cancel::AlreadyRequested);
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Waiting);
    rig.send(run.id(), "clean", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

#[workflow]
async fn two_steps_and_a_hook(ctx: Context) -> Result<(), Error> {
    let worked: Result<(), Error> = async {
        ctx.blocked("first").await?;
        ctx.note("second").await?;
        ctx.hook::<u32>("answer").await.map(drop)
    }
    .await;
    if worked.is_err() {
        ctx.shielded().note("cleaned up").await?;
        ctx.shielded().blocked("cleaning").await?;
    }
    worked
}

async fn a_cancel_during_a_step_ends_the_run_after_it(rig: Rig) {
    let _worker = rig.worker(two_steps_and_a_hook).await;
    let run = rig.client.start(two_steps_and_a_hook, ()).await.unwrap();
    rig.desk.until("began first", 1).await;
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::Requested);
    rig.until_view(run.id(), |view| view.consumed == 1).await;
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::AlreadyRequested);
    rig.desk.open("first");
    rig.desk.until("began cleaning", 1).await;
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::AlreadyRequested);
    rig.desk.open("cleaning");
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.message() == "cancelled: enough", "{error}");
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
    assert_eq!(
        rig.desk.notes(),
        ["began first", "ended first", "cleaned up", "began cleaning", "ended cleaning"]
    );
    rig.assert_history(
        run.id(),
        "0 step_started blocked
         cancel_requested enough
         0 step_completed \"first\"
         1 step_started note
         1 step_completed \"cleaned up\"
         2 step_started blocked
         2 step_completed \"cleaning\"
         run_cancelled cancelled: enough",
    )
    .await;
}

#[workflow]
async fn one_step(ctx: Context) -> Result<String, Error> {
    ctx.blocked("work").await
}

/// What the run's cancel says it ended, and which of that may have been attempted.
async fn ended_by_cancel(rig: &Rig, run: RunId) -> (Vec<u64>, Vec<u64>) {
    let turns = rig.turns(run).await;
    let mut events = turns.iter().flat_map(|turn| &turn.events);
    let numbers = |ops: &[outlast::OpNumber]| ops.iter().map(|op| op.0).collect();
    let ended = events.find_map(|event| match event {
        Event::CancelRequested { ends, maybe_attempted, .. } => {
            Some((numbers(ends), numbers(maybe_attempted)))
        }
        _ => None,
    });
    ended.expect("it was cancelled")
}

async fn a_step_that_nobody_attempts_ends_with_the_cancel(rig: Rig) {
    #[workflow]
    async fn hopeless(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(99).await
    }
    let worker = rig.worker(hopeless).await;
    let run = rig.client.start(hopeless, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    run.cancel("enough").await.unwrap();
    let _worker = rig.worker(hopeless).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && !error.is_maybe_attempted(), "its pause was not over: {error}");
    assert_eq!(ended_by_cancel(&rig, run.id()).await, (vec![0], vec![]));
    let views = rig.client.operations(run.id()).await.unwrap();
    assert_eq!((views[0].status, views[0].attempts), (OperationStatus::Cancelled, 1));
}

async fn a_step_that_a_lost_worker_may_have_attempted_says_so(rig: Rig) {
    let worker = rig.worker(one_step).await;
    let run = rig.client.start(one_step, ()).await.unwrap();
    rig.desk.until("began work", 1).await;
    worker.crash();
    run.cancel("enough").await.unwrap();
    rig.clock.advance(super::rig::SESSION);
    let worker = rig.worker(one_step).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.is_maybe_attempted(), "{error}");
    assert_eq!((error.kind(), error.step()), (ErrorKind::MaybeAttempted, Some("blocked")));
    assert_eq!(ended_by_cancel(&rig, run.id()).await, (vec![0], vec![0]));
    assert_eq!(rig.desk.notes(), ["began work"], "it is not attempted again");
    let views = rig.client.operations(run.id()).await.unwrap();
    assert_eq!(views[0].status, OperationStatus::Cancelled);
    assert_eq!(views[0].failure.as_ref().unwrap().kind, outlast::core::FailureKind::MaybeAttempted);
    worker.stop().await.unwrap();
}

async fn a_retry_that_a_lost_worker_may_have_begun_says_so(rig: Rig) {
    #[workflow]
    async fn hopeless(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(99).await
    }
    let worker = rig.worker(hopeless).await;
    let run = rig.client.start(hopeless, ()).await.unwrap();
    rig.settle().await;
    worker.crash();
    // The pause of a second is over when the next worker comes.
    rig.clock.advance("5s");
    run.cancel("enough").await.unwrap();
    let _worker = rig.worker(hopeless).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_maybe_attempted(), "{error}");
    assert_eq!((error.attempts(), rig.desk.count("flaky")), (1, 1), "one attempt is known to have failed");
    assert_eq!(ended_by_cancel(&rig, run.id()).await, (vec![0], vec![0]));
}

async fn a_run_that_ignores_the_cancel_is_stuck_until_its_code_is_mended(rig: Rig) {
    #[workflow(name = "deaf")]
    async fn deaf(ctx: Context) -> Result<(), Error> {
        loop {
            let _ = ctx.sleep("1h").await;
        }
    }
    #[workflow(name = "deaf")]
    async fn mended(ctx: Context) -> Result<(), Error> {
        loop {
            ctx.sleep("1h").await?;
        }
    }
    let worker = rig.worker_of_build("old", deaf).await;
    let run = rig.client.start(deaf, ()).await.unwrap();
    rig.settle().await;
    run.cancel("enough").await.unwrap();
    rig.until(run.id(), Status::Stuck).await;
    let stuck = rig.view(run.id()).await.stuck.unwrap();
    assert_eq!(stuck.reason, StuckReason::IgnoresCancel);
    assert!(stuck.message.contains("return the error instead of continuing"), "{}", stuck.message);
    worker.stop().await.unwrap();
    let _worker = rig.worker_of_build("new", mended).await;
    rig.until(run.id(), Status::Cancelled).await;
}

async fn no_attempt_begins_after_the_cancel_that_came_with_its_announcement(rig: Rig) {
    #[workflow]
    async fn asks(ctx: Context) -> Result<String, Error> {
        ctx.hook::<u32>("go").await?;
        ctx.note("too late").await
    }
    let worker = rig.worker(asks).await;
    let run = rig.client.start(asks, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    // One turn is told both.
    rig.send(run.id(), "go", 1).await;
    run.cancel("enough").await.unwrap();
    let _worker = rig.worker(asks).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && !error.is_maybe_attempted(), "{error}");
    assert_eq!(ended_by_cancel(&rig, run.id()).await, (vec![1], vec![]));
    assert_eq!(rig.desk.notes(), Vec::<String>::new());
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
