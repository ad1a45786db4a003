//! Workflows that are crashed at every commit.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outlast::prelude::*;
use outlast_testkit::{TestWorld, torture};

const REVIEW: Hook<bool> = Hook::new("review");

#[step]
async fn charge(cents: u64) -> Result<u64, StepError> {
    Ok(cents)
}

#[step]
async fn pack(item: u32) -> u32 {
    item
}

#[workflow]
async fn parcel(ctx: Context, item: u32) -> Result<u32, Error> {
    ctx.sleep("2d").await?;
    ctx.step(pack, item).await
}

#[workflow]
async fn order(ctx: Context, cents: u64) -> Result<(u64, u32), Error> {
    let paid = ctx.step(charge, cents).await?;
    if !ctx.hook(REVIEW).timeout("3d").await? {
        return Err(Error::msg("refused"));
    }
    let (a, b) = try_join!(ctx.child(parcel, 1), ctx.child(parcel, 2))?;
    ctx.sleep("365d").await?;
    Ok((paid, a + b))
}

#[tokio::test]
async fn a_sound_workflow_survives_a_crash_at_every_commit() {
    let report = torture(order, 42).register((parcel, charge, pack)).answer_after("1d", REVIEW, &true).await;
    assert!(report.commits() >= 8 && report.crashes() >= 2 * report.commits() - 2, "{report}");
    assert!(report.to_string().starts_with("workflow `order`: "), "{report}");
    // A failure is an end like others.
    torture(order, 42).register((parcel, charge, pack)).answer(REVIEW, &false).await;
    torture(order, 42).register((parcel, charge, pack)).cancel_after("2d", "too late").await;
}

#[tokio::test]
async fn it_is_the_same_on_sqlite() {
    torture(order, 42)
        .world(|| TestWorld::builder().register((order, parcel, charge, pack)).on_sqlite())
        .answer(REVIEW, &true)
        .await;
}

/// The message with which a torture panics.
async fn failure(torture: impl Future + 'static) -> String {
    let local = async move { tokio::task::spawn_local(async { drop(torture.await) }).await };
    let joined = tokio::task::LocalSet::new().run_until(local).await;
    joined.unwrap_err().into_panic().downcast_ref::<String>().unwrap().clone()
}

/// Counts payments, and does not recognize a repeated request.
#[derive(Clone, Default)]
struct ForgetfulBank(Arc<AtomicU32>);

#[step(name = "pay")]
async fn pay(cx: StepContext<ForgetfulBank>) -> u32 {
    cx.state().0.fetch_add(1, Ordering::Relaxed) + 1
}

#[workflow]
async fn pays_once(ctx: Context) -> Result<u32, Error> {
    let payments = ctx.step(pay, ()).await?;
    ctx.sleep("1d").await?;
    Ok(payments)
}

#[tokio::test]
async fn a_step_that_pays_twice_is_found() {
    let message = failure(async {
        let world = || TestWorld::builder().state(ForgetfulBank::default()).register((pays_once, pay));
        torture(pays_once, ()).world(world).await
    })
    .await;
    assert!(message.contains("torture of workflow `pays_once` at "), "{message}");
    assert!(message.contains("tests/torture.rs:"), "{message}");
    assert!(
        message.contains("with a crash before commit 2 (step_completed 0, timer_started 1)"),
        "{message}"
    );
    assert!(
        message.contains("only undisturbed:\n    `pays_once` requests step `pay` null -> completed 1"),
        "{message}"
    );
    assert!(
        message.contains("only with the crash:\n    `pays_once` requests step `pay` null -> completed 2"),
        "{message}"
    );
}

#[tokio::test]
async fn effects_outside_the_world_are_checked_after_each_run() {
    let message = failure(async {
        let bank = ForgetfulBank::default();
        let state = bank.clone();
        torture(pays_once, ())
            .world(move || TestWorld::builder().state(state.clone()).register((pays_once, pay)))
            .ignore_values()
            .after_each(move || assert_eq!(bank.0.swap(0, Ordering::Relaxed), 1, "payments"))
            .await
    })
    .await;
    assert!(
        message.contains("with a crash before commit 2 (step_completed 0, timer_started 1), the check"),
        "{message}"
    );
    assert!(message.contains("payments"), "{message}");
}

static LIVES: AtomicU32 = AtomicU32::new(0);

#[workflow]
async fn depends_on_the_process(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await?;
    // As a global variable would: the code does something else when it runs again.
    if LIVES.fetch_add(1, Ordering::Relaxed) > 0 {
        ctx.hook::<()>("again").timeout("1h").await?;
    }
    ctx.sleep("1d").await
}

#[tokio::test]
async fn code_that_is_not_deterministic_is_found_without_a_crash() {
    let message = failure(async { torture(depends_on_the_process, ()).await }).await;
    assert!(message.contains("without a crash, the run does not end"), "{message}");
    assert!(
        message.contains("diverged at operation") || message.contains("differs after a replay"),
        "{message}"
    );
}

#[step(at_most_once)]
async fn launch() -> String {
    "in orbit".to_owned()
}

#[workflow]
async fn mission(ctx: Context) -> Result<String, Error> {
    ctx.step(launch, ()).await
}

#[tokio::test]
async fn an_unknown_outcome_is_a_difference_unless_it_is_accepted() {
    let message = failure(async { torture(mission, ()).register(launch).await }).await;
    assert!(message.contains("only with the crash:"), "{message}");
    torture(mission, ())
        .register(launch)
        .accept(|outcome| outcome.as_ref().is_err_and(|error| error.kind() == outlast::ErrorKind::Unknown))
        .await;
}

#[tokio::test]
async fn answers_must_be_needed_and_missing_ones_are_explained() {
    let message = failure(async {
        let torture = torture(order, 42).register((parcel, charge, pack));
        torture.answer(REVIEW, &true).answer("reviwe", &true).await
    })
    .await;
    assert!(message.contains("without waiting for the answer to hook `reviwe`"), "{message}");
    #[workflow]
    async fn waits(ctx: Context) -> Result<(), Error> {
        ctx.hook("never").await
    }
    let message = failure(async { torture(waits, ()).await }).await;
    assert!(message.contains("hook `never`"), "{message}");
}

#[tokio::test]
async fn runs_that_differ_without_a_crash_are_reported_as_such() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let counts = |_: u64| Ok(u64::from(CALLS.fetch_add(1, Ordering::Relaxed)));
    #[workflow]
    async fn pays(ctx: Context) -> Result<u64, Error> {
        ctx.step(charge, 1).await
    }
    let message = failure(async move { torture(pays, ()).mock(charge, counts).await }).await;
    assert!(message.contains("two undisturbed runs differ"), "{message}");
    torture(pays, ()).mock(charge, counts).ignore_values().await;
}

#[step]
async fn import_page(page: u64) -> Result<u64, StepError> {
    Ok(page % 3)
}

/// Imports pages until one is empty.
#[workflow]
async fn import(ctx: Context, first: u64) -> Result<u64, Error> {
    ctx.sleep("1s").await?;
    ctx.iterate("pages", (first, 0_u64), async |ctx, (page, rows)| {
        let more = ctx.step(import_page, page).await?;
        ctx.sleep("1m").await?;
        if more == 0 { Ok(Next::Done(rows)) } else { Ok(Next::Again((page + 1, rows + more))) }
    })
    .await
}

#[tokio::test]
async fn a_loop_survives_a_crash_at_every_commit_point() {
    torture(import, 1).register(import_page).await;
}
