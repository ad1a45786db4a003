//! BIT, iterations: whether a loop of `ctx.iterate` becomes slower with the number of its iterations, and how soon it
//! continues after a restart of its worker.
//!
//! `OUTLAST_ITERATIONS=1000000` sets the number of iterations.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast::SystemClock;
use outlast::core::{Clock, Timestamp};
use outlast::prelude::*;
use outlast::{RunHandle, World};

use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::{Stopwatch, work};

/// The number of iterations, unless the environment sets another.
const ITERATIONS: u64 = 100_000;

/// The interval at which the progress of the loop is checked.
const POLL: Duration = Duration::from_millis(20);

const VARIABLE: &str = "OUTLAST_ITERATIONS";

/// How many iterations at either end are compared.
const SAMPLE: usize = 1_000;

/// The iterations before the first sample: connections and caches are new.
const WARM_UP: usize = 100;

/// The last iterations of a loop, as a multiple of its first.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BIT",
    name: "iterations",
    what: "one run of 100,000 iterations with a step each: its last 1,000 against its first 1,000; the time to continue \
           when its worker is replaced in the middle",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[
        Row {
            id: "BIT",
            what: "last 1,000 of 100,000 iterations; x first 1,000",
            unit: "us/iteration",
            target: Target::AtMost(1.2).everywhere(),
        },
        Row {
            id: "BIT restart",
            what: "a loop in its 50,000th iteration, until a new worker attempts its next step",
            unit: "ms",
            target: Target::AtMost(1_000.0).everywhere(),
        },
    ],
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
    let iterations = match std::env::var(VARIABLE) {
        Ok(text) => text.parse().map_err(|_| format!("{VARIABLE} is not a number: `{text}`"))?,
        Err(_) => ITERATIONS,
    };
    if iterations < 4 * SAMPLE as u64 {
        return Err(format!("{VARIABLE} is {iterations}; set {} or more", 4 * SAMPLE).into());
    }
    let times = Times::default();
    let (output, restart) = block_on(async {
        let world = env.open().await?;
        let worker = start_worker(&world, &times).await?;
        let run = Client::new(world).start(iterates, iterations).await?;
        let restart = replace_worker(env, worker, &times, iterations / 2, &run).await?;
        Ok((run.output().await?, restart))
    })?;
    let times = times.lock().unwrap_or_else(PoisonError::into_inner);
    let first = micros_per_iteration(&times[WARM_UP..=WARM_UP + SAMPLE]);
    let last = micros_per_iteration(&times[times.len() - SAMPLE - 1..]);
    let mut figure = Measurement::relative(last, last / first);
    // The step that was in progress when its worker stopped may have been attempted twice.
    let steps = times.len() as u64;
    if output != iterations || !(iterations..=iterations + 1).contains(&steps) {
        figure.faults.push(format!("{iterations} iterations returned {output}, with {steps} steps"));
    }
    Ok(vec![figure, Measurement::absolute(restart)])
}

async fn start_worker(world: &Arc<dyn World>, times: &Times) -> Result<Worker> {
    let builder = Worker::builder(world.clone()).state(times.clone());
    Ok(builder.register((iterates, note_time)).start().await?)
}

/// Waits until the loop is in this iteration, stops its worker, and starts another on a new connection. Returns the
/// milliseconds until that has attempted a step, without those that stopping took.
async fn replace_worker(
    env: &Environment,
    worker: Worker,
    times: &Times,
    iteration: u64,
    run: &RunHandle<u64>,
) -> Result<f64> {
    let count = || times.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
    while count() < iteration {
        if run.view().await?.status.is_final() {
            return Err("the loop ended before its worker was replaced".into());
        }
        work(POLL).await;
    }
    worker.stop().await?;
    let before = count();
    let watch = Stopwatch::start();
    let world = env.open().await?;
    let worker = start_worker(&world, times).await?;
    while count() == before {
        work(Duration::from_millis(1)).await;
    }
    let restart = watch.seconds() * 1e3;
    run.output().await?;
    worker.stop().await?;
    Ok(restart)
}

fn micros_per_iteration(times: &[Timestamp]) -> f64 {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return 0.0 };
    last.since(*first).as_secs_f64() * 1e6 / (times.len() - 1) as f64
}
