//! BIT, iterations: whether a loop of `ctx.iterate` becomes slower with the number of its iterations.

use std::sync::{Arc, Mutex, PoisonError};

use outlast::SystemClock;
use outlast::core::{Clock, Timestamp};
use outlast::prelude::*;

use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};

const ITERATIONS: u64 = 100_000;

/// How many iterations at either end are compared.
const SAMPLE: usize = 1_000;

/// The iterations before the first sample: connections and caches are new.
const WARM_UP: usize = 100;

/// The last iterations of a loop, as a multiple of its first.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BIT",
    name: "iterations",
    what: "one run of 100,000 iterations with a step each: its last 1,000 against its first 1,000",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[Row {
        id: "BIT",
        what: "last 1,000 of 100,000 iterations; x first 1,000",
        unit: "us/iteration",
        target: Target::AtMost(1.2).everywhere(),
    }],
    run,
};

/// The times at which the steps were attempted.
type Times = Arc<Mutex<Vec<Timestamp>>>;

#[step]
async fn note_time(cx: StepContext<Times>, iteration: u64) -> Result<u64, StepError> {
    cx.state().lock().unwrap_or_else(PoisonError::into_inner).push(SystemClock.now());
    Ok(iteration + 1)
}

#[workflow]
async fn iterates(ctx: Context, iterations: u64) -> Result<u64, Error> {
    ctx.iterate("count", 0, async |ctx, done| {
        let done = ctx.step(note_time, done).await?;
        Ok(if done == iterations { Next::Done(done) } else { Next::Again(done) })
    })
    .await
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let times = Times::default();
    let output = block_on(async {
        let world = env.open().await?;
        let builder = Worker::builder(world.clone()).state(times.clone());
        let worker = builder.register((iterates, note_time)).start().await?;
        let output = Client::new(world).start(iterates, ITERATIONS).await?.output().await?;
        worker.stop().await?;
        Ok(output)
    })?;
    let times = times.lock().unwrap_or_else(PoisonError::into_inner);
    let first = micros_per_iteration(&times[WARM_UP..=WARM_UP + SAMPLE]);
    let last = micros_per_iteration(&times[times.len() - SAMPLE - 1..]);
    let mut figure = Measurement::relative(last, last / first);
    if output != ITERATIONS || times.len() as u64 != ITERATIONS {
        figure.faults.push(format!("{ITERATIONS} iterations returned {output}, with {} steps", times.len()));
    }
    Ok(vec![figure])
}

fn micros_per_iteration(times: &[Timestamp]) -> f64 {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return 0.0 };
    last.since(*first).as_secs_f64() * 1e6 / (times.len() - 1) as f64
}
