//! B11, pruning and backup: what pruning and backups cost concurrent runs, and the growth of the file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{Status, SystemClock, Timestamp, World};
use tokio::task::JoinHandle;

use super::count_workflow::{count, count_at_once, count_once, worker};
use super::throughput::{RUNS, STEPS, STEPS_TOTAL};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::{median, percentile};
use crate::stopwatch::Stopwatch;

/// How often the file is filled and pruned.
const FILLS: usize = 4;

/// Runs that one call to prune looks at, as a worker with retention does.
const PART_RUNS: usize = 100;

/// The steps of the run with the longest history: two events each, and the limit is 100,000.
const LONG_STEPS: u64 = 49_900;

/// Throughput while pruning, the time of a part, the growth of the file, starts during a backup.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B11",
    name: "pruning-and-backup",
    what: "B1 while 30,000 runs are pruned; the file over four fills; runs during a backup and a long prune",
    worlds: &[WorldKind::Sqlite],
    rows: &[
        Row {
            id: "B11 load",
            what: "B1 while old runs are pruned; x B1 alone",
            unit: "steps/s",
            target: Target::AtLeast(0.6).everywhere(),
        },
        Row {
            id: "B11 part",
            what: "a part of 100 runs, p99",
            unit: "ms",
            target: Target::AtMost(50.0).everywhere(),
        },
        Row {
            id: "B11 file",
            what: "the file after the fourth fill and prune; x the first",
            unit: "MB",
            target: Target::AtMost(1.1).everywhere(),
        },
        Row {
            id: "B11 backup",
            what: "a run of one step during a backup, p99",
            unit: "ms",
            target: Target::AtMost(50.0).everywhere(),
        },
        Row {
            id: "B11 long",
            what: "a run of one step while a history of 100,000 events is pruned, slowest",
            unit: "ms",
            target: Target::AtMost(100.0).everywhere(),
        },
    ],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    block_on(async {
        let world = env.open().await?;
        let worker = worker(&world).await?;
        let client = Client::new(world.clone());
        let (mut alone, mut sizes) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            alone.push(fill(&client).await?);
        }
        let (load, mut parts) = fill_while_pruning(&world, &client).await?;
        let mut faults = Vec::new();
        check_left(&client, RUNS as u64, &mut faults).await?;
        for _ in 0..FILLS {
            parts.extend(prune_all(&*world, SystemClock.now(), &AtomicBool::new(false)).await?);
            check_left(&client, 0, &mut faults).await?;
            sizes.push(megabytes(&env.folder)?);
            fill(&client).await?;
        }
        let backup_ms = backup(env, &world, &client).await?;
        let long_ms = prune_long(&world, &client).await?;
        worker.stop().await?;
        let last = sizes[FILLS - 1];
        Ok(vec![
            Measurement { faults, ..Measurement::relative(load, load / median(&alone)) },
            Measurement::absolute(percentile(&parts, 99)),
            Measurement::relative(last, last / sizes[0]),
            Measurement::absolute(backup_ms),
            Measurement::absolute(long_ms),
        ])
    })
}

/// Steps per second of B1.
async fn fill(client: &Client) -> Result<f64> {
    let watch = Stopwatch::start();
    count_at_once(client, RUNS, STEPS).await?;
    Ok(STEPS_TOTAL / watch.seconds())
}

/// The same while everything from before is pruned, and the milliseconds of each part.
async fn fill_while_pruning(world: &Arc<dyn World>, client: &Client) -> Result<(f64, Vec<f64>)> {
    let (before, over) = (SystemClock.now(), Arc::<AtomicBool>::default());
    let pruning = tokio::spawn({
        let (world, over) = (world.clone(), over.clone());
        async move {
            let mut parts = Vec::new();
            while !over.load(Ordering::Relaxed) {
                parts.extend(prune_all(&*world, before, &over).await?);
            }
            // What the load was too short for.
            parts.extend(prune_all(&*world, before, &AtomicBool::new(false)).await?);
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(parts)
        }
    });
    let load = fill(client).await?;
    over.store(true, Ordering::Relaxed);
    Ok((load, pruning.await??))
}

/// Prunes what ended before a moment, and returns the milliseconds of each part.
async fn prune_all(world: &dyn World, before: Timestamp, is_over: &AtomicBool) -> Result<Vec<f64>> {
    let (mut parts, mut after) = (Vec::new(), None);
    loop {
        let watch = Stopwatch::start();
        let pruned = world.prune(before, after, PART_RUNS).await?;
        parts.push(watch.seconds() * 1e3);
        after = pruned.next;
        if after.is_none() || is_over.load(Ordering::Relaxed) {
            return Ok(parts);
        }
    }
}

async fn check_left(client: &Client, expected: u64, faults: &mut Vec<String>) -> Result<()> {
    let completed = client.counts().await?.get(&Status::Completed).copied().unwrap_or(0);
    let listed = client.newest(&[Status::Completed], 1_000).await?.len();
    if completed != expected || listed != expected.min(1_000) as usize {
        faults.push(format!("{completed} runs are left and {listed} listed, not {expected}"));
    }
    Ok(())
}

fn megabytes(folder: &Path) -> Result<f64> {
    Ok(folder.join("bench.db").metadata()?.len() as f64 / 1e6)
}

/// The p99 of a run in milliseconds, during a backup.
async fn backup(env: &Environment, world: &Arc<dyn World>, client: &Client) -> Result<f64> {
    let copy = env.folder.join("copy.db");
    let making = tokio::spawn({
        let world = world.clone();
        async move { outlast::backup(&*world, copy).await }
    });
    let during = runs_ms_until(client, &making).await?;
    making.await??;
    Ok(percentile(&during, 99))
}

/// The slowest run in milliseconds while the longest history that there may be is pruned.
async fn prune_long(world: &Arc<dyn World>, client: &Client) -> Result<f64> {
    client.start(count, LONG_STEPS).await?.output().await?;
    let before = SystemClock.now();
    let pruning = tokio::spawn({
        let world = world.clone();
        async move { prune_all(&*world, before, &AtomicBool::new(false)).await }
    });
    let during = runs_ms_until(client, &pruning).await?;
    pruning.await??;
    Ok(during.into_iter().fold(0.0, f64::max))
}

/// The milliseconds of one run after the other, until a task has ended.
async fn runs_ms_until<T>(client: &Client, task: &JoinHandle<T>) -> Result<Vec<f64>> {
    let mut runs = vec![run_ms(client).await?];
    while !task.is_finished() {
        runs.push(run_ms(client).await?);
    }
    Ok(runs)
}

async fn run_ms(client: &Client) -> Result<f64> {
    let watch = Stopwatch::start();
    count_once(client, 1).await?;
    Ok(watch.seconds() * 1e3)
}
