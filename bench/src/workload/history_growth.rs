//! B3, history growth: whether steps become slower as the history grows.

use outlast::core::TurnRecord;
use outlast::prelude::*;

use super::count_workflow::{count, worker};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};

const STEPS: u64 = 20_000;

/// How many steps at either end are compared.
const SAMPLE: usize = 1_000;

/// The last steps of a long run, as a multiple of its first.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B3",
    name: "history-growth",
    what: "one run of 20,000 sequential steps: its last 1,000 against its first 1,000",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres, WorldKind::Memory],
    rows: &[Row {
        id: "B3",
        what: "last 1,000 of 20,000 steps; x first 1,000",
        unit: "us/step",
        target: Target::AtMost(1.2).everywhere(),
    }],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let history = block_on(async {
        let world = env.open().await?;
        let worker = worker(&world).await?;
        let client = Client::new(world);
        let run = client.start(count, STEPS).await?;
        run.output().await?;
        let history = client.history(run.id()).await?;
        worker.stop().await?;
        Ok(history)
    })?;
    let turns = history.len();
    if turns <= 2 * SAMPLE {
        return Err(format!("a run of {STEPS} steps has only {turns} turns").into());
    }
    let first = micros_per_turn(&history[..=SAMPLE]);
    let last = micros_per_turn(&history[turns - SAMPLE - 1..]);
    Ok(vec![Measurement::relative(last, last / first)])
}

/// The turns of a sequential run are its steps, and each has its time.
fn micros_per_turn(turns: &[TurnRecord]) -> f64 {
    let (Some(first), Some(last)) = (turns.first(), turns.last()) else { return 0.0 };
    last.at.since(first.at).as_secs_f64() * 1e6 / (turns.len() - 1) as f64
}
