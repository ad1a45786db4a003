//! BI, idle waiters: the CPU time of a process in which very many callers wait for outputs.

use std::time::Duration;

use outlast::prelude::*;
use tokio::task::JoinSet;

use super::child_process::measure_in_child;
use super::sleep_workflow::sleep;
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::{cpu_micros, work};

/// The callers, each of which waits for the output of a run of its own.
const CALLERS: usize = 100_000;

/// The starts of one call.
const STARTS_AT_ONCE: usize = 1_000;

/// The time before the CPU time is measured.
const SETTLE: Duration = Duration::from_secs(12);

/// How long the CPU time is measured: twice the interval of the checks.
const MEASURED: Duration = Duration::from_secs(20);

/// The CPU time per second.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BI",
    name: "idle-waiters",
    what: "100,000 callers that wait for outputs of runs that begin tomorrow, in a process of their own, for 20 s",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres, WorldKind::Memory],
    rows: &[Row {
        id: "BI",
        what: "100,000 idle callers of `output`; CPU time of their process",
        unit: "ms/s",
        target: Target::AtMost(10.0).everywhere(),
    }],
    run,
};

/// The hidden subcommand that measures.
pub(crate) const COMMAND: &str = "bi-child";

/// The arguments of the child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IdleWaitersArgs {
    /// The URL of the world.
    url: String,
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let output = measure_in_child(&[COMMAND, &env.url()])?;
    let [per_second] = output[..] else { return Err("the child of BI printed something else".into()) };
    Ok(vec![Measurement::absolute(per_second)])
}

/// Prints the milliseconds of CPU time per second that the idle callers cost.
pub(crate) fn child(options: &IdleWaitersArgs) -> Result<()> {
    let per_second = block_on(async {
        let client = Client::new(outlast::open(&options.url).await?);
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS / STARTS_AT_ONCE {
            let inputs = (0..STARTS_AT_ONCE).map(|run| (run, 0_i64));
            for run in client.start_many(sleep, inputs).after("1d").await {
                let run = run?;
                callers.spawn(async move { run.output().await });
            }
        }
        // Until every caller has registered, and the first checks are over.
        work(SETTLE).await;
        let before = cpu_micros();
        work(MEASURED).await;
        let used_ms = (cpu_micros() - before) / 1e3;
        if callers.try_join_next().is_some() {
            return Err("a caller did not wait for its output".into());
        }
        Ok(used_ms / MEASURED.as_secs_f64())
    })?;
    println!("{per_second}");
    Ok(())
}
