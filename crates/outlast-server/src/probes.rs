//! Probes and metrics of a worker, on an address of its own.

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::get;
use outlast::Client;

use crate::config::Config;
use crate::guard::guard;
use crate::state::ServerState;
use crate::{health, metrics};

/// A router with `/livez`, `/readyz` and `/metrics`, for a process that serves no API.
///
/// It answers everybody who can connect: probes and Prometheus have no access keys. The responses are numbers and names of
/// workflows, steps and queues; nothing can be changed, and no payload can be read. Serve it on an address that only the
/// cluster reaches.
///
/// ```no_run
/// # async fn example(client: outlast::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:4701").await?;
/// let shutdown = tokio_util::sync::CancellationToken::new();
/// let app = outlast_server::probes_router(client, shutdown.clone());
/// outlast_server::serve(listener, app, shutdown).await?;
/// # Ok(())
/// # }
/// ```
pub fn probes_router(client: Client, shutdown: tokio_util::sync::CancellationToken) -> Router {
    let state = ServerState::new(client, Config::local().shutdown(shutdown));
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::handler))
        .layer(from_fn(guard))
        .with_state(state)
}
