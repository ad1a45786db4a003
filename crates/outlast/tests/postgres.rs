//! The engine on Postgres, opened by its URL.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outlast::prelude::*;

/// A schema of its own on the server for tests.
fn place() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let server = throwaway::postgres::for_tests();
    let joint = if server.contains('?') { '&' } else { '?' };
    format!("{server}{joint}schema=engine_{}_{number}", std::process::id())
}

#[step]
async fn double(number: u64) -> Result<u64, StepError> {
    Ok(number * 2)
}

#[workflow]
async fn leaf(ctx: Context, number: u64) -> Result<u64, Error> {
    ctx.step(double, number).await
}

#[workflow]
async fn tree(ctx: Context, number: u64) -> Result<u64, Error> {
    let doubled = ctx.step(double, number).await?;
    ctx.sleep("20ms").await?;
    let added = ctx.hook::<u64>("more").await?;
    ctx.child(leaf, doubled + added).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_through_steps_timers_hooks_and_children() {
    let url = place();
    let world = outlast::open(&url).await.unwrap();
    let worker = Worker::builder(world.clone()).register((tree, leaf, double)).start().await.unwrap();
    let client = Client::new(world);
    let run = client.start(tree, 4).key("k").await.unwrap();
    run.send("more", &1).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 18);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_hears_of_a_start_and_of_an_end_without_polling() {
    let url = place();
    let here = outlast::open(&url).await.unwrap();
    let there = outlast::open(&url).await.unwrap();
    let worker = Worker::builder(there).register((leaf, double)).start().await.unwrap();
    let client = Client::new(here);
    // The first one makes the connections.
    client.start(leaf, 1).await.unwrap().output().await.unwrap();
    let began = Instant::now();
    for number in 0..20 {
        assert_eq!(client.start(leaf, number).await.unwrap().output().await.unwrap(), number * 2);
    }
    // The slow poll alone would take two seconds each time.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_runs_are_carried_by_two_workers_and_each_ends_once() {
    let url = place();
    let (first, second) = (outlast::open(&url).await.unwrap(), outlast::open(&url).await.unwrap());
    let one = Worker::builder(first.clone()).register((leaf, double)).start().await.unwrap();
    let two = Worker::builder(second).register((leaf, double)).start().await.unwrap();
    let client = Client::new(first);
    let mut runs = Vec::new();
    for number in 0..200 {
        runs.push(client.start(leaf, number).await.unwrap());
    }
    for (number, run) in (0..).zip(runs) {
        assert_eq!(run.output().await.unwrap(), number * 2);
    }
    let counts = client.counts().await.unwrap();
    assert_eq!(counts.values().sum::<u64>(), 200, "{counts:?}");
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}
