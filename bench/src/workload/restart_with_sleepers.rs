//! B6M, restart with sleepers: a restart with a million sleeping runs in the file.

use outlast::prelude::*;

use super::child_process::measure_in_child;
use super::count_workflow::{add_one, count, count_once};
use super::large_world::LargeWorld;
use super::sleep_workflow::{WakeDelays, sleep, wake};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::machine::peak_mb;
use crate::stopwatch::Stopwatch;

const RUNS: usize = 1_000_000;

/// Seconds until a worker works, and its memory.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B6M",
    name: "restart-with-sleepers",
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

/// The arguments of the child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RestartArgs {
    /// The URL of the world.
    url: String,
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let world = LargeWorld::make(env, 0, RUNS)?;
    let output = measure_in_child(&[COMMAND, &world.url])?;
    let [seconds, memory] = output[..] else { return Err("the child of B6M printed something else".into()) };
    Ok(vec![Measurement::absolute(seconds), Measurement::absolute(memory)])
}

/// Prints the seconds to the first output and the peak of memory in MB.
pub(crate) fn child(options: &RestartArgs) -> Result<()> {
    let watch = Stopwatch::start();
    let seconds = block_on(async {
        let world = outlast::open(&options.url).await?;
        // It has the code of the sleeping runs, so that its claims consider them.
        let builder = Worker::builder(world.clone()).state(WakeDelays::new(1));
        let worker = builder.register((count, add_one, sleep, wake)).start().await?;
        count_once(&Client::new(world), 1).await?;
        let seconds = watch.seconds();
        worker.stop().await?;
        Ok(seconds)
    })?;
    println!("{seconds} {}", peak_mb()?);
    Ok(())
}
