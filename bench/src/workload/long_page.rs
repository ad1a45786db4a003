//! BP, long page: the time until the page of a long run has arrived.

use std::sync::Arc;

use outlast::prelude::*;
use outlast::{RunId, World};

use super::count_workflow::add_one;
use super::http_client::HttpConnection;
use super::http_server::LocalServer;
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::Stopwatch;

/// The operations of the two runs. An operation of the second has two events, and a history has at most 100,000.
const MANY: u64 = 10_000;
const MOST: u64 = 49_000;

/// Operations that are requested at once.
const BATCH: u64 = 500;

/// Milliseconds of the first request for the page, in a server that has not read the run before.
pub(super) const WORKLOAD: Workload = Workload {
    id: "BP",
    name: "long-page",
    what: "the first page of runs with 10,000 operations and with 98,000 events",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[
        Row {
            id: "BP operations",
            what: "the page of a run with 10,000 operations",
            unit: "ms",
            target: Target::AtMost(400.0).everywhere(),
        },
        Row {
            id: "BP events",
            what: "the page of a run with 98,000 events",
            unit: "ms",
            target: Target::AtMost(1_000.0).everywhere(),
        },
        Row {
            id: "BP rows",
            what: "the next 500 rows of that timeline",
            unit: "ms",
            target: Target::AtMost(400.0).everywhere(),
        },
    ],
    run,
};

/// Another step, so that each operation has a row of its own: equal ones in a row are shown as one.
#[step]
async fn add_two(number: u64) -> Result<u64, StepError> {
    Ok(number + 2)
}

/// A run with this many operations.
#[workflow]
async fn long(ctx: Context, operations: u64) -> Result<(), Error> {
    for first in (0..operations).step_by(BATCH as usize) {
        let batch = (first..(first + BATCH).min(operations)).map(async |number| match number % 2 {
            0 => ctx.step(add_one, number).await,
            _ => ctx.step(add_two, number).await,
        });
        join_all(batch.collect::<Vec<_>>()).await;
    }
    Ok(())
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    block_on(async {
        let world = env.open().await?;
        let worker = Worker::builder(world.clone()).register((long, add_one, add_two)).start().await?;
        let client = Client::new(world.clone());
        let many = client.start(long, MANY).await?;
        many.output().await?;
        let most = client.start(long, MOST).await?;
        most.output().await?;
        worker.stop().await?;
        let (operations, _) = page_ms(&world, many.id()).await?;
        let (events, rows) = page_ms(&world, most.id()).await?;
        Ok([operations, events, rows].map(Measurement::absolute).into())
    })
}

/// The milliseconds of the page of a run, and of a block of its timeline.
async fn page_ms(world: &Arc<dyn World>, run: RunId) -> Result<(f64, f64)> {
    let server = LocalServer::of_pages(Client::new(world.clone())).await?;
    let mut connection = HttpConnection::open(&server.address()).await?;
    let watch = Stopwatch::start();
    connection.get(&format!("/runs/{run}")).await?;
    let page = watch.micros() / 1e3;
    let watch = Stopwatch::start();
    connection.get(&format!("/runs/{run}/timeline?row=500")).await?;
    let rows = watch.micros() / 1e3;
    server.stop().await?;
    Ok((page, rows))
}
