//! B6M: a restart with a million sleeping runs in the file.

use outlast::prelude::*;

use super::big::BigWorld;
use super::child::measure_in_child;
use super::counting::{add_one, count, count_once};
use super::sleeping::{Alarms, sleep, wake};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::env::{Env, WorldKind, block_on};
use crate::machine::peak_mb;
use crate::stopwatch::Stopwatch;

const RUNS: usize = 1_000_000;

/// Seconds until a worker works, and its memory.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B6M",
    what: "a new process opens a file with 1,000,000 sleeping runs, and a worker works",
    worlds: &[WorldKind::Sqlite],
    rows: &[
        Row {
            id: "B6M start",
            what: "open a file with 1,000,000 sleeping runs, first output",
            unit: "s",
            target: Target::AtMost(2.0).everywhere(),
        },
        Row {
            id: "B6M memory",
            what: "the most memory of that process",
            unit: "MB",
            target: Target::AtMost(150.0).everywhere(),
        },
    ],
    run,
};

/// The hidden subcommand that measures.
pub(crate) const COMMAND: &str = "b6m-child";

/// What the parent tells its child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct B6mPlan {
    /// Where the world is.
    url: String,
}

fn run(env: &Env) -> Result<Vec<Measurement>> {
    let world = BigWorld::make(env, 0, RUNS)?;
    let said = measure_in_child(&[COMMAND, &world.url])?;
    let [seconds, memory] = said[..] else { return Err("the process of B6M said something else".into()) };
    Ok(vec![Measurement::absolute(seconds), Measurement::absolute(memory)])
}

/// Prints the seconds to the first output and the peak of memory in MB.
pub(crate) fn child(plan: &B6mPlan) -> Result<()> {
    let watch = Stopwatch::start();
    let seconds = block_on(async {
        let world = outlast::open(&plan.url).await?;
        // It has the code of those that sleep, so that its claims look at them.
        let builder = Worker::builder(world.clone()).state(Alarms::new(1));
        let worker = builder.register((count, add_one, sleep, wake)).start().await?;
        count_once(&Client::new(world), 1).await?;
        let seconds = watch.seconds();
        worker.stop().await?;
        Ok(seconds)
    })?;
    println!("{seconds} {}", peak_mb()?);
    Ok(())
}
