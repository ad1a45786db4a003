//! B5, start to result: how long a caller waits for the result of a small workflow.

use std::sync::Arc;

use outlast::World;
use outlast::prelude::*;

use super::count_workflow::{count_once, worker};
use super::worker_process::WorkerProcess;
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::percentile;
use crate::stopwatch::Stopwatch;

const SAMPLES: usize = 1_000;

/// Runs before, so that threads are up and statements prepared.
const WARM_UP_RUNS: usize = 50;

/// The time from start to result, as a multiple of a raw commit.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B5",
    name: "start-to-result",
    what: "start to result, one step, idle, 1,000 samples, on postgres between two processes; x C1",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres, WorldKind::Memory],
    rows: &[
        Row {
            id: "B5 p50",
            what: "start to result, p50; x C1",
            unit: "us",
            target: Target::AtMost(5.0).but_on_postgres(Target::AtMost(12.0)),
        },
        Row {
            id: "B5 p99",
            what: "start to result, p99; x C1",
            unit: "us",
            target: Target::AtMost(30.0).but_on_postgres(Target::AtMost(60.0)),
        },
    ],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let samples = block_on(async {
        let world = env.open().await?;
        let worker = Counter::start(env, &world).await?;
        let client = Client::new(world);
        for _ in 0..WARM_UP_RUNS {
            count_once(&client, 1).await?;
        }
        let mut samples = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES {
            let watch = Stopwatch::start();
            count_once(&client, 1).await?;
            samples.push(watch.micros());
        }
        worker.stop().await?;
        Ok(samples)
    })?;
    let measured = [50, 99].map(|percent| percentile(&samples, percent));
    Ok(measured.map(|micros| Measurement::relative(micros, micros / env.raw.c1_us)).to_vec())
}

/// The worker: where fleets are meant to be, in a process of its own.
enum Counter {
    Here(Worker),
    Apart(WorkerProcess),
}

impl Counter {
    async fn start(env: &Environment, world: &Arc<dyn World>) -> Result<Self> {
        Ok(match env.world {
            WorldKind::Postgres => Self::Apart(WorkerProcess::start(&env.url())?),
            WorldKind::Sqlite | WorldKind::Memory => Self::Here(worker(world).await?),
        })
    }

    async fn stop(self) -> Result<()> {
        match self {
            Self::Here(worker) => Ok(worker.stop().await?),
            Self::Apart(process) => process.stop().map(drop),
        }
    }
}
