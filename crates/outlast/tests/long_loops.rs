//! A loop of many iterations: its history stays short, and a new worker continues it at once.
//!
//! By default 3,000 iterations. `OUTLAST_LONG_LOOP=1000000` sets their number.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outlast::core::Clock;
use outlast::core::limits::SKIPPED_EVENTS_DELETED;
use outlast::prelude::*;
use outlast::{SystemClock, World};
use tempfile::TempDir;

/// What the history may have beside the events that are skipped and not deleted yet.
const EVENTS_KEPT_MAX: usize = 200;

/// The time within which a new worker continues the loop.
const RESTART_TIME_MAX: Duration = Duration::from_secs(1);

/// The number of attempts so far.
type Attempts = Arc<AtomicU64>;

#[step]
async fn count(cx: StepContext<Attempts>, done: u64) -> u64 {
    cx.state().fetch_add(1, Ordering::SeqCst);
    done + 1
}

#[workflow]
async fn child_of_a_loop(ctx: Context) -> Result<(), Error> {
    ctx.hook("end").await
}

/// The first iteration starts a child that ends much later.
#[workflow]
async fn counts(ctx: Context, of: u64) -> Result<u64, Error> {
    let total = ctx.iterate("count", 0, async |ctx: Context, done: u64| {
        if done == 0 {
            let child = ctx.child(child_of_a_loop, ()).key("child").abandon();
            child.await?;
        }
        let done = ctx.step(count, done).await?;
        Ok(if done == of { Next::Done(done) } else { Next::Again(done) })
    });
    total.await
}

async fn worker(world: &Arc<dyn World>, attempts: &Attempts) -> Worker {
    let builder = Worker::builder(world.clone()).state(attempts.clone());
    builder.register((counts, count, child_of_a_loop)).start().await.unwrap()
}

async fn wait_for(attempts: &Attempts, count: u64) {
    while attempts.load(Ordering::SeqCst) < count {
        SystemClock.sleep_until(SystemClock.now().plus(Duration::from_millis(1))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_of_many_iterations_has_a_short_history_and_continues_at_once() {
    let iterations = std::env::var("OUTLAST_LONG_LOOP").map_or(3_000, |text| text.parse().unwrap());
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}/runs.db", folder.path().display());
    let world = outlast::open(&url).await.unwrap();
    let (client, attempts) = (Client::new(world.clone()), Attempts::default());
    let first = worker(&world, &attempts).await;
    let run = client.start(counts, iterations).await.unwrap();
    wait_for(&attempts, iterations / 2).await;
    // A child of an early iteration ends, and reaches no operation of a later one.
    client.by_key("child").send("end", &()).await.unwrap();
    first.stop().await.unwrap();
    let began = SystemClock.now();
    let before = attempts.load(Ordering::SeqCst);
    let _second = worker(&world, &attempts).await;
    wait_for(&attempts, before + 1).await;
    let restart = SystemClock.now().since(began);
    assert_eq!(run.output().await.unwrap(), iterations);
    // One attempt may have been repeated.
    assert!(attempts.load(Ordering::SeqCst) <= iterations + 1);
    let events = client.events(run.id()).await.unwrap().len();
    println!(
        "{iterations} iterations: {events} events are left, and a new worker continued after {restart:?}"
    );
    assert!(events <= SKIPPED_EVENTS_DELETED as usize + EVENTS_KEPT_MAX, "{events} events");
    assert!(restart < RESTART_TIME_MAX, "a new worker continued after {restart:?}");
}
