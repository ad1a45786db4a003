//! BS: whether a second process is heard while the first is busy.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use outlast::RunId;
use outlast::prelude::*;

use super::b1::{RUNS, STEPS};
use super::counting::{add_one, count, count_at_once};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::env::{Env, WorldKind, block_on};
use crate::stats::percentile;
use crate::stopwatch::{Stopwatch, work};

/// How often B1's load is repeated, so that there is enough time to send.
const LOADS: usize = 4;

/// Between two sends: some sends per millisecond would be a load by themselves.
const PAUSE: Duration = Duration::from_millis(2);

/// Fewer sends have no 99th percentile worth the name.
const SENDS_MIN: usize = 200;

/// Milliseconds until a send is acknowledged.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BS",
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

/// What the parent tells its child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ChildPlan {
    /// Where the world is.
    url: String,
    /// Where the end of the sending is told.
    folder: PathBuf,
    /// The run to send to.
    run: String,
}

/// Takes what is sent, until the number is 0.
#[workflow]
async fn listen(ctx: Context) -> Result<u64, Error> {
    let mut heard = 0;
    while ctx.hook::<u64>("number").await? > 0 {
        heard += 1;
    }
    Ok(heard)
}

fn run(env: &Env) -> Result<Vec<Measurement>> {
    let (times, heard) = block_on(async {
        let world = env.open().await?;
        let worker = Worker::builder(world.clone()).register((count, add_one, listen)).start().await?;
        let client = Client::new(world);
        let listener = client.start(listen, ()).await?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(COMMAND).arg(env.url()).arg(&env.folder).arg(listener.id().to_string());
        let sender = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        for _ in 0..LOADS {
            count_at_once(&client, RUNS, STEPS).await?;
        }
        std::fs::write(env.folder.join(STOP), "")?;
        let said = tokio::task::spawn_blocking(|| sender.wait_with_output()).await??;
        let heard = listener.output().await?;
        worker.stop().await?;
        let said = String::from_utf8(said.stdout)?;
        let times: Vec<f64> = said.lines().map(str::parse).collect::<Result<_, _>>()?;
        Ok((times, heard))
    })?;
    if times.len() < SENDS_MIN {
        return Err(format!("only {} sends during the load", times.len()).into());
    }
    let mut faults = Vec::new();
    if heard != times.len() as u64 {
        faults.push(format!("{} sends were acknowledged, {heard} arrived", times.len()));
    }
    let figure = |percent| Measurement {
        faults: faults.clone(),
        ..Measurement::absolute(percentile(&times, percent))
    };
    Ok(vec![figure(50), figure(99)])
}

/// The file that ends the sending.
const STOP: &str = "stop";

/// Sends until it is told to stop, and prints how many milliseconds each took.
pub(crate) fn child(plan: &ChildPlan) -> Result<()> {
    let times = block_on(async {
        let client = Client::new(outlast::open(&plan.url).await?);
        let run: RunId = plan.run.parse()?;
        let mut times = Vec::new();
        while !plan.folder.join(STOP).exists() {
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
