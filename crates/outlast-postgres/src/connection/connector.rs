//! [`Connector`]: makes connections and pools, with the server settings that the world's statements need.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool::managed::QueueMode;
use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, RecyclingMethod};
use outlast_core::{Backoff, WorldError};
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
const PLANNER_SETTINGS: [(&str, &str); 7] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_sort", "off"),
];

/// With keepalives the server notices that a client has disappeared without closing its connection, and frees its
/// locks.
const KEEPALIVE_SETTINGS: [(&str, &str); 3] =
    [("tcp_keepalives_idle", "20"), ("tcp_keepalives_interval", "5"), ("tcp_keepalives_count", "3")];

/// Makes connections that one runtime drives.
#[derive(Clone)]
pub(crate) struct Connector {
    handle: Handle,
    tls: MakeRustlsConnect,
    /// The target, with the settings as startup options.
    config: Config,
    /// The target without them, and the statement that makes them.
    plain_config: Config,
    set_statement: Arc<str>,
    /// Whether the settings are made by a statement after the login: a pooler may not pass on startup options.
    sets_by_statement: Arc<AtomicBool>,
    /// Whether there are no settings at all.
    omits_settings: bool,
    /// How long one statement may take.
    timeout: Duration,
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
        let plain_config = target.config.clone();
        let (config, set_statement) = with_settings(&plain_config, timeout, &PLANNER_SETTINGS);
        let (sets_by_statement, omits_settings) = (Arc::default(), false);
        Ok(Self {
            handle,
            tls,
            config,
            plain_config,
            set_statement,
            sets_by_statement,
            omits_settings,
            timeout,
        })
    }

    /// The same connector for transactions of steps: the planner has the settings that the user's statements expect, and
    /// the server ends a transaction whose client does nothing for longer than the timeout of a statement.
    pub(crate) fn for_steps(&self) -> Self {
        let timeout = self.timeout.as_millis().to_string();
        let idle_timeout = [("idle_in_transaction_session_timeout", timeout.as_str())];
        let (config, set_statement) = with_settings(&self.plain_config, self.timeout, &idle_timeout);
        Self { config, set_statement, ..self.clone() }
    }

    /// The connector without settings, for a pooler whose mode is not known: it may pass the connection with its
    /// settings to other clients.
    pub(crate) fn without_settings(&self) -> Self {
        Self { omits_settings: true, ..self.clone() }
    }

    /// Makes the settings by a statement from now on, because a pooler does not pass on startup options.
    pub(crate) fn switch_to_set_statement(&self) {
        self.sets_by_statement.store(true, Ordering::Relaxed);
    }

    /// Whether the settings are made by a statement.
    pub(crate) fn sets_by_statement(&self) -> bool {
        self.sets_by_statement.load(Ordering::Relaxed)
    }

    /// The same connector for connections that another runtime drives.
    pub(crate) fn on_runtime(&self, handle: Handle) -> Self {
        Self { handle, ..self.clone() }
    }

    /// Makes a connection, on the connector's runtime. It has a timeout, because a frozen server accepts a connection and never
    /// responds.
    pub(crate) async fn connect(&self) -> Result<RawConnection, Error> {
        let limit = self.config.get_connect_timeout().copied().unwrap_or_default() + LOGIN_TIMEOUT;
        let connector = self.clone();
        let connecting = async move { tokio::time::timeout(limit, connector.connect_with_settings()).await };
        match self.handle.spawn(connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(_)) => {
                let message = format!("the server did not complete the login within {limit:?}");
                Err(connection_error(io::ErrorKind::TimedOut, message).await)
            }
            Err(error) => Err(connection_error(io::ErrorKind::Other, error.to_string()).await),
        }
    }

    /// Makes a connection with the settings of the world: in the startup message, or with a statement if a pooler refuses
    /// them there. Without them if the connector omits settings.
    async fn connect_with_settings(&self) -> Result<RawConnection, Error> {
        if self.omits_settings {
            return self.plain_config.connect(self.tls.clone()).await;
        }
        if !self.sets_by_statement() {
            return self.config.connect(self.tls.clone()).await;
        }
        let (client, mut connection) = self.plain_config.connect(self.tls.clone()).await?;
        // Nobody drives the connection yet.
        let set = tokio::select! {
            biased;
            set = client.batch_execute(&self.set_statement) => set,
            ended = &mut connection => match ended {
                Err(error) => Err(error),
                Ok(()) => {
                    let message = "the connection was closed before its settings were made".to_owned();
                    Err(connection_error(io::ErrorKind::UnexpectedEof, message).await)
                }
            },
        };
        set.map(|()| (client, connection))
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

/// The target with settings as startup options, and the statement that makes the same settings.
fn with_settings(plain_config: &Config, timeout: Duration, settings: &[(&str, &str)]) -> (Config, Arc<str>) {
    // With the timeout, a slow server does not keep working on statements that this process has given up.
    let timeout = timeout.as_millis().to_string();
    let own = [(SETTINGS_MARKER, "on"), ("statement_timeout", timeout.as_str())];
    let settings = || settings.iter().chain(&KEEPALIVE_SETTINGS).chain(&own);
    let mut options: Vec<String> = settings().map(|(name, value)| format!("-c {name}={value}")).collect();
    options.extend(plain_config.get_options().map(str::to_owned));
    let mut config = plain_config.clone();
    config.options(options.join(" "));
    let set: Vec<String> = settings().map(|(name, value)| format!("SET {name} = '{value}'")).collect();
    (config, set.join("; ").into())
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

/// Waits in real time, on the timer of a runtime.
#[allow(clippy::disallowed_methods, reason = "pauses between attempts at a real server")]
pub(crate) async fn pause(handle: &Handle, duration: Duration) {
    let sleep = {
        let _entered = handle.enter();
        tokio::time::sleep(duration)
    };
    sleep.await;
}

/// Waits before the next try, on the timer of the I/O runtime.
pub(crate) async fn pause_before_retry(handle: &Handle, backoff: &mut Backoff) {
    pause(handle, backoff.next_pause(fastrand::f64())).await;
}
