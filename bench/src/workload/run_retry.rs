//! BR, retry of a run: how long it takes until the step that failed is attempted again, against a cold replay.

use std::sync::{Arc, Mutex, PoisonError};

use outlast::core::{Clock, History, Timestamp};
use outlast::prelude::*;
use outlast::{RunId, SystemClock};

use super::count_workflow::add_one;
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::median;
use crate::stopwatch::Stopwatch;

/// The events of the history: a start, a request and an outcome per step, an end.
const EVENTS: u64 = 10_000;
const STEPS: u64 = (EVENTS - 4) / 2;

/// Retries per round; the median counts.
const RETRIES: usize = 5;

/// The time from the call to the attempt, as a multiple of a cold replay of the same history.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BR",
    name: "run-retry",
    what: "retry of a failed run with 10,000 events, until its step is attempted; x cold replay",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[Row {
        id: "BR",
        what: "retry of a run with 10,000 events; x cold replay",
        unit: "ms",
        target: Target::AtMost(1.5).everywhere(),
    }],
    run,
};

/// The time of the last attempt.
type Attempted = Arc<Mutex<Option<Timestamp>>>;

#[step(attempts = 1)]
async fn fail(cx: StepContext<Attempted>) -> Result<u64, StepError> {
    *cx.state().lock().unwrap_or_else(PoisonError::into_inner) = Some(SystemClock.now());
    Err(StepError::msg("not today"))
}

#[workflow]
async fn count_and_fail(ctx: Context, steps: u64) -> Result<u64, Error> {
    let mut number = 0;
    for _ in 0..steps {
        number = ctx.step(add_one, number).await?;
    }
    ctx.step(fail, ()).await
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let attempted = Attempted::default();
    let (retries, replays, faults) = block_on(measure(env, &attempted))?;
    let (retry, replay) = (median(&retries), median(&replays));
    let mut figure = Measurement::relative(retry, retry / replay);
    figure.faults = faults;
    Ok(vec![figure])
}

/// The milliseconds of retries and of cold replays, and what went wrong.
async fn measure(env: &Environment, attempted: &Attempted) -> Result<(Vec<f64>, Vec<f64>, Vec<String>)> {
    let world = env.open().await?;
    let builder = Worker::builder(world.clone()).state(attempted.clone());
    let worker = builder.register((count_and_fail, add_one, fail)).start().await?;
    let client = Client::new(world);
    let run = client.start(count_and_fail, STEPS).await?;
    let mut faults = Vec::new();
    if run.output().await.is_ok() {
        faults.push("the run has not failed".to_owned());
    }
    let (mut retries, mut replays) = (Vec::new(), Vec::new());
    for _ in 0..RETRIES {
        replays.push(cold_replay(env, run.id()).await?);
        let began = SystemClock.now();
        client.retry(run.id()).await?;
        if run.output().await.is_ok() {
            faults.push("the run has not failed again".to_owned());
        }
        match attempted.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(at) => retries.push(at.since(began).as_secs_f64() * 1e3),
            None => faults.push("the step was not attempted again".to_owned()),
        }
    }
    worker.stop().await?;
    Ok((retries, replays, faults))
}

/// The milliseconds from a world that is open, as that of the worker is, to a replayed run.
async fn cold_replay(env: &Environment, run: RunId) -> Result<f64> {
    let client = Client::new(env.open().await?);
    let watch = Stopwatch::start();
    let turns = client.history(run).await?;
    // The step that fails is not needed: a replay attempts none.
    outlast::replay((count_and_fail, add_one), History { run, turns })?;
    Ok(watch.seconds() * 1e3)
}
