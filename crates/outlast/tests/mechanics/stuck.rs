//! Stuck: a stuck turn loses nothing, and fixed code continues the run.

use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::task::Poll;

use outlast::prelude::*;
use outlast::{ErrorKind, RunId, Status, StuckReason};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world, trace, traces};

on_every_world! {
    code_that_alternates_is_found_out_before_it_waits,
    a_divergence_names_the_operation_the_history_and_the_code,
    code_that_asks_for_less_than_history_has_diverges,
    a_fixed_build_continues_after_a_divergence,
    a_renamed_step_does_not_diverge,
    a_panic_in_workflow_code_is_stuck_and_a_fixed_build_continues,
    a_panic_in_the_first_turn_leaves_the_start_alone,
    the_outcome_of_a_step_is_kept_when_the_next_line_panics,
    an_at_most_once_outcome_is_known_after_the_fix,
    the_outcome_of_a_step_goes_to_its_own_operation,
    waiting_with_no_operation_open_is_a_foreign_await,
    a_foreign_wake_while_a_step_is_under_way_is_found,
    a_foreign_wake_of_a_released_run_is_found_when_it_continues,
    a_wake_by_another_thread_during_a_poll_is_foreign,
    a_step_that_is_not_registered_is_named,
    a_waiter_for_a_stuck_run_gets_the_reason,
    a_resumed_run_is_tried_again_by_the_same_build,
    a_run_that_is_not_there_is_not_resumed,
    the_same_build_does_not_try_again_by_itself,
    a_message_to_a_stuck_run_is_kept_and_delivered_after,
    a_stuck_run_can_be_cancelled_after_a_fix,
}

async fn reserve(ctx: &Context) -> Result<u32, Error> {
    ctx.call("reserve", 1, async |n| Ok::<u32, StepError>(n)).await
}

async fn refund(ctx: &Context) -> Result<u32, Error> {
    ctx.call("refund", 2, async |n| Ok::<u32, StepError>(n)).await
}

#[workflow(name = "trip")]
async fn trip(ctx: Context) -> Result<u32, Error> {
    let reserved = reserve(&ctx).await?;
    Ok(reserved + ctx.hook::<u32>("x").await?)
}

#[workflow(name = "trip")]
async fn trip_with_refund(ctx: Context) -> Result<u32, Error> {
    let reserved = refund(&ctx).await?;
    Ok(reserved + ctx.hook::<u32>("x").await?)
}

#[workflow(name = "trip")]
async fn trip_without_hook(ctx: Context) -> Result<u32, Error> {
    reserve(&ctx).await
}

/// A trip that waits for its hook after build `a`, and received a payload from another build.
async fn diverged_trip(engine: &TestEngine) -> RunHandle<u32> {
    let worker = engine.worker_of_build("a", trip).await;
    let run = engine.client.start(trip, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.send(run.id(), "x", 10).await;
    run
}

async fn a_divergence_names_the_operation_the_history_and_the_code(engine: TestEngine) {
    let run = diverged_trip(&engine).await;
    let before = engine.history(run.id()).await;
    let _worker = engine.worker_of_build("b", trip_with_refund).await;
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!((stuck.reason, &*stuck.build), (StuckReason::Diverged, "b"));
    let expected = "diverged at operation 0: history has step `reserve`, code asked for step `refund`";
    assert!(
        stuck.message.contains(expected) && stuck.message.contains(&run.id().to_string()),
        "{}",
        stuck.message
    );
    assert_eq!(engine.history(run.id()).await, before, "history is untouched");
    assert_eq!(engine.view(run.id()).await.consumed, 0, "nothing is consumed");
}

async fn code_that_asks_for_less_than_history_has_diverges(engine: TestEngine) {
    let run = diverged_trip(&engine).await;
    let _worker = engine.worker_of_build("b", trip_without_hook).await;
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    let expected = "history has hook `x`, code asked for the run's completion";
    assert!(stuck.message.contains(expected), "{}", stuck.message);
}

async fn a_fixed_build_continues_after_a_divergence(engine: TestEngine) {
    let run = diverged_trip(&engine).await;
    let bad = engine.worker_of_build("b", trip_with_refund).await;
    engine.settle().await;
    engine.stuck(run.id()).await;
    let _good = engine.worker_of_build("c", trip).await;
    assert_eq!(engine.output_after_fix(&run).await, 11);
    assert!(engine.view(run.id()).await.stuck.is_none());
    bad.stop().await.unwrap();
}

async fn a_renamed_step_does_not_diverge(engine: TestEngine) {
    #[step]
    async fn old_name() -> u32 {
        1
    }
    #[step(was = "old_name")]
    async fn new_name() -> u32 {
        2
    }
    #[workflow(name = "renamed")]
    async fn before(ctx: Context) -> Result<u32, Error> {
        Ok(ctx.step(old_name, ()).await? + ctx.hook::<u32>("x").await?)
    }
    #[workflow(name = "renamed")]
    async fn after(ctx: Context) -> Result<u32, Error> {
        Ok(ctx.step(new_name, ()).await? + ctx.hook::<u32>("x").await?)
    }
    let worker = engine.worker_of_build("a", (before, old_name)).await;
    let run = engine.client.start(before, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", (after, new_name)).await;
    engine.send(run.id(), "x", 10).await;
    assert_eq!(engine.output_after_fix(&run).await, 11);
}

#[workflow(name = "panics")]
async fn panics_late(ctx: Context) -> Result<u32, Error> {
    ctx.note("before").await?;
    let payload = ctx.hook::<u32>("x").await?;
    panic!("no room for {payload}");
}

#[workflow(name = "panics")]
async fn panics_no_more(ctx: Context) -> Result<u32, Error> {
    ctx.note("before").await?;
    ctx.hook::<u32>("x").await
}

async fn a_panic_in_workflow_code_is_stuck_and_a_fixed_build_continues(engine: TestEngine) {
    let worker = engine.worker_of_build("a", panics_late).await;
    let run = engine.client.start(panics_late, ()).await.unwrap();
    engine.settle().await;
    engine.send(run.id(), "x", 7).await;
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Panicked);
    assert!(stuck.message.contains("no room for 7"), "{}", stuck.message);
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", panics_no_more).await;
    assert_eq!(engine.output_after_fix(&run).await, 7);
    assert_eq!(engine.steps.count("before"), 1, "what was recorded does not run again");
}

async fn a_panic_in_the_first_turn_leaves_the_start_alone(engine: TestEngine) {
    #[workflow(name = "born")]
    async fn born_broken(_ctx: Context) -> Result<u32, Error> {
        panic!("not today")
    }
    #[workflow(name = "born")]
    async fn born_well(_ctx: Context) -> Result<u32, Error> {
        Ok(7)
    }
    let _bad = engine.worker_of_build("a", born_broken).await;
    let run = engine.client.start(born_broken, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Panicked);
    engine.assert_history(run.id(), "").await;
    let _good = engine.worker_of_build("b", born_well).await;
    assert_eq!(engine.output_after_fix(&run).await, 7);
}

#[workflow(name = "shop")]
async fn shop_that_panics(ctx: Context) -> Result<String, Error> {
    let paid = ctx.note("paid").await?;
    panic!("no receipt for {paid}");
}

#[workflow(name = "shop")]
async fn shop_that_goes_on(ctx: Context) -> Result<String, Error> {
    let paid = ctx.note("paid").await?;
    Ok(format!("{paid}, {}", ctx.note("shipped").await?))
}

async fn the_outcome_of_a_step_is_kept_when_the_next_line_panics(engine: TestEngine) {
    let worker = engine.worker_of_build("a", shop_that_panics).await;
    let run = engine.client.start(shop_that_panics, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Panicked);
    let before = engine.history(run.id()).await;
    assert!(!before.contains("step_completed"), "{before}");
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", shop_that_goes_on).await;
    assert_eq!(engine.output_after_fix(&run).await, "paid, shipped");
    assert_eq!(engine.steps.logged(), ["paid", "shipped"], "the step is not attempted again");
    engine
        .assert_history(
            run.id(),
            "0 step_started note
         0 step_completed \"paid\"
         1 step_started note
         1 step_completed \"shipped\"
         run_completed \"paid, shipped\"",
        )
        .await;
}

#[step(at_most_once)]
async fn charge(cx: StepContext<StepState>, (): ()) -> u32 {
    cx.state().log("charged");
    7
}

async fn an_at_most_once_outcome_is_known_after_the_fix(engine: TestEngine) {
    #[workflow(name = "till")]
    async fn broken_till(ctx: Context) -> Result<u32, Error> {
        let amount = ctx.step(charge, ()).await?;
        panic!("no drawer for {amount}");
    }
    #[workflow(name = "till")]
    async fn mended_till(ctx: Context) -> Result<u32, Error> {
        ctx.step(charge, ()).await
    }
    // The world's clock and the worker's need not agree.
    engine.inner_clock.set_back(-60);
    let worker = engine.worker_of_build("a", (broken_till, charge)).await;
    let run = engine.client.start(broken_till, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Panicked);
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", (mended_till, charge)).await;
    assert_eq!(engine.output_after_fix(&run).await, 7, "not unknown");
    assert_eq!(engine.steps.count("charged"), 1);
}

/// The stuck turn had requested a second step that failed at once. The fixed code requests another step in its place,
/// which must not get that failure.
async fn the_outcome_of_a_step_goes_to_its_own_operation(engine: TestEngine) {
    type Unwritable = BTreeMap<(u8, u8), u8>;
    #[workflow(name = "desk")]
    async fn hasty_desk(ctx: Context) -> Result<String, Error> {
        ctx.note("first").await?;
        let input = Unwritable::from([((1, 2), 3)]);
        let second = ctx.call("second", input, async |_: Unwritable| Ok::<(), StepError>(())).await;
        panic!("no patience: {second:?}");
    }
    #[workflow(name = "desk")]
    async fn patient_desk(ctx: Context) -> Result<String, Error> {
        ctx.note("first").await?;
        ctx.note("second").await
    }
    let worker = engine.worker_of_build("a", hasty_desk).await;
    let run = engine.client.start(hasty_desk, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Panicked);
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", patient_desk).await;
    assert_eq!(engine.output_after_fix(&run).await, "second");
    assert_eq!(engine.steps.logged(), ["first", "second"]);
}

async fn waiting_with_no_operation_open_is_a_foreign_await(engine: TestEngine) {
    #[workflow]
    async fn waits_for_nothing(ctx: Context) -> Result<(), Error> {
        ctx.note("before").await?;
        pending().await
    }
    let _worker = engine.worker(waits_for_nothing).await;
    let run = engine.client.start(waits_for_nothing, ()).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::ForeignAwait);
    assert!(stuck.message.contains("no operation is open") && stuck.message.contains("tokio::time"));
}

/// Channels whose senders are outside of their run.
static SENDERS: Mutex<Vec<(RunId, oneshot::Sender<()>)>> = Mutex::new(Vec::new());

/// Sends to the channels of a run from a thread that is not its worker's.
fn send_from_another_thread(run: RunId) {
    let thread = std::thread::spawn(move || {
        let (mine, others) = SENDERS.lock().drain(..).partition(|(of, _)| *of == run);
        *SENDERS.lock() = others;
        let mine: Vec<(RunId, oneshot::Sender<()>)> = mine;
        for (_, sender) in mine {
            // The receiver of a dropped future is gone.
            let _ = sender.send(());
        }
    });
    thread.join().unwrap();
}

#[workflow(unchecked = "the test is about a foreign await")]
async fn foreign_beside_a_step(ctx: Context) -> Result<(), Error> {
    let (sender, receiver) = oneshot::channel();
    SENDERS.lock().push((ctx.run(), sender));
    let (step, _) = join!(ctx.blocked("slow"), receiver);
    step.map(drop)
}

async fn a_foreign_wake_while_a_step_is_under_way_is_found(engine: TestEngine) {
    let _worker = engine.worker(foreign_beside_a_step).await;
    let run = engine.client.start(foreign_beside_a_step, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    send_from_another_thread(run.id());
    // Running attempts are awaited first.
    engine.steps.open("slow");
    engine.wait_for_status(run.id(), Status::Stuck).await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::ForeignAwait);
    assert!(stuck.message.contains("not an operation"), "{}", stuck.message);
}

async fn a_foreign_wake_of_a_released_run_is_found_when_it_continues(engine: TestEngine) {
    #[workflow(unchecked = "the test is about a foreign await")]
    async fn foreign_beside_a_hook(ctx: Context) -> Result<(), Error> {
        let (sender, receiver) = oneshot::channel();
        SENDERS.lock().push((ctx.run(), sender));
        let (hook, _) = join!(ctx.hook::<u32>("x"), receiver);
        hook.map(drop)
    }
    let _worker = engine.caching_builder().register(foreign_beside_a_hook).start().await.unwrap();
    let run = engine.client.start(foreign_beside_a_hook, ()).await.unwrap();
    engine.settle().await;
    send_from_another_thread(run.id());
    engine.settle().await;
    engine.send(run.id(), "x", 7).await;
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::ForeignAwait);
}

async fn a_wake_by_another_thread_during_a_poll_is_foreign(engine: TestEngine) {
    #[workflow(unchecked = "the test is about a foreign await")]
    async fn woken_by_a_thread(ctx: Context) -> Result<(), Error> {
        let mut was_polled = false;
        let hook = ctx.hook::<u32>("x");
        poll_fn(|cx| {
            if was_polled {
                return Poll::Ready(());
            }
            was_polled = true;
            let waker = cx.waker().clone();
            std::thread::spawn(move || waker.wake()).join().unwrap();
            Poll::Pending
        })
        .await;
        hook.await.map(drop)
    }
    let _worker = engine.worker(woken_by_a_thread).await;
    let run = engine.client.start(woken_by_a_thread, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::ForeignAwait);
}

async fn a_step_that_is_not_registered_is_named(engine: TestEngine) {
    const ELSEWHERE: Step<u32, u32> = Step::new("elsewhere");
    #[step(name = "elsewhere")]
    async fn elsewhere(cx: StepContext<StepState>, n: u32) -> u32 {
        cx.state().log("elsewhere");
        n + 1
    }
    #[workflow]
    async fn far(ctx: Context) -> Result<u32, Error> {
        ctx.note("near").await?;
        ctx.step(ELSEWHERE, 1).await
    }
    let _without = engine.worker_of_build("a", far).await;
    let run = engine.client.start(far, ()).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::StepNotRegistered);
    assert!(
        stuck.message.contains("step `elsewhere`") && stuck.message.contains(".register("),
        "{}",
        stuck.message
    );
    engine.assert_history(run.id(), "0 step_started note").await;
    let _with = engine.worker_of_build("b", (far, elsewhere)).await;
    assert_eq!(engine.output_after_fix(&run).await, 2);
}

/// Panics until the test ends that: code that is fixed without a new build.
#[workflow]
async fn mendable(ctx: Context) -> Result<u32, Error> {
    trace(ctx.run(), "began");
    if traces(ctx.run(), "mended") == 0 {
        panic!("broken");
    }
    ctx.hook::<u32>("x").await
}

async fn a_waiter_for_a_stuck_run_gets_the_reason(engine: TestEngine) {
    let _worker = engine.worker(mendable).await;
    let run = engine.client.start(mendable, ()).await.unwrap();
    engine.settle().await;
    for error in [run.output().await.unwrap_err(), run.output_within("0s").await.unwrap_err()] {
        assert!(error.is_stuck() && error.message().contains("broken"), "{error}");
    }
}

async fn a_resumed_run_is_tried_again_by_the_same_build(engine: TestEngine) {
    let _worker = engine.worker(mendable).await;
    let run = engine.client.start(mendable, ()).await.unwrap();
    engine.settle().await;
    engine.client.resume(run.id()).await.unwrap();
    engine.settle().await;
    engine.stuck(run.id()).await;
    trace(run.id(), "mended");
    engine.client.resume(run.id()).await.unwrap();
    engine.send(run.id(), "x", 7).await;
    assert_eq!(engine.output_after_fix(&run).await, 7);
}

async fn a_run_that_is_not_there_is_not_resumed(engine: TestEngine) {
    let error = engine.client.resume(RunId::from_bits(7)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

async fn the_same_build_does_not_try_again_by_itself(engine: TestEngine) {
    let worker = engine.worker(mendable).await;
    let run = engine.client.start(mendable, ()).await.unwrap();
    engine.settle().await;
    let tries = traces(run.id(), "began");
    engine.send(run.id(), "x", 7).await;
    engine.advance("1h").await;
    worker.stop().await.unwrap();
    let _worker = engine.worker(mendable).await;
    engine.advance("1h").await;
    engine.stuck(run.id()).await;
    assert_eq!(traces(run.id(), "began"), tries);
}

async fn a_message_to_a_stuck_run_is_kept_and_delivered_after(engine: TestEngine) {
    let worker = engine.worker_of_build("a", mendable).await;
    let run = engine.client.start(mendable, ()).await.unwrap();
    engine.settle().await;
    engine.send(run.id(), "x", 7).await;
    engine.settle().await;
    engine.stuck(run.id()).await;
    worker.stop().await.unwrap();
    trace(run.id(), "mended");
    let _worker = engine.worker_of_build("b", mendable).await;
    assert_eq!(engine.output_after_fix(&run).await, 7);
}

async fn a_stuck_run_can_be_cancelled_after_a_fix(engine: TestEngine) {
    let run = diverged_trip(&engine).await;
    let bad = engine.worker_of_build("b", trip_with_refund).await;
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    engine.settle().await;
    engine.stuck(run.id()).await;
    bad.stop().await.unwrap();
    let _good = engine.worker_of_build("c", trip).await;
    assert_eq!(engine.output_after_fix(&run).await, 11, "the payload came first");
}

async fn code_that_alternates_is_found_out_before_it_waits(engine: TestEngine) {
    #[workflow]
    async fn fickle(ctx: Context) -> Result<(), Error> {
        trace(ctx.run(), "fickle");
        if traces(ctx.run(), "fickle") % 2 == 1 { ctx.sleep("1h").await } else { ctx.hook::<()>("x").await }
    }
    let _worker = engine.worker(fickle).await;
    let run = engine.client.start(fickle, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Diverged);
    engine.assert_history(run.id(), "").await;
}
