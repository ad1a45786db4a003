//! Connections: how they are made.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use deadpool::managed::QueueMode;
use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, RecyclingMethod};
use outlast_core::WorldError;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::tls::connector;
use crate::url::Address;

/// How long a server that took the connection may take to let us in, besides the time to reach it.
const WELCOME: Duration = Duration::from_secs(10);

/// A setting that shows that the settings of a connection reach the server.
pub(crate) const MARK: &str = "outlast.settings";

/// Every statement seeks by an index that was made for it, and its plan is made once. What Postgres would choose
/// for a table that is still small would be kept when it has grown.
pub(crate) const PLANS: &str = "-c plan_cache_mode=force_generic_plan -c jit=off -c enable_seqscan=off \
    -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c enable_sort=off";

/// The server notices that the other side is gone though nobody said so, and frees what that held.
const KEEPALIVE: &str = "-c tcp_keepalives_idle=20 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3";

/// Makes connections, all of them driven by the world's own thread.
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

/// A connection, and what drives it.
pub(crate) type Line =
    (Client, Connection<Socket, <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream>);

impl Connector {
    /// A connector to the address.
    pub(crate) fn new(address: &Address, handle: Handle, timeout: Duration) -> Result<Self, WorldError> {
        let tls = connector(address.config.get_ssl_mode(), address.root_cert.as_deref())?;
        let mut config = address.config.clone();
        // A frozen server must not keep what nobody waits for any more.
        let limits = format!("{PLANS} {KEEPALIVE} -c {MARK}=on -c statement_timeout={}", timeout.as_millis());
        let options = match config.get_options() {
            Some(options) => format!("{limits} {options}"),
            None => limits,
        };
        config.options(options);
        Ok(Self { handle, tls, config })
    }

    /// Makes a connection, in the world's own thread. A server that is frozen takes it and says nothing.
    pub(crate) async fn connect(&self) -> Result<Line, Error> {
        let (tls, config) = (self.tls.clone(), self.config.clone());
        let limit = config.get_connect_timeout().copied().unwrap_or_default() + WELCOME;
        let made = async move { tokio::time::timeout(limit, config.connect(tls)).await };
        match self.handle.spawn(made).await {
            Ok(Ok(line)) => line,
            Ok(Err(_)) | Err(_) => Err(Error::__private_api_timeout()),
        }
    }

    /// A pool of so many connections.
    pub(crate) fn pool(&self, size: usize) -> Result<Pool, WorldError> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(self.config.clone(), self.clone(), config);
        // The connection that was used last, whose statements are prepared and in the server's caches.
        let pool = Pool::builder(manager).max_size(size).queue_mode(QueueMode::Lifo).build();
        pool.map_err(|error| WorldError::Invalid(format!("the pool cannot be made: {error}")))
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

/// Waits in real time, by the timer of the world's own thread.
#[allow(clippy::disallowed_methods, reason = "between two tries of a server that does not answer")]
pub(crate) async fn pause(handle: &Handle, duration: Duration) {
    let nap = {
        let _entered = handle.enter();
        tokio::time::sleep(duration)
    };
    nap.await;
}
