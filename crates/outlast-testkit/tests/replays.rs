//! Recorded histories as tests of the current code.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::panic::catch_unwind;
use std::sync::Arc;

use outlast::prelude::*;
use outlast_testkit::{TestClock, assert_replays};

#[step]
async fn charge(cents: u64) -> Result<u64, StepError> {
    Ok(cents)
}

#[workflow]
async fn order(ctx: Context, cents: u64) -> Result<u64, Error> {
    let charged = ctx.step(charge, cents).await?;
    ctx.sleep("3d").await?;
    Ok(charged)
}

#[workflow(name = "order")]
async fn hasty_order(ctx: Context, cents: u64) -> Result<u64, Error> {
    ctx.step(charge, cents).await
}

/// A folder with the histories of a run that sleeps and of one that has ended.
async fn recorded() -> tempfile::TempDir {
    let clock = TestClock::new();
    let world = outlast::open_with_clock("memory:", Arc::new(clock.clone())).await.unwrap();
    let client = Client::new(world.clone());
    let worker = Worker::builder(world).register((order, charge)).start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ended = client.start(order, 1).await.unwrap();
    clock.run_until_idle().await;
    let asleep = client.start(order, 2).await.unwrap();
    clock.settle().await;
    for (name, run) in [("asleep.json", asleep.id()), ("ended.json", ended.id())] {
        std::fs::write(folder.path().join(name), client.export(run).await.unwrap()).unwrap();
    }
    worker.stop().await.unwrap();
    folder
}

#[tokio::test]
async fn code_that_matches_replays_without_its_steps() {
    let folder = recorded().await;
    assert_replays(order, &format!("{}/*.json", folder.path().display()));
    assert_replays(order, &format!("{}/ended.json", folder.path().display()));
}

#[tokio::test]
async fn a_mismatch_is_reported_with_file_operation_and_line() {
    let folder = recorded().await;
    let files = format!("{}/*.json", folder.path().display());
    let panic = catch_unwind(|| assert_replays(hasty_order, &files)).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("asleep.json: run run_"), "{message}");
    assert!(message.contains("diverged at operation 1: history has timer 3d"), "{message}");
    assert!(message.contains(">   1  timer 3d"), "{message}");
}

#[workflow(name = "order", version = 2)]
async fn order_v2(_ctx: Context, cents: u64) -> Result<u64, Error> {
    Ok(cents)
}

#[tokio::test]
async fn missing_code_is_reported_with_the_given_code() {
    let folder = recorded().await;
    let files = format!("{}/*.json", folder.path().display());
    let panic = catch_unwind(|| assert_replays((order_v2, charge), &files)).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("is one of workflow `order`, version 1, and"), "{message}");
    assert!(message.contains("was given `order` version 2; give it that function as well"), "{message}");
    assert!(!message.contains("worker"), "{message}");
    assert_replays((order_v2, order), &files);
}

#[test]
fn no_file_is_no_proof() {
    let panic = catch_unwind(|| assert_replays(order, "nowhere/*.json")).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("there is no file `nowhere/*.json`"), "{message}");
}
