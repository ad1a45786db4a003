//! B2, step latency: the time of one step in an idle system.

use outlast::prelude::*;

use super::count_workflow::{count_once, worker};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::Stopwatch;

const STEPS: u64 = 2_000;

/// Steps of a run before, so that threads are up and statements prepared.
const WARM_UP_STEPS: u64 = 50;

/// The time per step, as a multiple of a raw commit.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B2",
    name: "step-latency",
    what: "one run of 2,000 sequential steps, idle system; x C1",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres, WorldKind::Memory],
    rows: &[Row {
        id: "B2",
        what: "one run of 2,000 steps; x C1",
        unit: "us/step",
        target: Target::AtMost(1.6).but_on_postgres(Target::AtMost(2.0)),
    }],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let step_us = block_on(async {
        let world = env.open().await?;
        let worker = worker(&world).await?;
        let client = Client::new(world);
        count_once(&client, WARM_UP_STEPS).await?;
        let watch = Stopwatch::start();
        count_once(&client, STEPS).await?;
        let micros = watch.micros();
        worker.stop().await?;
        Ok(micros / STEPS as f64)
    })?;
    Ok(vec![Measurement::relative(step_us, step_us / env.raw.c1_us)])
}
