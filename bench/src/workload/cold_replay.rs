//! B8, cold replay: how fast a long run is replayed in a new process.

use std::sync::Arc;

use outlast::core::{History, TurnRecord};
use outlast::prelude::*;
use outlast::{RunId, World};

use super::count_workflow::{add_one, count, worker};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::median;
use crate::stopwatch::Stopwatch;

/// The events of the history: a start, a request and an outcome per step, an end.
const EVENTS: usize = 10_000;
const STEPS: u64 = (EVENTS as u64 - 2) / 2;

/// Replays per round, of each sort; the median counts. Each begins from nothing.
const REPLAYS: usize = 5;

/// Events per second, decoded and from the file.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B8",
    name: "cold-replay",
    what: "cold replay of 10,000 events: decoded in memory, and from the file",
    worlds: &[WorldKind::Sqlite],
    rows: &[
        Row {
            id: "B8 memory",
            what: "cold replay of 10,000 decoded events",
            unit: "events/s",
            target: Target::AtLeast(500_000.0).everywhere(),
        },
        Row {
            id: "B8 file",
            what: "open the file, read, decode and replay 10,000 events",
            unit: "events/s",
            target: Target::AtLeast(150_000.0).everywhere(),
        },
    ],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let (run, history) = block_on(record(env))?;
    let mut memory = Vec::with_capacity(REPLAYS);
    let mut file = Vec::with_capacity(REPLAYS);
    for _ in 0..REPLAYS {
        let history = history.clone();
        let watch = Stopwatch::start();
        replay(run, history)?;
        memory.push(EVENTS as f64 / watch.seconds());
        file.push(EVENTS as f64 / block_on(replay_file(env, run))?);
    }
    Ok([memory, file].map(|speeds| Measurement::absolute(median(&speeds))).to_vec())
}

/// Makes the history as a worker makes it: one turn per step.
async fn record(env: &Environment) -> Result<(RunId, Vec<TurnRecord>)> {
    let world = env.open().await?;
    let worker = worker(&world).await?;
    let client = Client::new(world);
    let run = client.start(count, STEPS).await?;
    run.output().await?;
    let history = client.history(run.id()).await?;
    worker.stop().await?;
    Ok((run.id(), history))
}

/// The seconds from a closed file to a replayed run. The disk's pages may be in the system's memory.
async fn replay_file(env: &Environment, run: RunId) -> Result<f64> {
    let watch = Stopwatch::start();
    let world: Arc<dyn World> = env.open().await?;
    let history = Client::new(world).history(run).await?;
    replay(run, history)?;
    Ok(watch.seconds())
}

fn replay(run: RunId, turns: Vec<TurnRecord>) -> Result<()> {
    match outlast::replay((count, add_one), History { run, turns })? {
        EVENTS => Ok(()),
        events => Err(format!("a history of {events} events was replayed, not of {EVENTS}").into()),
    }
}
