//! B4, fan-out: the time of many parallel steps of one run.

use outlast::prelude::*;

use super::count_workflow::add_one;
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::Stopwatch;

const STEPS: u64 = 500;

/// The time of one fan-out, as a multiple of a raw commit.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B4",
    name: "fan-out",
    what: "one run of 500 parallel steps; x C1",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres, WorldKind::Memory],
    rows: &[Row {
        id: "B4",
        what: "one run of 500 parallel steps; x C1",
        unit: "us",
        target: Target::AtMost(60.0).everywhere(),
    }],
    run,
};

/// Asks for all steps at once, and adds up what they return.
#[workflow]
async fn fan_out(ctx: Context, steps: u64) -> Result<u64, Error> {
    let mut open: FuturesUnordered<_> = (0..steps).map(|number| ctx.step(add_one, number)).collect();
    let mut sum = 0;
    while let Some(number) = open.next().await {
        sum += number?;
    }
    Ok(sum)
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let micros = block_on(async {
        let world = env.open().await?;
        let worker = Worker::builder(world.clone()).register((fan_out, add_one)).start().await?;
        let client = Client::new(world);
        // Once before, so that threads are up and statements prepared.
        client.start(fan_out, 10).await?.output().await?;
        let watch = Stopwatch::start();
        let sum = client.start(fan_out, STEPS).await?.output().await?;
        let micros = watch.micros();
        worker.stop().await?;
        if sum != STEPS * (STEPS + 1) / 2 {
            return Err(format!("{STEPS} parallel steps returned the sum {sum}").into());
        }
        Ok(micros)
    })?;
    Ok(vec![Measurement::relative(micros, micros / env.raw.c1_us)])
}
