//! B15, the page of runs: its time and its calls of the world, in a world with many runs.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast::World;
use outlast::core::{WorldError, WorldMethod, WorldWrapper};
use outlast::prelude::*;

use super::http_client::HttpConnection;
use super::http_server::LocalServer;
use super::large_world::{LargeWorld, TAG};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::percentile;
use crate::stopwatch::Stopwatch;

/// The runs of the world.
const FINISHED: usize = 90_000;
const WAITING: usize = 10_000;

/// How often each page is read.
const READS: usize = 60;

/// The 99th percentile of the time of a page, and its calls of the world.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B15",
    name: "runs-page",
    what: "the dashboard's page of runs with 100,000 runs, p99; and its calls of the world",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[
        Row {
            id: "B15 p99",
            what: "the page of runs with 100,000 runs, p99",
            unit: "ms",
            target: Target::AtMost(25.0).everywhere(),
        },
        Row {
            id: "B15 calls",
            what: "calls of the world for that page",
            unit: "calls",
            target: Target::AtMost(3.0).everywhere(),
        },
    ],
    run,
};

/// Counts the calls of a world.
#[derive(Debug)]
struct CallCounter {
    inner: Arc<dyn World>,
    calls: Arc<AtomicU64>,
}

impl WorldWrapper for CallCounter {
    fn inner(&self) -> &dyn World {
        &*self.inner
    }

    async fn call<T: Send>(
        &self,
        _: WorldMethod,
        call: impl Future<Output = Result<T, WorldError>> + Send,
    ) -> Result<T, WorldError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        call.await
    }
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let full = LargeWorld::make(env, FINISHED, WAITING)?;
    let paths = [
        "/runs".to_owned(),
        "/runs?open=true".to_owned(),
        "/runs?status=completed".to_owned(),
        "/runs?status=failed".to_owned(),
        "/runs?workflow=count".to_owned(),
        format!("/runs?tag={}:{}", TAG.0, TAG.1),
    ];
    block_on(async {
        let calls = Arc::new(AtomicU64::new(0));
        let world = CallCounter { inner: outlast::open(&full.url).await?, calls: calls.clone() };
        let server = LocalServer::of_pages(Client::new(Arc::new(world))).await?;
        let mut connection = HttpConnection::open(&server.address()).await?;
        for path in &paths {
            connection.get(path).await?;
        }
        let (mut times, mut calls_max) = (Vec::with_capacity(READS * paths.len()), 0);
        for _ in 0..READS {
            for path in &paths {
                let before = calls.load(Ordering::Relaxed);
                let watch = Stopwatch::start();
                connection.get(path).await?;
                times.push(watch.micros() / 1e3);
                calls_max = calls_max.max(calls.load(Ordering::Relaxed) - before);
            }
        }
        server.stop().await?;
        let p99 = percentile(&times, 99);
        Ok(vec![Measurement::absolute(p99), Measurement::absolute(calls_max as f64)])
    })
}
