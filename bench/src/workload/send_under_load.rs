//! BS, send under load: the latency of `send` from another process.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use outlast::RunId;
use outlast::prelude::*;

use super::count_workflow::{add_one, count, count_at_once};
use super::throughput::{RUNS, STEPS};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::percentile;
use crate::stopwatch::{Stopwatch, work};

/// How often B1's load is repeated, so that there is enough time to send.
const LOADS: usize = 4;

/// The pause between two sends, so that the sends themselves are no load.
const PAUSE: Duration = Duration::from_millis(2);

/// The minimum number of sends for a 99th percentile.
const SENDS_MIN: usize = 200;

/// Milliseconds until a send is acknowledged.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BS",
    name: "send-under-load",
    what: "a `send` from another process during B1's load, p50 and p99",
    worlds: &[WorldKind::Sqlite],
    rows: &[
        Row {
            id: "BS p50",
            what: "a send from another process under B1's load, p50",
            unit: "ms",
            target: Target::AtMost(20.0).everywhere(),
        },
        Row {
            id: "BS p99",
            what: "a send from another process under B1's load, p99",
            unit: "ms",
            target: Target::AtMost(100.0).everywhere(),
        },
    ],
    run,
};

/// The hidden subcommand that sends.
pub(crate) const COMMAND: &str = "bs-child";

/// The arguments of the child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SenderArgs {
    /// The URL of the world.
    url: String,
    /// The folder with the file that ends the sending.
    folder: PathBuf,
    /// The run to send to.
    run: String,
}

/// Receives numbers until one is 0.
#[workflow]
async fn receive(ctx: Context) -> Result<u64, Error> {
    let mut received = 0;
    while ctx.hook::<u64>("number").await? > 0 {
        received += 1;
    }
    Ok(received)
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let (times, received) = block_on(async {
        let world = env.open().await?;
        let worker = Worker::builder(world.clone()).register((count, add_one, receive)).start().await?;
        let client = Client::new(world);
        let listener = client.start(receive, ()).await?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(COMMAND).arg(env.url()).arg(&env.folder).arg(listener.id().to_string());
        let sender = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        for _ in 0..LOADS {
            count_at_once(&client, RUNS, STEPS).await?;
        }
        std::fs::write(env.folder.join(STOP), "")?;
        let output = tokio::task::spawn_blocking(|| sender.wait_with_output()).await??;
        let received = listener.output().await?;
        worker.stop().await?;
        let output = String::from_utf8(output.stdout)?;
        let times: Vec<f64> = output.lines().map(str::parse).collect::<Result<_, _>>()?;
        Ok((times, received))
    })?;
    if times.len() < SENDS_MIN {
        return Err(format!("only {} sends during the load", times.len()).into());
    }
    let mut faults = Vec::new();
    if received != times.len() as u64 {
        faults.push(format!("{} sends were acknowledged, {received} arrived", times.len()));
    }
    let figure = |percent| Measurement {
        faults: faults.clone(),
        ..Measurement::absolute(percentile(&times, percent))
    };
    Ok(vec![figure(50), figure(99)])
}

/// The file that ends the sending.
const STOP: &str = "stop";

/// Sends until the stop file exists, and prints the milliseconds of each send.
pub(crate) fn child(options: &SenderArgs) -> Result<()> {
    let times = block_on(async {
        let client = Client::new(outlast::open(&options.url).await?);
        let run: RunId = options.run.parse()?;
        let mut times = Vec::new();
        while !options.folder.join(STOP).exists() {
            let watch = Stopwatch::start();
            client.send(run, "number", &1).await?;
            times.push(watch.micros() / 1e3);
            work(PAUSE).await;
        }
        client.send(run, "number", &0).await?;
        Ok(times)
    })?;
    for time in times {
        println!("{time}");
    }
    Ok(())
}
