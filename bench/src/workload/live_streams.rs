//! B14, live streams: what clients that watch the world cost the worker.

use outlast::prelude::*;

use super::child_process::{ChildProcess, ready};
use super::count_workflow::{count_at_once, count_once, worker};
use super::http_client::HttpConnection;
use super::http_server::LocalServer;
use super::throughput::{RUNS, STEPS, STEPS_TOTAL};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::median;
use crate::stopwatch::Stopwatch;

/// The clients, each with a stream of its own.
const CLIENTS: usize = 200;

/// Measurements with and without clients; their medians are compared.
const MEASUREMENTS: usize = 3;

/// Steps per second with clients, as a part of those without.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B14",
    name: "live-streams",
    what: "B1's load while 200 clients in another process follow the list of runs; x without them",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[Row {
        id: "B14",
        what: "B1's load with 200 live clients; x without them",
        unit: "steps/s",
        target: Target::AtLeast(0.95).everywhere(),
    }],
    run,
};

/// The hidden subcommand that follows the list.
pub(crate) const COMMAND: &str = "b14-child";

/// The arguments of the child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LiveClientsArgs {
    /// The address of the server.
    address: String,
    /// The number of clients.
    clients: usize,
}

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    block_on(async {
        let world = env.open().await?;
        let worker = worker(&world).await?;
        let client = Client::new(world);
        let server = LocalServer::of_api(client.clone()).await?;
        count_once(&client, STEPS).await?;
        count_at_once(&client, RUNS, STEPS).await?;
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..MEASUREMENTS {
            without.push(steps_s(&client).await?);
            let address = server.address();
            let count = CLIENTS.to_string();
            let clients =
                tokio::task::spawn_blocking(move || ChildProcess::start(&[COMMAND, &address, &count]))
                    .await??;
            with.push(steps_s(&client).await?);
            drop(clients);
        }
        server.stop().await?;
        worker.stop().await?;
        let (without, with) = (median(&without), median(&with));
        Ok(vec![Measurement::relative(with, with / without)])
    })
}

async fn steps_s(client: &Client) -> Result<f64> {
    let watch = Stopwatch::start();
    count_at_once(client, RUNS, STEPS).await?;
    Ok(STEPS_TOTAL / watch.seconds())
}

/// Opens the streams, and reads them until the parent ends this process.
pub(crate) fn child(options: &LiveClientsArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for _ in 0..options.clients {
            let connection = HttpConnection::open(&options.address).await?;
            let stream = connection.open_stream("/api/live?topics=counts,runs&open=true").await?;
            tokio::spawn(stream.drain());
        }
        ready().await
    })
}
