//! Servers in the measured process.

use std::net::SocketAddr;

use outlast::Client;
use outlast_server::{Config, router, serve};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Result;

/// A server on a free port of this machine.
#[derive(Debug)]
pub(super) struct LocalServer {
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), outlast::Error>>,
}

impl LocalServer {
    /// Serves the API.
    pub(super) async fn of_api(client: Client) -> Result<Self> {
        let shutdown = CancellationToken::new();
        let app = router(client, Config::local().shutdown(shutdown.clone()));
        let (listener, address) = listen().await?;
        let serving = tokio::spawn(serve(listener, app, shutdown.clone()));
        Ok(Self { address, shutdown, serving })
    }

    /// Serves the pages.
    pub(super) async fn of_pages(client: Client) -> Result<Self> {
        let service = outlast_dashboard::Service::new(client);
        let pages = outlast_dashboard::router(service, outlast_dashboard::DashboardConfig::local());
        let shutdown = CancellationToken::new();
        let (listener, address) = listen().await?;
        let serving = tokio::spawn(serve(listener, pages, shutdown.clone()));
        Ok(Self { address, shutdown, serving })
    }

    /// Its address.
    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Stops it.
    pub(super) async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        Ok(self.serving.await??)
    }
}

async fn listen() -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
