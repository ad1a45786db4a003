//! Stuck: a turn that ends without a decision loses nothing, and mended code goes on.

use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::task::Poll;

use outlast::prelude::*;
use outlast::{ErrorKind, RunId, Status, StuckReason};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::rig::{Ask, Desk, Rig, on_every_world, trace, traces};

on_every_world! {
    code_that_alternates_is_found_out_before_it_waits,
    a_divergence_names_the_operation_the_history_and_the_code,
    code_that_asks_for_less_than_history_has_diverges,
    a_mended_build_goes_on_after_a_divergence,
    a_renamed_step_does_not_diverge,
    a_panic_in_workflow_code_is_stuck_and_a_mended_build_goes_on,
    a_panic_in_the_first_turn_leaves_the_start_alone,
    what_a_step_came_to_is_kept_when_the_line_after_it_panics,
    what_was_attempted_at_most_once_is_known_after_the_mend,
    what_a_step_came_to_goes_to_those_who_asked_for_it,
    waiting_with_no_operation_open_is_a_foreign_await,
    a_foreign_wake_while_a_step_is_under_way_is_found,
    a_foreign_wake_of_a_released_run_is_found_when_it_goes_on,
    a_wake_by_another_thread_during_a_poll_is_foreign,
    a_step_that_is_not_registered_is_named,
    whoever_waits_for_a_stuck_run_is_told_why,
    a_resumed_run_is_tried_again_by_the_same_build,
    a_run_that_is_not_there_is_not_resumed,
    the_same_build_does_not_try_again_by_itself,
    a_message_to_a_stuck_run_is_kept_and_delivered_after,
    a_stuck_run_can_be_cancelled_after_it_was_mended,
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

/// A trip that waits for its hook after build `a`, and was told by another build.
async fn diverged_trip(rig: &Rig) -> RunHandle<u32> {
    let worker = rig.worker_of_build("a", trip).await;
    let run = rig.client.start(trip, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    rig.send(run.id(), "x", 10).await;
    run
}

async fn a_divergence_names_the_operation_the_history_and_the_code(rig: Rig) {
    let run = diverged_trip(&rig).await;
    let before = rig.history(run.id()).await;
    let _worker = rig.worker_of_build("b", trip_with_refund).await;
    rig.settle().await;
    let stuck = rig.stuck(run.id()).await;
    assert_eq!((stuck.reason, &*stuck.build), (StuckReason::Diverged, "b"));
    let expected = "diverged at operation 0: history has step `reserve`, code asked for step `refund`";
    assert!(
        stuck.message.contains(expected) && stuck.message.contains(&run.id().to_string()),
        "{}",
        stuck.message
    );
    assert_eq!(rig.history(run.id()).await, before, "history is untouched");
    assert_eq!(rig.view(run.id()).await.consumed, 0, "nothing is consumed");
}

async fn code_that_asks_for_less_than_history_has_diverges(rig: Rig) {
    let run = diverged_trip(&rig).await;
    let _worker = rig.worker_of_build("b", trip_without_hook).await;
    rig.settle().await;
    let stuck = rig.stuck(run.id()).await;
    let expected = "history has hook `x`, code asked for the run's completion";
    assert!(stuck.message.contains(expected), "{}", stuck.message);
}

async fn a_mended_build_goes_on_after_a_divergence(rig: Rig) {
    let run = diverged_trip(&rig).await;
    let bad = rig.worker_of_build("b", trip_with_refund).await;
    rig.settle().await;
    rig.stuck(run.id()).await;
    let _good = rig.worker_of_build("c", trip).await;
    assert_eq!(rig.mended(&run).await, 11);
    assert!(rig.view(run.id()).await.stuck.is_none());
    bad.stop().await.unwrap();
}

async fn a_renamed_step_does_not_diverge(rig: Rig) {
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
    let worker = rig.worker_of_build("a", (before, old_name)).await;
    let run = rig.client.start(before, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    let _worker = rig.worker_of_build("b", (after, new_name)).await;
    rig.send(run.id(), "x", 10).await;
    assert_eq!(rig.mended(&run).await, 11);
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

async fn a_panic_in_workflow_code_is_stuck_and_a_mended_build_goes_on(rig: Rig) {
    let worker = rig.worker_of_build("a", panics_late).await;
    let run = rig.client.start(panics_late, ()).await.unwrap();
    rig.settle().await;
    rig.send(run.id(), "x", 7).await;
    rig.settle().await;
    let stuck = rig.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Panicked);
    assert!(stuck.message.contains("no room for 7"), "{}", stuck.message);
    worker.stop().await.unwrap();
    let _worker = rig.worker_of_build("b", panics_no_more).await;
    assert_eq!(rig.mended(&run).await, 7);
    assert_eq!(rig.desk.count("before"), 1, "what was recorded does not run again");
}

async fn a_panic_in_the_first_turn_leaves_the_start_alone(rig: Rig) {
    #[workflow(name = "born")]
    async fn born_broken(_ctx: Context) -> Result<u32, Error> {
        panic!("not today")
    }
    #[workflow(name = "born")]
    async fn born_well(_ctx: Context) -> Result<u32, Error> {
        Ok(7)
    }
    let _bad = rig.worker_of_build("a", born_broken).await;
    let run = rig.client.start(born_broken, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::Panicked);
    rig.assert_history(run.id(), "").await;
    let _good = rig.worker_of_build("b", born_well).await;
    assert_eq!(rig.mended(&run).await, 7);
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

async fn what_a_step_came_to_is_kept_when_the_line_after_it_panics(rig: Rig) {
    let worker = rig.worker_of_build("a", shop_that_panics).await;
    let run = rig.client.start(shop_that_panics, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::Panicked);
    let before = rig.history(run.id()).await;
    assert!(!before.contains("step_completed"), "{before}");
    worker.stop().await.unwrap();
    let _worker = rig.worker_of_build("b", shop_that_goes_on).await;
    assert_eq!(rig.mended(&run).await, "paid, shipped");
    assert_eq!(rig.desk.notes(), ["paid", "shipped"], "the step is not attempted again");
    rig.assert_history(
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
async fn charge(cx: StepContext<Desk>, (): ()) -> u32 {
    cx.state().leave("charged");
    7
}

async fn what_was_attempted_at_most_once_is_known_after_the_mend(rig: Rig) {
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
    rig.inner_clock.set_back(-60);
    let worker = rig.worker_of_build("a", (broken_till, charge)).await;
    let run = rig.client.start(broken_till, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::Panicked);
    worker.stop().await.unwrap();
    let _worker = rig.worker_of_build("b", (mended_till, charge)).await;
    assert_eq!(rig.mended(&run).await, 7, "not unknown");
    assert_eq!(rig.desk.count("charged"), 1);
}

/// The turn that got stuck had asked for a second step that failed at once. The mended code asks for another one in
/// its place, which that failure does not concern.
async fn what_a_step_came_to_goes_to_those_who_asked_for_it(rig: Rig) {
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
    let worker = rig.worker_of_build("a", hasty_desk).await;
    let run = rig.client.start(hasty_desk, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::Panicked);
    worker.stop().await.unwrap();
    let _worker = rig.worker_of_build("b", patient_desk).await;
    assert_eq!(rig.mended(&run).await, "second");
    assert_eq!(rig.desk.notes(), ["first", "second"]);
}

async fn waiting_with_no_operation_open_is_a_foreign_await(rig: Rig) {
    #[workflow]
    async fn waits_for_nothing(ctx: Context) -> Result<(), Error> {
        ctx.note("before").await?;
        pending().await
    }
    let _worker = rig.worker(waits_for_nothing).await;
    let run = rig.client.start(waits_for_nothing, ()).await.unwrap();
    rig.settle().await;
    let stuck = rig.stuck(run.id()).await;
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
            // Of a future that was dropped since, the receiver is gone.
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

async fn a_foreign_wake_while_a_step_is_under_way_is_found(rig: Rig) {
    let _worker = rig.worker(foreign_beside_a_step).await;
    let run = rig.client.start(foreign_beside_a_step, ()).await.unwrap();
    rig.desk.until("began slow", 1).await;
    send_from_another_thread(run.id());
    // What is being attempted is awaited first.
    rig.desk.open("slow");
    rig.until(run.id(), Status::Stuck).await;
    let stuck = rig.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::ForeignAwait);
    assert!(stuck.message.contains("not an operation"), "{}", stuck.message);
}

async fn a_foreign_wake_of_a_released_run_is_found_when_it_goes_on(rig: Rig) {
    #[workflow(unchecked = "the test is about a foreign await")]
    async fn foreign_beside_a_hook(ctx: Context) -> Result<(), Error> {
        let (sender, receiver) = oneshot::channel();
        SENDERS.lock().push((ctx.run(), sender));
        let (hook, _) = join!(ctx.hook::<u32>("x"), receiver);
        hook.map(drop)
    }
    let _worker = rig.caching().register(foreign_beside_a_hook).start().await.unwrap();
    let run = rig.client.start(foreign_beside_a_hook, ()).await.unwrap();
    rig.settle().await;
    send_from_another_thread(run.id());
    rig.settle().await;
    rig.send(run.id(), "x", 7).await;
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::ForeignAwait);
}

async fn a_wake_by_another_thread_during_a_poll_is_foreign(rig: Rig) {
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
    let _worker = rig.worker(woken_by_a_thread).await;
    let run = rig.client.start(woken_by_a_thread, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::ForeignAwait);
}

async fn a_step_that_is_not_registered_is_named(rig: Rig) {
    const ELSEWHERE: Step<u32, u32> = Step::new("elsewhere");
    #[step(name = "elsewhere")]
    async fn elsewhere(cx: StepContext<Desk>, n: u32) -> u32 {
        cx.state().leave("elsewhere");
        n + 1
    }
    #[workflow]
    async fn far(ctx: Context) -> Result<u32, Error> {
        ctx.note("near").await?;
        ctx.step(ELSEWHERE, 1).await
    }
    let _without = rig.worker_of_build("a", far).await;
    let run = rig.client.start(far, ()).await.unwrap();
    rig.settle().await;
    let stuck = rig.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::StepNotRegistered);
    assert!(
        stuck.message.contains("step `elsewhere`") && stuck.message.contains(".register("),
        "{}",
        stuck.message
    );
    rig.assert_history(run.id(), "0 step_started note").await;
    let _with = rig.worker_of_build("b", (far, elsewhere)).await;
    assert_eq!(rig.mended(&run).await, 2);
}

/// Panics until the test says otherwise: code that is mended without a new build.
#[workflow]
async fn mendable(ctx: Context) -> Result<u32, Error> {
    trace(ctx.run(), "began");
    if traces(ctx.run(), "mended") == 0 {
        panic!("broken");
    }
    ctx.hook::<u32>("x").await
}

async fn whoever_waits_for_a_stuck_run_is_told_why(rig: Rig) {
    let _worker = rig.worker(mendable).await;
    let run = rig.client.start(mendable, ()).await.unwrap();
    rig.settle().await;
    for error in [run.output().await.unwrap_err(), run.output_within("0s").await.unwrap_err()] {
        assert!(error.is_stuck() && error.message().contains("broken"), "{error}");
    }
}

async fn a_resumed_run_is_tried_again_by_the_same_build(rig: Rig) {
    let _worker = rig.worker(mendable).await;
    let run = rig.client.start(mendable, ()).await.unwrap();
    rig.settle().await;
    rig.client.resume(run.id()).await.unwrap();
    rig.settle().await;
    rig.stuck(run.id()).await;
    trace(run.id(), "mended");
    rig.client.resume(run.id()).await.unwrap();
    rig.send(run.id(), "x", 7).await;
    assert_eq!(rig.mended(&run).await, 7);
}

async fn a_run_that_is_not_there_is_not_resumed(rig: Rig) {
    let error = rig.client.resume(RunId::from_bits(7)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

async fn the_same_build_does_not_try_again_by_itself(rig: Rig) {
    let worker = rig.worker(mendable).await;
    let run = rig.client.start(mendable, ()).await.unwrap();
    rig.settle().await;
    let tries = traces(run.id(), "began");
    rig.send(run.id(), "x", 7).await;
    rig.pass("1h").await;
    worker.stop().await.unwrap();
    let _worker = rig.worker(mendable).await;
    rig.pass("1h").await;
    rig.stuck(run.id()).await;
    assert_eq!(traces(run.id(), "began"), tries);
}

async fn a_message_to_a_stuck_run_is_kept_and_delivered_after(rig: Rig) {
    let worker = rig.worker_of_build("a", mendable).await;
    let run = rig.client.start(mendable, ()).await.unwrap();
    rig.settle().await;
    rig.send(run.id(), "x", 7).await;
    rig.settle().await;
    rig.stuck(run.id()).await;
    worker.stop().await.unwrap();
    trace(run.id(), "mended");
    let _worker = rig.worker_of_build("b", mendable).await;
    assert_eq!(rig.mended(&run).await, 7);
}

async fn a_stuck_run_can_be_cancelled_after_it_was_mended(rig: Rig) {
    let run = diverged_trip(&rig).await;
    let bad = rig.worker_of_build("b", trip_with_refund).await;
    rig.settle().await;
    run.cancel("enough").await.unwrap();
    rig.settle().await;
    rig.stuck(run.id()).await;
    bad.stop().await.unwrap();
    let _good = rig.worker_of_build("c", trip).await;
    assert_eq!(rig.mended(&run).await, 11, "the payload came first");
}

async fn code_that_alternates_is_found_out_before_it_waits(rig: Rig) {
    #[workflow]
    async fn fickle(ctx: Context) -> Result<(), Error> {
        trace(ctx.run(), "fickle");
        if traces(ctx.run(), "fickle") % 2 == 1 { ctx.sleep("1h").await } else { ctx.hook::<()>("x").await }
    }
    let _worker = rig.worker(fickle).await;
    let run = rig.client.start(fickle, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::Diverged);
    rig.assert_history(run.id(), "").await;
}
