//! Cancel: waits end, running steps are awaited, and later operations are refused.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outlast::core::{Event, OperationStatus};
use outlast::prelude::*;
use outlast::{Cancel, ErrorKind, RunId, Status, StuckReason};
use parking_lot::Mutex;

use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    waits_end_in_operation_order_one_per_poll,
    a_running_attempt_is_asked_to_stop_and_its_outcome_is_awaited,
    a_step_that_ignores_the_cancel_is_awaited_all_the_same,
    a_step_that_fails_after_the_cancel_is_not_attempted_again,
    shielded_operations_after_a_cancel_work,
    a_cancel_during_a_step_ends_the_run_after_it,
    a_step_without_a_running_attempt_ends_with_the_cancel,
    a_step_that_a_lost_worker_may_have_attempted_says_so,
    a_retry_that_a_lost_worker_may_have_begun_says_so,
    a_run_that_ignores_the_cancel_is_stuck_until_its_code_is_fixed,
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

async fn waits_end_in_operation_order_one_per_poll(engine: TestEngine) {
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
    let _worker = engine.worker(three_waits).await;
    let run = engine.client.start(three_waits, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    assert_eq!(run.output().await.unwrap(), [(0, 2), (1, 3), (2, 4)]);
}

#[workflow]
async fn stoppable_step(ctx: Context) -> Result<String, Error> {
    let outcome = ctx.stoppable("work").await?;
    Ok(format!("{outcome}, cancelled: {}", ctx.is_cancelled()))
}

async fn a_running_attempt_is_asked_to_stop_and_its_outcome_is_awaited(engine: TestEngine) {
    let _worker = engine.worker(stoppable_step).await;
    let run = engine.client.start(stoppable_step, ()).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    run.cancel("enough").await.unwrap();
    assert_eq!(run.output().await.unwrap(), "stopped, cancelled: true");
    engine
        .assert_history(
            run.id(),
            "0 step_started stoppable
         cancel_requested enough
         0 step_completed \"stopped\"
         run_completed \"stopped, cancelled: true\"",
        )
        .await;
}

async fn a_step_that_ignores_the_cancel_is_awaited_all_the_same(engine: TestEngine) {
    #[workflow]
    async fn ignorant(ctx: Context) -> Result<String, Error> {
        ctx.blocked("work").await
    }
    let _worker = engine.worker(ignorant).await;
    let run = engine.client.start(ignorant, ()).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    run.cancel("enough").await.unwrap();
    engine.wait_for_view(run.id(), |view| view.consumed == 1).await;
    engine.steps.open("work");
    assert_eq!(run.output().await.unwrap(), "work");
    assert_eq!(engine.steps.logged(), ["began work", "ended work"]);
}

async fn a_step_that_fails_after_the_cancel_is_not_attempted_again(engine: TestEngine) {
    #[step(attempts = 5)]
    async fn give_up(cx: StepContext<super::test_engine::StepState>) -> Result<(), StepError> {
        cx.state().log("attempt");
        cx.cancelled().await;
        Err(StepError::msg("stopped half-way"))
    }
    #[workflow]
    async fn one_step(ctx: Context) -> Result<(), Error> {
        ctx.step(give_up, ()).await
    }
    let _worker = engine.worker((one_step, give_up)).await;
    let run = engine.client.start(one_step, ()).await.unwrap();
    engine.steps.wait_for_log("attempt", 1).await;
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!((error.step(), error.attempts()), (Some("give_up"), 1), "{error}");
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
    assert_eq!(engine.steps.count("attempt"), 1);
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

async fn shielded_operations_after_a_cancel_work(engine: TestEngine) {
    let _worker = engine.worker(cleaning).await;
    let run = engine.client.start(cleaning, ()).await.unwrap();
    engine.run_to("1h").await;
    run.cancel("enough").await.unwrap();
    engine.run_to("3h").await;
    engine.send(run.id(), "signed", 1).await;
    engine.settle().await;
    engine
        .assert_history(
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
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
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

async fn ok_after_a_cancel_is_completed(engine: TestEngine) {
    let _worker = engine.worker(saver).await;
    let run = engine.client.start(saver, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::Requested);
    assert_eq!(run.output().await.unwrap(), 2);
    assert_eq!(engine.status(run.id()).await, Status::Completed);
}

async fn err_after_a_cancel_is_cancelled(engine: TestEngine) {
    let _worker = engine.worker(sleeper).await;
    let run = engine.client.start(sleeper, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.message() == "cancelled: enough", "{error}");
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
}

async fn a_run_without_a_turn_is_cancelled_without_any_worker(engine: TestEngine) {
    let run = engine.client.start(sleeper, ()).await.unwrap();
    run.cancel("enough").await.unwrap();
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
    assert!(run.output().await.unwrap_err().is_cancelled());
    engine.assert_history(run.id(), "cancel_requested enough\n run_cancelled cancelled: enough").await;
    assert_eq!(engine.client.workers().await.unwrap().len(), 0, "the client has left again");
}

async fn a_run_without_a_turn_is_cancelled_by_a_worker_without_its_code(engine: TestEngine) {
    let run = engine.client.start(sleeper, ()).await.unwrap();
    let _worker = engine.worker(saver).await;
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Pending);
    run.cancel("enough").await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
}

async fn a_run_without_a_turn_keeps_its_messages_when_cancelled(engine: TestEngine) {
    let run = engine.client.start(sleeper, ()).await.unwrap();
    engine.send(run.id(), "x", 7).await;
    run.cancel("enough").await.unwrap();
    engine
        .assert_history(
            run.id(),
            "hook_received x 7\n cancel_requested enough\n run_cancelled cancelled: enough",
        )
        .await;
}

async fn a_pause_between_attempts_ends_with_the_cancel(engine: TestEngine) {
    #[workflow]
    async fn hopeless(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(99).await
    }
    let _worker = engine.worker(hopeless).await;
    let run = engine.client.start(hopeless, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_eq!((error.step(), error.attempts()), (Some("flaky"), 1));
    engine.advance("1h").await;
    assert_eq!(engine.steps.count("flaky"), 1);
}

async fn a_second_cancel_changes_nothing(engine: TestEngine) {
    #[workflow]
    async fn stubborn(ctx: Context) -> Result<u32, Error> {
        assert!(ctx.sleep("1d").await.is_err());
        ctx.shielded().hook::<u32>("clean").await
    }
    let worker = engine.worker(stubborn).await;
    let run = engine.client.start(stubborn, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::Requested);
    assert_eq!(run.cancel("unread").await.unwrap(), Cancel::AlreadyRequested);
    let _worker = engine.worker(stubborn).await;
    engine.settle().await;
    assert_eq!(run.cancel("delivered").await.unwrap(), Cancel::AlreadyRequested);
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.send(run.id(), "clean", 7).await;
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

async fn a_cancel_during_a_step_ends_the_run_after_it(engine: TestEngine) {
    let _worker = engine.worker(two_steps_and_a_hook).await;
    let run = engine.client.start(two_steps_and_a_hook, ()).await.unwrap();
    engine.steps.wait_for_log("began first", 1).await;
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::Requested);
    engine.wait_for_view(run.id(), |view| view.consumed == 1).await;
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::AlreadyRequested);
    engine.steps.open("first");
    engine.steps.wait_for_log("began cleaning", 1).await;
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::AlreadyRequested);
    engine.steps.open("cleaning");
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.message() == "cancelled: enough", "{error}");
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
    assert_eq!(
        engine.steps.logged(),
        ["began first", "ended first", "cleaned up", "began cleaning", "ended cleaning"]
    );
    engine
        .assert_history(
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

/// The operations that the run's cancel ended, and those that may have been attempted.
async fn ended_by_cancel(engine: &TestEngine, run: RunId) -> (Vec<u64>, Vec<u64>) {
    let turns = engine.turns(run).await;
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

async fn a_step_without_a_running_attempt_ends_with_the_cancel(engine: TestEngine) {
    #[workflow]
    async fn hopeless(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(99).await
    }
    let worker = engine.worker(hopeless).await;
    let run = engine.client.start(hopeless, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    run.cancel("enough").await.unwrap();
    let _worker = engine.worker(hopeless).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && !error.is_maybe_attempted(), "its pause was not over: {error}");
    assert_eq!(ended_by_cancel(&engine, run.id()).await, (vec![0], vec![]));
    let views = engine.client.operations(run.id()).await.unwrap();
    assert_eq!((views[0].status, views[0].attempt_count), (OperationStatus::Cancelled, 1));
}

async fn a_step_that_a_lost_worker_may_have_attempted_says_so(engine: TestEngine) {
    let worker = engine.worker(one_step).await;
    let run = engine.client.start(one_step, ()).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    worker.crash();
    run.cancel("enough").await.unwrap();
    engine.clock.advance(super::test_engine::SESSION);
    let worker = engine.worker(one_step).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.is_maybe_attempted(), "{error}");
    assert_eq!((error.kind(), error.step()), (ErrorKind::MaybeAttempted, Some("blocked")));
    assert_eq!(ended_by_cancel(&engine, run.id()).await, (vec![0], vec![0]));
    assert_eq!(engine.steps.logged(), ["began work"], "it is not attempted again");
    let views = engine.client.operations(run.id()).await.unwrap();
    assert_eq!(views[0].status, OperationStatus::Cancelled);
    assert_eq!(views[0].failure.as_ref().unwrap().kind, outlast::core::FailureKind::MaybeAttempted);
    worker.stop().await.unwrap();
}

async fn a_retry_that_a_lost_worker_may_have_begun_says_so(engine: TestEngine) {
    #[workflow]
    async fn hopeless(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(99).await
    }
    let worker = engine.worker(hopeless).await;
    let run = engine.client.start(hopeless, ()).await.unwrap();
    engine.settle().await;
    worker.crash();
    // The retry pause of a second is over when the next worker starts.
    engine.clock.advance("5s");
    run.cancel("enough").await.unwrap();
    let _worker = engine.worker(hopeless).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_maybe_attempted(), "{error}");
    assert_eq!(
        (error.attempts(), engine.steps.count("flaky")),
        (1, 1),
        "one attempt is known to have failed"
    );
    assert_eq!(ended_by_cancel(&engine, run.id()).await, (vec![0], vec![0]));
}

async fn a_run_that_ignores_the_cancel_is_stuck_until_its_code_is_fixed(engine: TestEngine) {
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
    let worker = engine.worker_of_build("old", deaf).await;
    let run = engine.client.start(deaf, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    engine.wait_for_status(run.id(), Status::Stuck).await;
    let stuck = engine.view(run.id()).await.stuck.unwrap();
    assert_eq!(stuck.reason, StuckReason::IgnoresCancel);
    assert!(stuck.message.contains("return the error instead of continuing"), "{}", stuck.message);
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("new", mended).await;
    engine.wait_for_status(run.id(), Status::Cancelled).await;
}

async fn no_attempt_begins_after_the_cancel_that_came_with_its_announcement(engine: TestEngine) {
    #[workflow]
    async fn asks(ctx: Context) -> Result<String, Error> {
        ctx.hook::<u32>("go").await?;
        ctx.note("too late").await
    }
    let worker = engine.worker(asks).await;
    let run = engine.client.start(asks, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    // One turn receives both.
    engine.send(run.id(), "go", 1).await;
    run.cancel("enough").await.unwrap();
    let _worker = engine.worker(asks).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && !error.is_maybe_attempted(), "{error}");
    assert_eq!(ended_by_cancel(&engine, run.id()).await, (vec![1], vec![]));
    assert_eq!(engine.steps.logged(), Vec::<String>::new());
}

async fn cancel_of_an_ended_run_says_how_it_ended(engine: TestEngine) {
    let _worker = engine.worker(saver).await;
    let run = engine.client.start(saver, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    let before = engine.history(run.id()).await;
    assert_eq!(run.cancel("late").await.unwrap(), Cancel::AlreadyEnded(Status::Completed));
    assert_eq!(engine.history(run.id()).await, before);
}

async fn cancel_of_an_unknown_run_is_refused(engine: TestEngine) {
    let error = engine.client.cancel(RunId::from_bits(7), "who").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

async fn a_cancel_survives_a_crash(engine: TestEngine) {
    let worker = engine.worker(cleaning).await;
    let run = engine.client.start(cleaning, ()).await.unwrap();
    engine.settle().await;
    worker.crash();
    run.cancel("enough").await.unwrap();
    engine.clock.advance(super::test_engine::SESSION);
    let worker = engine.worker(cleaning).await;
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.worker(cleaning).await;
    engine.advance("2h").await;
    engine.send(run.id(), "signed", 1).await;
    assert!(run.output().await.unwrap_err().is_cancelled());
    assert_eq!(engine.history(run.id()).await.matches("cancel_requested").count(), 1);
}
