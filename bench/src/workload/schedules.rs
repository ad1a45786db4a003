//! BSH, schedules: how late firings are when many schedules fire often.

use std::sync::Mutex;
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{Overlap, SystemClock, Timestamp};

use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::percentile;
use crate::stopwatch::work;

/// The number of schedules.
const SCHEDULES: usize = 10_000;

/// Each of them fires at this interval.
const INTERVAL: Duration = Duration::from_secs(10);

/// The rounds in which every schedule fires once and that are measured, after a first one.
const ROUNDS: u32 = 3;

/// How many are created at the same time.
const CREATED_AT_ONCE: usize = 100;

/// How long creating them may take.
const CREATION: Duration = Duration::from_secs(30);

/// The firings: when they were due, and how late they began, in milliseconds.
static FIRINGS: Mutex<Vec<(Timestamp, f64)>> = Mutex::new(Vec::new());

/// The lateness of firings.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BSH",
    name: "schedules",
    what: "10,000 schedules that fire every 10 s, spread evenly; how late a firing begins, p50 and p99",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[
        Row {
            id: "BSH p50",
            what: "how late a firing of 10,000 schedules begins, p50",
            unit: "ms",
            target: Target::Unlimited.everywhere(),
        },
        Row {
            id: "BSH p99",
            what: "how late a firing of 10,000 schedules begins, p99",
            unit: "ms",
            target: Target::AtMost(500.0).everywhere(),
        },
    ],
    run,
};

/// Notes how late it is.
#[workflow]
async fn fired(ctx: Context) -> Result<(), Error> {
    if let (Some(due), Ok(mut firings)) = (ctx.scheduled_at(), FIRINGS.lock()) {
        firings.push((due, ctx.now().since(due).as_secs_f64() * 1e3));
    }
    Ok(())
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let (expected, lateness) = block_on(async {
        let world = env.open().await?;
        let worker = Worker::builder(world.clone()).register(fired).start().await?;
        let client = Client::new(world);
        let begin = SystemClock.now().plus(CREATION);
        create(&client, begin).await?;
        let from = begin.plus(INTERVAL);
        let until = from.plus(INTERVAL * ROUNDS);
        // Firings of the last round may be late.
        work(until.plus(Duration::from_secs(5)).since(SystemClock.now())).await;
        let firings = FIRINGS.lock().map(|mut firings| std::mem::take(&mut *firings)).unwrap_or_default();
        worker.stop().await?;
        let is_measured = |due: &Timestamp| (from..until).contains(due);
        let lateness: Vec<_> =
            firings.into_iter().filter(|(due, _)| is_measured(due)).map(|(_, late)| late).collect();
        Ok((SCHEDULES * ROUNDS as usize, lateness))
    })?;
    let mut faults = Vec::new();
    if lateness.len() != expected {
        faults.push(format!("{expected} firings were due, {} began", lateness.len()));
    }
    let figure = |value| Measurement { faults: faults.clone(), ..Measurement::absolute(value) };
    Ok(vec![figure(percentile(&lateness, 50)), figure(percentile(&lateness, 99))])
}

/// Creates the schedules. Their first instants are spread over one interval.
async fn create(client: &Client, begin: Timestamp) -> Result<()> {
    let apart = INTERVAL / SCHEDULES as u32;
    let create_one = async |number: usize| {
        let first = begin.plus(apart * number as u32);
        let schedule = client.schedule(format!("bench-{number}")).every(INTERVAL).start_at(first);
        schedule.overlap(Overlap::Allow).start(fired, ()).await
    };
    for first in (0..SCHEDULES).step_by(CREATED_AT_ONCE) {
        try_join_all((first..SCHEDULES.min(first + CREATED_AT_ONCE)).map(create_one)).await?;
    }
    match SystemClock.now() {
        now if now > begin => Err(format!("creating the schedules took longer than {CREATION:?}").into()),
        _ => Ok(()),
    }
}
