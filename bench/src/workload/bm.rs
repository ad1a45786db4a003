//! BM: what the engine itself costs, with no disk to wait for.

use outlast::prelude::*;

use super::b1::{RUNS, STEPS, STEPS_IN_ALL};
use super::counting::{count_at_once, count_once, worker};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::env::{Env, WorldKind, block_on};
use crate::stopwatch::cpu_micros;

/// The CPU time of B1 on the memory world, whatever world is measured otherwise.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BM",
    what: "the engine alone: CPU time per step of B1 on the memory world",
    worlds: &[WorldKind::Sqlite, WorldKind::Memory],
    rows: &[Row {
        id: "BM",
        what: "B1 on the memory world; CPU time",
        unit: "us/step",
        target: Target::AtMost(12.0),
    }],
    run,
};

fn run(_env: &Env) -> Result<Vec<Measurement>> {
    let step_us = block_on(async {
        let world = outlast::open("memory:").await?;
        let worker = worker(&world).await?;
        let client = Client::new(world);
        count_once(&client, STEPS).await?;
        let before = cpu_micros();
        count_at_once(&client, RUNS, STEPS).await?;
        let micros = cpu_micros() - before;
        worker.stop().await?;
        Ok(micros / STEPS_IN_ALL)
    })?;
    Ok(vec![Measurement::absolute(step_us)])
}
