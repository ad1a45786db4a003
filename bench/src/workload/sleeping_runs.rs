//! B6, sleeping runs: the rate of their starts, their memory, and how late they wake.

use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{SystemClock, Timestamp};

use super::child_process::measure_in_child;
use super::sleep_workflow::{WakeDelays, sleep, worker};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::machine::peak_mb;
use crate::stats::percentile;
use crate::stopwatch::Stopwatch;

/// The runs, all asleep at the same time.
const RUNS: usize = 100_000;

/// The time over which they are due.
const DUE_OVER: Duration = Duration::from_secs(10);

/// The runs that are being started at the same time.
const STARTS_AT_ONCE: usize = 500;

/// Runs started per second, as a part of the raw rows per second in commits of 100.
const START_RATIO: f64 = 0.05;

/// The rate of starts, the memory and the lateness.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B6",
    name: "sleeping-runs",
    what: "100,000 runs asleep, due evenly over 10 s, in a process of their own",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[
        Row {
            id: "B6 start",
            what: "100,000 runs put to sleep; x R100",
            unit: "runs/s",
            target: Target::AtLeast(START_RATIO).but_on_postgres(Target::Unlimited),
        },
        Row {
            id: "B6 memory",
            what: "the most memory of that process",
            unit: "MB",
            target: Target::AtMost(300.0).everywhere(),
        },
        Row {
            id: "B6 late",
            what: "from due to the next step, p99",
            unit: "ms",
            target: Target::AtMost(250.0).but_on_postgres(Target::AtMost(500.0)),
        },
    ],
    run,
};

/// The hidden subcommand that measures.
pub(crate) const COMMAND: &str = "b6-child";

/// The arguments of the child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SleepingRunsArgs {
    /// The URL of the world.
    url: String,
    /// How long the starts may take, in seconds, before the first run is due.
    lead_s: f64,
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    // 1.5 times the expected duration, so that all runs sleep when the first is due.
    let lead_s = 1.5 * RUNS as f64 / (START_RATIO * env.raw.r100_rows_s);
    let output = measure_in_child(&[COMMAND, &env.url(), &lead_s.to_string()])?;
    let [seconds, memory, late] = output[..] else {
        return Err("the child of B6 printed something else".into());
    };
    let rate = RUNS as f64 / seconds;
    let mut started = Measurement::relative(rate, rate / env.raw.r100_rows_s);
    if seconds > lead_s {
        started.faults.push(format!("the starts took {seconds:.1} s, and the first run was due before"));
    }
    Ok(vec![started, Measurement::absolute(memory), Measurement::absolute(late)])
}

/// Prints the seconds that the starts took, the peak of memory in MB and the lateness in milliseconds.
pub(crate) fn child(options: &SleepingRunsArgs) -> Result<()> {
    let (seconds, late_ms) = block_on(async {
        let world = outlast::open(&options.url).await?;
        let wake_delays = WakeDelays::new(RUNS);
        let worker = worker(&world, &wake_delays).await?;
        let client = Client::new(world);
        let watch = Stopwatch::start();
        let first_due = SystemClock.now().plus(Duration::from_secs_f64(options.lead_s));
        start_all(&client, first_due).await?;
        let seconds = watch.seconds();
        let late_ms = wake_delays.late_ms().await;
        worker.stop().await?;
        Ok((seconds, late_ms))
    })?;
    println!("{seconds} {} {}", peak_mb()?, percentile(&late_ms, 99));
    Ok(())
}

/// Starts all runs, some at the same time. They are due in the order in which they are started, as runs
/// that sleep equally long are.
async fn start_all(client: &Client, first_due: Timestamp) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for starter in 0..STARTS_AT_ONCE {
        let client = client.clone();
        tasks.spawn(async move {
            for run in (starter..RUNS).step_by(STARTS_AT_ONCE) {
                let due = first_due.plus(DUE_OVER.mul_f64(run as f64 / RUNS as f64));
                client.start(sleep, (run, due.as_micros())).await?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(started) = tasks.join_next().await {
        started??;
    }
    Ok(())
}
