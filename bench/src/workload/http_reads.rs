//! B12, reads over HTTP: the latency of mixed reads at a fixed rate, in a world with many runs.

use std::time::Duration;

use outlast::prelude::*;

use super::http_client::HttpConnection;
use super::http_server::LocalServer;
use super::large_world::{LargeWorld, TAG};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::percentile;
use crate::stopwatch::{Stopwatch, work};

/// The runs of the world.
const FINISHED: usize = 90_000;
const WAITING: usize = 10_000;

/// Connections that are kept open, reads of each, and the time from one to the next: 2,000 reads/s in all.
const CONNECTIONS: u32 = 32;
const READS: u32 = 600;
const INTERVAL: Duration = Duration::from_millis(16);

/// The 99th percentile of the time from the moment at which a read is due until its response has arrived.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B12",
    name: "http-reads",
    what: "2,000 mixed reads/s over HTTP with 100,000 runs, p50 and p99",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[
        Row {
            id: "B12 p50",
            what: "2,000 mixed reads/s over HTTP with 100,000 runs, p50",
            unit: "ms",
            target: Target::Unlimited.everywhere(),
        },
        Row {
            id: "B12 p99",
            what: "2,000 mixed reads/s over HTTP with 100,000 runs, p99",
            unit: "ms",
            target: Target::AtMost(50.0).everywhere(),
        },
    ],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let full = LargeWorld::make(env, FINISHED, WAITING)?;
    let paths = paths(&full);
    let times = block_on(async {
        let server = LocalServer::of_api(Client::new(outlast::open(&full.url).await?)).await?;
        // The first reads fill caches.
        let mut first = HttpConnection::open(&server.address()).await?;
        for path in &paths {
            first.get(path).await?;
        }
        drop(first);
        let watch = Stopwatch::start();
        let mut readers = tokio::task::JoinSet::new();
        for number in 0..CONNECTIONS {
            let (address, paths) = (server.address(), paths.clone());
            readers.spawn(async move { read(&address, &paths, number, watch).await });
        }
        let mut times = Vec::with_capacity((CONNECTIONS * READS) as usize);
        while let Some(read) = readers.join_next().await {
            times.extend(read??);
        }
        server.stop().await?;
        Ok(times)
    })?;
    Ok([50, 99].map(|percent| Measurement::absolute(percentile(&times, percent))).into())
}

/// One connection: reads at fixed moments, whether or not the last one was slow.
async fn read(address: &str, paths: &[String], number: u32, watch: Stopwatch) -> Result<Vec<f64>> {
    let mut connection = HttpConnection::open(address).await?;
    let mut times = Vec::with_capacity(READS as usize);
    for index in 0..READS {
        let due = INTERVAL * index + INTERVAL * number / CONNECTIONS;
        work(due.saturating_sub(watch.elapsed())).await;
        let begin = watch.elapsed().min(due + Duration::from_millis(2));
        connection.get(&paths[(index + number) as usize % paths.len()]).await?;
        times.push((watch.elapsed() - begin.max(due)).as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// The reads: lists, single runs and what belongs to them.
fn paths(full: &LargeWorld) -> Vec<String> {
    let shape = &full.shape;
    let mut paths: Vec<String> = [
        "/api/runs".to_owned(),
        "/api/runs?open=true".to_owned(),
        "/api/runs?status=completed&limit=100".to_owned(),
        "/api/runs?workflow=sleep".to_owned(),
        format!("/api/runs?tag={}:{}", TAG.0, TAG.1),
        format!("/api/runs?parent={}", full.parent),
        "/api/counts".to_owned(),
    ]
    .into();
    for number in (0..shape.runs()).step_by(shape.runs() / 20) {
        let run = shape.id(number);
        for part in ["", "/operations", "/events", "/explain"] {
            paths.push(format!("/api/runs/{run}{part}"));
        }
    }
    paths
}
