//! BF, many children: the ends of 20,000 children of one parent, and the latency of an unrelated run meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outlast::World;
use outlast::prelude::*;

use super::count_workflow::{add_one, count, count_at_once};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::percentile;
use crate::stopwatch::Stopwatch;

const CHILDREN: usize = 20_000;

/// Steps of each child, and of each independent run.
const STEPS: u64 = 1;

/// The queue of the runs that have nothing to do with the children.
const UNRELATED_QUEUE: &str = "apart";

/// Ends of children, and the latency of a run that has nothing to do with them.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BF",
    name: "many-children",
    what: "a parent with 20,000 children of one step: their ends, and an unrelated run that sleeps for 5 ms",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres, WorldKind::Memory],
    rows: &[
        Row {
            id: "BF latency",
            what: "an unrelated run with a sleep of 5 ms beside 20,000 children, start to result, p99",
            unit: "ms",
            target: Target::AtMost(250.0).everywhere(),
        },
        Row {
            id: "BF ends",
            what: "children that end per second; x the rate of independent runs",
            unit: "1/s",
            target: Target::AtLeast(0.5).everywhere(),
        },
    ],
    run,
};

/// Starts children, and awaits them all.
#[workflow]
async fn family(ctx: Context, children: usize) -> Result<u64, Error> {
    let started: Vec<_> = (0..children).map(|_| ctx.child(count, STEPS)).collect();
    let mut sum = 0;
    for child in started {
        sum += child.await?;
    }
    Ok(sum)
}

/// Sleeps for a moment.
#[workflow]
async fn nap(ctx: Context) -> Result<(), Error> {
    ctx.sleep("5ms").await
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let (latency_ms, children_per_second, runs_per_second) = block_on(async {
        let world: Arc<dyn World> = env.open().await?;
        let worker = Worker::builder(world.clone()).register((count, add_one, family)).start().await?;
        // Another worker: what is measured is the world, not the queue of children in front of the run.
        let apart = Worker::builder(world.clone()).queues([UNRELATED_QUEUE]).register(nap).start().await?;
        let client = Client::new(world);
        let watch = Stopwatch::start();
        count_at_once(&client, CHILDREN, STEPS).await?;
        let runs_per_second = CHILDREN as f64 / watch.seconds();
        let is_over = Arc::new(AtomicBool::new(false));
        let naps = tokio::spawn(nap_until(client.clone(), is_over.clone()));
        let watch = Stopwatch::start();
        let sum = client.start(family, CHILDREN).await?.output().await?;
        let children_per_second = CHILDREN as f64 / watch.seconds();
        is_over.store(true, Ordering::Relaxed);
        let naps = naps.await??;
        worker.stop().await?;
        apart.stop().await?;
        if sum != CHILDREN as u64 * STEPS {
            return Err(format!("{CHILDREN} children returned the sum {sum}").into());
        }
        Ok((percentile(&naps, 99), children_per_second, runs_per_second))
    })?;
    Ok(vec![
        Measurement::absolute(latency_ms),
        Measurement::relative(children_per_second, children_per_second / runs_per_second),
    ])
}

/// Runs that sleep, one after the other; returns how long each took in milliseconds.
async fn nap_until(client: Client, is_over: Arc<AtomicBool>) -> Result<Vec<f64>> {
    let mut naps = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let watch = Stopwatch::start();
        client.start(nap, ()).queue(UNRELATED_QUEUE).await?.output().await?;
        naps.push(watch.seconds() * 1e3);
    }
    Ok(naps)
}
