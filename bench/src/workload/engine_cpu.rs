//! BM, engine CPU: the CPU time of the engine, without a disk.

use outlast::prelude::*;

use super::child_process::measure_in_child;
use super::count_workflow::{count_at_once, worker};
use super::throughput::{RUNS, STEPS, STEPS_TOTAL};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::cpu_micros;

/// The CPU time of B1 on the memory world, whatever world is measured otherwise.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BM",
    name: "engine-cpu",
    what: "the engine alone: CPU time per step of B1 on the memory world",
    worlds: &[WorldKind::Sqlite, WorldKind::Memory],
    rows: &[Row {
        id: "BM",
        what: "B1 on the memory world; CPU time",
        unit: "us/step",
        target: Target::AtMost(12.0).everywhere(),
    }],
    run,
};

/// The hidden subcommand that measures.
pub(crate) const COMMAND: &str = "bm-child";

/// Measures in a process of its own: what other workloads left in this one's heap is not the engine's.
fn run(_env: &Environment) -> Result<Vec<Measurement>> {
    let output = measure_in_child(&[COMMAND])?;
    let [step_us] = output[..] else { return Err("the process of BM said something else".into()) };
    Ok(vec![Measurement::absolute(step_us)])
}

/// Prints the CPU time per step, after the same work was done once: the memory that it needs is there.
pub(crate) fn child() -> Result<()> {
    let step_us = block_on(async {
        let world = outlast::open("memory:").await?;
        let worker = worker(&world).await?;
        let client = Client::new(world);
        count_at_once(&client, RUNS, STEPS).await?;
        let before = cpu_micros();
        count_at_once(&client, RUNS, STEPS).await?;
        let micros = cpu_micros() - before;
        worker.stop().await?;
        Ok(micros / STEPS_TOTAL)
    })?;
    println!("{step_us}");
    Ok(())
}
