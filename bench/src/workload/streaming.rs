//! BST, streams: chunks per second from one step, how far a reader in another process is behind, and whether other runs
//! wait for the chunks.

use std::process::{Command, Stdio};
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{RunId, StreamItem, SystemClock};

use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::percentile;
use crate::stopwatch::{Stopwatch, work};

/// The chunks that the step writes as fast as possible.
const CHUNKS: u32 = 100_000;

/// The chunks of which the reader measures the age.
const READ_CHUNKS: usize = 2_000;

/// The pause between two of them, as between the tokens of a model.
const PAUSE: Duration = Duration::from_millis(2);

/// The runs of which the latency is measured, without a stream and beside one.
const RUNS_BESIDE: usize = 400;

/// The chunks that a step writes beside them, and the pause after each: 10,000 chunks per second.
const CHUNKS_BESIDE: usize = 50;
const PAUSE_BESIDE: Duration = Duration::from_millis(5);

/// A token of a model has about this many bytes.
const TEXT: &str = "tokens ";

/// Chunks per second, and milliseconds until a reader in another process has a chunk.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BST",
    name: "streaming",
    what: "100,000 small chunks from one step; the lag of a reader in another process, p50 and p99; other runs beside a stream",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[
        Row {
            id: "BST",
            what: "small chunks from one step",
            unit: "chunks/s",
            target: Target::AtLeast(10_000.0).everywhere(),
        },
        Row {
            id: "BST p50",
            what: "the lag of a reader in another process, p50",
            unit: "ms",
            target: Target::Unlimited.everywhere(),
        },
        Row {
            id: "BST p99",
            what: "the lag of a reader in another process, p99",
            unit: "ms",
            target: Target::AtMost(100.0).everywhere(),
        },
        Row {
            id: "BST beside",
            what: "a run with one step beside 10,000 chunks/s, p50; x without chunks",
            unit: "ms",
            target: Target::AtMost(2.0).everywhere(),
        },
    ],
    run,
};

/// The hidden subcommand that reads.
pub(crate) const COMMAND: &str = "bst-child";

/// The arguments of the child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StreamReaderArgs {
    /// The URL of the world.
    url: String,
    /// The run whose stream is read.
    run: String,
}

/// Writes as fast as possible.
#[step]
async fn flood(cx: StepContext, chunks: u32) -> Result<(), StepError> {
    let stream = cx.stream("flood");
    for _ in 0..chunks {
        stream.write(TEXT).await?;
    }
    Ok(())
}

/// Writes the time now and then.
#[step]
async fn tick(cx: StepContext, chunks: usize) -> Result<(), StepError> {
    let stream = cx.stream("ticks");
    for _ in 0..chunks {
        stream.write(&SystemClock.now().as_micros()).await?;
        work(PAUSE).await;
    }
    Ok(())
}

/// Writes 10,000 chunks per second until it is cancelled.
#[step]
async fn write_steadily(cx: StepContext) -> Result<(), StepError> {
    let stream = cx.stream("steady").keep_last(1_000);
    while !cx.is_cancelled() {
        for _ in 0..CHUNKS_BESIDE {
            stream.write(TEXT).await?;
        }
        work(PAUSE_BESIDE).await;
    }
    Ok(())
}

#[step]
async fn one_step() -> u32 {
    1
}

#[workflow]
async fn steady(ctx: Context) -> Result<(), Error> {
    ctx.step(write_steadily, ()).await
}

#[workflow]
async fn plain(ctx: Context) -> Result<u32, Error> {
    ctx.step(one_step, ()).await
}

#[workflow]
async fn streaming(ctx: Context, chunks: u32, ticks: usize) -> Result<(), Error> {
    if chunks > 0 {
        ctx.step(flood, chunks).await?;
    }
    if ticks > 0 {
        ctx.hook::<bool>("reader is ready").await?;
        ctx.step(tick, ticks).await?;
    }
    Ok(())
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let (chunks_s, stored, lags, alone, beside) = block_on(async {
        let world = env.open().await?;
        let worker = Worker::builder(world.clone())
            .register((streaming, flood, tick))
            .register((steady, plain, write_steadily, one_step))
            .start()
            .await?;
        let client = Client::new(world);
        client.start(streaming, (1, 0)).await?.output().await?;
        let watch = Stopwatch::start();
        let run = client.start(streaming, (CHUNKS, 0)).await?;
        run.output().await?;
        let chunks_s = f64::from(CHUNKS) / watch.seconds();
        let stored = client.streams(run.id()).await?.first().map_or(0, |stream| stream.end);
        let lags = lags_of_reader(env, &client).await?;
        let alone = latencies(&client).await?;
        let writer = client.start(steady, ()).await?;
        work(Duration::from_millis(100)).await;
        let beside = latencies(&client).await?;
        client.cancel(writer.id(), "measured").await?;
        worker.stop().await?;
        Ok((chunks_s, stored, lags, alone, beside))
    })?;
    let mut faults = Vec::new();
    if stored != u64::from(CHUNKS) {
        faults.push(format!("{CHUNKS} chunks were written, {stored} are stored"));
    }
    if lags.len() != READ_CHUNKS {
        faults.push(format!("{READ_CHUNKS} chunks were written, the reader got {}", lags.len()));
    }
    let figure = |value| Measurement { faults: faults.clone(), ..Measurement::absolute(value) };
    let (alone, beside) = (percentile(&alone, 50), percentile(&beside, 50));
    Ok(vec![
        figure(chunks_s),
        figure(percentile(&lags, 50)),
        figure(percentile(&lags, 99)),
        Measurement { faults: faults.clone(), ..Measurement::relative(beside, beside / alone) },
    ])
}

/// The milliseconds from the start to the output of runs with one step, one after the other.
async fn latencies(client: &Client) -> Result<Vec<f64>> {
    let mut latencies = Vec::new();
    for _ in 0..RUNS_BESIDE {
        let watch = Stopwatch::start();
        client.start(plain, ()).await?.output().await?;
        latencies.push(watch.seconds() * 1e3);
    }
    Ok(latencies)
}

/// The milliseconds between the write of each chunk and its arrival in another process.
async fn lags_of_reader(env: &Environment, client: &Client) -> Result<Vec<f64>> {
    let run = client.start(streaming, (0, READ_CHUNKS)).await?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(COMMAND).arg(env.url()).arg(run.id().to_string());
    let reader = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    run.output().await?;
    let output = tokio::task::spawn_blocking(|| reader.wait_with_output()).await??;
    Ok(String::from_utf8(output.stdout)?.lines().map(str::parse).collect::<Result<_, _>>()?)
}

/// Follows the stream of a run, and prints how old each chunk was when it arrived, in milliseconds.
pub(crate) fn child(options: &StreamReaderArgs) -> Result<()> {
    let lags = block_on(async {
        let client = Client::new(outlast::open(&options.url).await?);
        let run: RunId = options.run.parse()?;
        let mut tail = client.stream::<i64>(run, "ticks").follow().await?;
        client.send(run, "reader is ready", &true).await?;
        let mut lags = Vec::new();
        while let Some(item) = tail.next().await? {
            if let StreamItem::Chunk(chunk) = item {
                lags.push((SystemClock.now().as_micros() - chunk.value) as f64 / 1e3);
            }
        }
        Ok(lags)
    })?;
    for lag in lags {
        println!("{lag}");
    }
    Ok(())
}
