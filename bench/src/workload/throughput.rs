//! B1, throughput: steps per second under load.

use outlast::prelude::*;

use super::count_workflow::{count_at_once, count_once, worker};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::Stopwatch;

/// The runs, all started at once.
pub(super) const RUNS: usize = 10_000;

/// The steps of each.
pub(super) const STEPS: u64 = 3;

/// All steps of all runs.
pub(super) const STEPS_TOTAL: f64 = (RUNS as u64 * STEPS) as f64;

/// Steps per second, as a part of the raw rows per second in commits of 100.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B1",
    name: "throughput",
    what: "10,000 runs of 3 trivial sequential steps, started at once, one process; x R100",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres, WorldKind::Memory],
    rows: &[Row {
        id: "B1",
        what: "10,000 runs of 3 steps at once; x R100",
        unit: "steps/s",
        target: Target::AtLeast(0.2).but_on_postgres(Target::AtLeast(0.12)),
    }],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let steps_s = block_on(async {
        let world = env.open().await?;
        let worker = worker(&world).await?;
        let client = Client::new(world);
        count_once(&client, STEPS).await?;
        let watch = Stopwatch::start();
        count_at_once(&client, RUNS, STEPS).await?;
        let seconds = watch.seconds();
        worker.stop().await?;
        Ok(STEPS_TOTAL / seconds)
    })?;
    Ok(vec![Measurement::relative(steps_s, steps_s / env.raw.r100_rows_s)])
}
