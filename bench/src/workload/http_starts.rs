//! B13, starts over HTTP: how many runs can be started per second, compared with the library.

use outlast::prelude::*;

use super::http_client::HttpConnection;
use super::http_server::LocalServer;
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stopwatch::Stopwatch;

/// Connections that are kept open, and tasks that call the library.
const CALLERS: usize = 32;

/// Starts of each.
const STARTS: usize = 250;

/// Starts per second over HTTP, as a part of those through the library.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B13",
    name: "http-starts",
    what: "starts over 32 HTTP connections; x starts by 32 tasks through the library",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[Row {
        id: "B13",
        what: "starts over 32 HTTP connections; x the library",
        unit: "starts/s",
        target: Target::AtLeast(0.5).everywhere(),
    }],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    block_on(async {
        // No worker: only starts are measured.
        let client = Client::new(env.open().await?);
        let server = LocalServer::of_api(client.clone()).await?;
        by_library(&client, 8).await?;
        over_http(&server.address(), 8).await?;
        let library = by_library(&client, STARTS).await?;
        let http = over_http(&server.address(), STARTS).await?;
        server.stop().await?;
        Ok(vec![Measurement::relative(http, http / library)])
    })
}

/// Starts per second through the library.
async fn by_library(client: &Client, starts: usize) -> Result<f64> {
    let watch = Stopwatch::start();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let client = client.clone();
        callers.spawn(async move {
            for _ in 0..starts {
                client.start_json("import", 1, "{\"page\":1}").await?;
            }
            Ok::<_, outlast::Error>(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    Ok((CALLERS * starts) as f64 / watch.seconds())
}

/// Starts per second over HTTP.
async fn over_http(address: &str, starts: usize) -> Result<f64> {
    let watch = Stopwatch::start();
    let mut callers = tokio::task::JoinSet::<Result<()>>::new();
    for _ in 0..CALLERS {
        let address = address.to_owned();
        callers.spawn(async move {
            let mut connection = HttpConnection::open(&address).await?;
            for _ in 0..starts {
                let body = r#"{"workflow":"import","version":1,"input":{"page":1}}"#;
                let (status, _) = connection.send("POST", "/api/runs", body).await?;
                if status != 201 {
                    return Err(format!("POST /api/runs: {status} {}", connection.text()).into());
                }
            }
            Ok(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    Ok((CALLERS * starts) as f64 / watch.seconds())
}
