//! [`Connector`]: makes connections and pools, with the server settings that the world's statements need.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use deadpool::managed::QueueMode;
use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, RecyclingMethod};
use outlast_core::WorldError;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connection::failed_stream::connection_error;
use crate::connection::tls::tls_connector;
use crate::connection::url::ConnectionTarget;

/// How long a server that accepted the connection may take for the login, in addition to the connect timeout.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A setting of every connection. If the server does not know it, the settings of connections do not reach the server.
pub(crate) const SETTINGS_MARKER: &str = "outlast.settings";

/// Planner settings. For every statement there is an index, and its plan is made once: the plan that Postgres would
/// otherwise choose for a small table would still be used when the table has grown.
pub(crate) const PLANNER_OPTIONS: &str = "-c plan_cache_mode=force_generic_plan -c jit=off -c enable_seqscan=off \
    -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c enable_sort=off";

/// With keepalives the server notices that a client has disappeared without closing its connection, and frees its
/// locks.
const KEEPALIVE_OPTIONS: &str =
    "-c tcp_keepalives_idle=20 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3";

/// Makes connections, all of which are driven by the I/O runtime.
#[derive(Clone)]
pub(crate) struct Connector {
    handle: Handle,
    tls: MakeRustlsConnect,
    config: Config,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// A client, and the future that drives its connection.
pub(crate) type RawConnection =
    (Client, Connection<Socket, <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream>);

impl Connector {
    /// A connector to this target. The server cancels statements after `timeout`.
    pub(crate) fn new(
        target: &ConnectionTarget,
        handle: Handle,
        timeout: Duration,
    ) -> Result<Self, WorldError> {
        let tls = tls_connector(target.config.get_ssl_mode(), target.root_cert.as_deref())?;
        let mut config = target.config.clone();
        // With the timeout, a slow server does not keep working on statements that this process has given up.
        let server_options = format!(
            "{PLANNER_OPTIONS} {KEEPALIVE_OPTIONS} -c {SETTINGS_MARKER}=on -c statement_timeout={}",
            timeout.as_millis()
        );
        let options = match config.get_options() {
            Some(options) => format!("{server_options} {options}"),
            None => server_options,
        };
        config.options(options);
        Ok(Self { handle, tls, config })
    }

    /// Makes a connection, on the I/O runtime. It has a timeout, because a frozen server accepts a connection and never
    /// responds.
    pub(crate) async fn connect(&self) -> Result<RawConnection, Error> {
        let (tls, config) = (self.tls.clone(), self.config.clone());
        let limit = config.get_connect_timeout().copied().unwrap_or_default() + LOGIN_TIMEOUT;
        let connecting = async move { tokio::time::timeout(limit, config.connect(tls)).await };
        match self.handle.spawn(connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(_)) => {
                let message = format!("the server did not complete the login within {limit:?}");
                Err(connection_error(io::ErrorKind::TimedOut, message).await)
            }
            Err(error) => Err(connection_error(io::ErrorKind::Other, error.to_string()).await),
        }
    }

    /// A pool of at most `size` connections.
    pub(crate) fn pool(&self, size: usize) -> Result<Pool, WorldError> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(self.config.clone(), self.clone(), config);
        // Last in, first out: the connection that was used last has its statements prepared and the server's caches
        // warm.
        let pool = Pool::builder(manager).max_size(size).queue_mode(QueueMode::Lifo).build();
        pool.map_err(|error| WorldError::invalid(format!("the pool cannot be created: {error}")))
    }
}

impl Connect for Connector {
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(async move {
            let (client, connection) = Self::connect(self).await?;
            let driver = self.handle.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to Postgres is lost");
                }
            });
            Ok((client, driver))
        })
    }
}

/// Waits in real time, on the timer of the I/O runtime.
#[allow(clippy::disallowed_methods, reason = "pauses between attempts at a real server")]
pub(crate) async fn pause(handle: &Handle, duration: Duration) {
    let sleep = {
        let _entered = handle.enter();
        tokio::time::sleep(duration)
    };
    sleep.await;
}
