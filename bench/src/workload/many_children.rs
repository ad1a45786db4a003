//! BF, many children: the ends of 20,000 children of one parent, and the latency of unrelated runs meanwhile.

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

/// The queue of the unrelated runs that another worker executes.
const OTHER_QUEUE: &str = "other";

/// Ends of children, and the latency of runs that have nothing to do with them.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BF",
    name: "many-children",
    what: "a parent with 20,000 children of one step: their ends, and unrelated runs that sleep for 5 ms",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres, WorldKind::Memory],
    rows: &[
        Row {
            id: "BF latency",
            what: "an unrelated run with a sleep of 5 ms on the worker and queue of 20,000 children, p99",
            unit: "ms",
            target: Target::AtMost(250.0).everywhere(),
        },
        Row {
            id: "BF slowest",
            what: "the slowest of these runs",
            unit: "ms",
            target: Target::Unlimited.everywhere(),
        },
        Row {
            id: "BF other queue",
            what: "such a run in another queue, which another worker serves, p99",
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
    let figures = block_on(measure(env))?;
    Ok(vec![
        Measurement::absolute(percentile(&figures.naps, 99)),
        Measurement::absolute(percentile(&figures.naps, 100)),
        Measurement::absolute(percentile(&figures.naps_elsewhere, 99)),
        Measurement::relative(
            figures.children_per_second,
            figures.children_per_second / figures.runs_per_second,
        ),
    ])
}

/// What one round has measured.
struct Figures {
    /// The unrelated runs on the worker of the children, in milliseconds.
    naps: Vec<f64>,
    /// The unrelated runs in another queue, in milliseconds.
    naps_elsewhere: Vec<f64>,
    children_per_second: f64,
    runs_per_second: f64,
}

async fn measure(env: &Environment) -> Result<Figures> {
    let world: Arc<dyn World> = env.open().await?;
    let worker = Worker::builder(world.clone()).register((count, add_one, family, nap)).start().await?;
    let other = Worker::builder(world.clone()).queues([OTHER_QUEUE]).register(nap).start().await?;
    let client = Client::new(world);
    // The unrelated runs cost the same in both parts, so that the rates differ only by the parent.
    let (runs_per_second, _) = beside_naps(&client, count_at_once(&client, CHILDREN, STEPS)).await?;
    let (children_per_second, naps) = beside_naps(&client, count_in_children(&client)).await?;
    worker.stop().await?;
    other.stop().await?;
    Ok(Figures { naps: naps.here, naps_elsewhere: naps.elsewhere, children_per_second, runs_per_second })
}

/// How long the unrelated runs took, in milliseconds.
struct Naps {
    /// On the worker and in the queue of the counting runs.
    here: Vec<f64>,
    /// In another queue, on another worker.
    elsewhere: Vec<f64>,
}

/// Executes many runs that count, beside unrelated runs. Returns the rate of the counting runs.
async fn beside_naps(client: &Client, counting: impl Future<Output = Result<()>>) -> Result<(f64, Naps)> {
    let is_over = Arc::new(AtomicBool::new(false));
    let here = tokio::spawn(nap_until(client.clone(), None, is_over.clone()));
    let elsewhere = tokio::spawn(nap_until(client.clone(), Some(OTHER_QUEUE), is_over.clone()));
    let watch = Stopwatch::start();
    counting.await?;
    let per_second = CHILDREN as f64 / watch.seconds();
    is_over.store(true, Ordering::Relaxed);
    let naps = Naps { here: here.await??, elsewhere: elsewhere.await?? };
    Ok((per_second, naps))
}

/// Executes a parent whose children count.
async fn count_in_children(client: &Client) -> Result<()> {
    let sum = client.start(family, CHILDREN).await?.output().await?;
    if sum == CHILDREN as u64 * STEPS {
        Ok(())
    } else {
        Err(format!("{CHILDREN} children returned the sum {sum}").into())
    }
}

/// Runs that sleep, one after the other; returns how long each took in milliseconds.
async fn nap_until(
    client: Client,
    queue: Option<&'static str>,
    is_over: Arc<AtomicBool>,
) -> Result<Vec<f64>> {
    let mut naps = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let watch = Stopwatch::start();
        let start = client.start(nap, ());
        let run = match queue {
            Some(queue) => start.queue(queue).await?,
            None => start.await?,
        };
        run.output().await?;
        naps.push(watch.seconds() * 1e3);
    }
    Ok(naps)
}
