//! Serving the API: beside a worker, or on a listener of the caller.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use outlast::{Error, Worker, WorkerBuilder};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::built_ins::start_built_ins;
use crate::config::Config;
use crate::connections::{ConnectionLimits, Listen, accept};
use crate::router;

/// How long open requests are awaited when a server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves an application on a listener until the token is cancelled, and then waits at most 10 s for open requests.
///
/// It accepts at most 1,024 connections at a time, and closes those whose request has not arrived within 10 s. Give the same
/// token to [`Config::shutdown`], so that streams end.
///
/// # Errors
///
/// If the listener fails.
pub async fn serve(listener: TcpListener, app: Router, shutdown: CancellationToken) -> Result<(), Error> {
    serve_on(listener, app, shutdown).await;
    Ok(())
}

/// [Serves](serve) an application on a Unix socket. The permissions of its file decide who can connect; all who can count
/// as callers on this machine.
///
/// # Errors
///
/// If the listener fails.
#[cfg(unix)]
pub async fn serve_unix(
    listener: tokio::net::UnixListener,
    app: Router,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    serve_on(listener, app, shutdown).await;
    Ok(())
}

async fn serve_on(listener: impl Listen, app: Router, shutdown: CancellationToken) {
    let open = accept(listener, app, shutdown, ConnectionLimits::default()).await;
    if tokio::time::timeout(DRAIN, open.wait()).await.is_err() {
        tracing::warn!("requests were still open {DRAIN:?} after the server was asked to stop");
    }
}

/// Lets a worker serve the API of its world.
pub trait ServeExt {
    /// Starts the worker, and serves the API on an address, such as `127.0.0.1:4700`. Await the returned call.
    ///
    /// Unless the worker has a [public URL](WorkerBuilder::public_url), the URLs of webhooks contain this address.
    ///
    /// Without a [`Config`], everyone on this machine may do everything, and the address must be a loopback address.
    fn serve(self, address: impl Into<String>) -> ServeCall;
}

type StartFuture = Pin<Box<dyn Future<Output = Result<Worker, Error>> + Send>>;

/// A call that starts a worker and a server; created by [`ServeExt::serve`].
#[must_use = "nothing starts until the call is awaited"]
pub struct ServeCall {
    client: outlast::Client,
    /// Starts the worker, whose server can be reached under this URL.
    start: Box<dyn FnOnce(&str) -> StartFuture + Send>,
    address: String,
    config: Option<Config>,
}

impl std::fmt::Debug for ServeCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServeCall({})", self.address)
    }
}

impl<S: Send + Sync + 'static> ServeExt for WorkerBuilder<S> {
    fn serve(self, address: impl Into<String>) -> ServeCall {
        ServeCall {
            client: self.client(),
            start: Box::new(|url| Box::pin(self.default_public_url(url).start())),
            address: address.into(),
            config: None,
        }
    }
}

impl ServeCall {
    /// Sets who may call the API, and other settings.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    async fn call(self) -> Result<ServedWorker, Error> {
        let Self { client, start, address, config } = self;
        let shutdown = CancellationToken::new();
        let is_local = config.is_none();
        let config = config.unwrap_or_else(Config::local).shutdown(shutdown.clone());
        let listener = bind(&address, is_local).await?;
        let address = listener.local_addr()?;
        let worker = start(&format!("http://{address}")).await?;
        let built_ins = match config.is_read_only {
            true => None,
            false => Some(start_built_ins(&client).await?),
        };
        let app = router(client, config);
        let server = tokio::spawn(serve(listener, app, shutdown.clone()));
        tracing::info!(%address, "the API is served");
        Ok(ServedWorker { worker, built_ins, server, shutdown, address })
    }
}

/// A listener on an address. Without keys it must be a loopback address.
async fn bind(address: &str, is_local: bool) -> Result<TcpListener, Error> {
    let invalid = |message: String| Error::of_kind(outlast::ErrorKind::Invalid, message);
    let addresses = tokio::net::lookup_host(address).await;
    let addresses: Vec<_> =
        addresses.map_err(|error| invalid(format!("`{address}` is not an address: {error}")))?.collect();
    if is_local && !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(invalid(format!(
            "`{address}` can be reached from other machines, so access keys are needed: add `.config(Config::keys(…))`, or \
             serve on 127.0.0.1"
        )));
    }
    let bound = TcpListener::bind(&addresses[..]).await;
    bound.map_err(|error| Error::msg(format!("cannot listen on `{address}`: {error}; choose another port")))
}

impl IntoFuture for ServeCall {
    type Output = Result<ServedWorker, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}

/// A worker that serves the API of its world.
#[derive(Debug)]
pub struct ServedWorker {
    worker: Worker,
    /// The worker of built-in workflows.
    built_ins: Option<Worker>,
    server: JoinHandle<Result<(), Error>>,
    shutdown: CancellationToken,
    address: SocketAddr,
}

impl ServedWorker {
    /// The address of the server. Port 0 was replaced by the real one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The worker.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Stops the server, which first answers open requests, and then the worker.
    ///
    /// # Errors
    ///
    /// If the worker or the listener failed.
    pub async fn stop(self) -> Result<(), Error> {
        let Self { worker, built_ins, server, shutdown, .. } = self;
        shutdown.cancel();
        let served = server.await.map_err(|error| Error::msg(format!("the server failed: {error}")));
        worker.stop().await?;
        if let Some(built_ins) = built_ins {
            built_ins.stop().await?;
        }
        served?
    }

    /// Works until the process gets SIGINT or SIGTERM, and then stops. A second signal ends the process at once.
    ///
    /// # Errors
    ///
    /// If the worker failed, for example because the file of its world was removed.
    pub async fn run_until_signal(self) -> Result<(), Error> {
        tokio::select! {
            error = self.worker.failed() => {
                self.shutdown.cancel();
                return Err(error);
            }
            () = signal() => {}
        }
        tokio::select! {
            stopped = self.stop() => stopped,
            () = signal() => std::process::exit(130),
        }
    }
}

/// Completes when the process is asked to stop.
async fn signal() {
    #[cfg(unix)]
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => drop(interrupted),
        () = terminated => {}
    }
}
