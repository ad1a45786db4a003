//! Connections: how they are made, and what a first refusal means.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, RecyclingMethod};
use outlast_core::WorldError;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::of_postgres;
use crate::tls::connector;
use crate::url::Address;

/// For so long a server that is not there is waited for when a world is opened.
const OPEN_PATIENCE: Duration = Duration::from_secs(8);

/// The pause between two tries.
const OPEN_PAUSE: Duration = Duration::from_millis(250);

/// The oldest Postgres that has what is needed.
const VERSION_MIN: i32 = 140_000;

/// Every statement seeks by an index that was made for it, and its plan is made once. What Postgres would choose
/// for a table that is still small would be kept when it has grown.
const PLANS: &str = "-c plan_cache_mode=force_generic_plan -c jit=off -c enable_seqscan=off \
    -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c enable_sort=off";

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
        let limits = format!("{PLANS} -c statement_timeout={}", timeout.as_millis());
        let options = match config.get_options() {
            Some(options) => format!("{limits} {options}"),
            None => limits,
        };
        config.options(options);
        Ok(Self { handle, tls, config })
    }

    /// Makes a connection, in the world's own thread.
    pub(crate) async fn connect(&self) -> Result<Line, Error> {
        let (tls, config) = (self.tls.clone(), self.config.clone());
        let made = self.handle.spawn(async move { config.connect(tls).await });
        match made.await {
            Ok(line) => line,
            Err(_) => Err(Error::__private_api_timeout()),
        }
    }

    /// A pool of so many connections.
    pub(crate) fn pool(&self, size: usize) -> Result<Pool, WorldError> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(self.config.clone(), self.clone(), config);
        let pool = Pool::builder(manager).max_size(size).build();
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

/// Waits until the server is there, and says what stands in the way.
pub(crate) async fn greet(pool: &Pool, place: &str, handle: &Handle) -> Result<(), WorldError> {
    let tries_max = OPEN_PATIENCE.as_millis() / OPEN_PAUSE.as_millis();
    let mut tries = 0;
    loop {
        let refused = match greet_once(pool, place).await {
            Err(error) if error.is_transient() && tries < tries_max => error,
            answer => return answer,
        };
        if tries == 0 {
            tracing::warn!(%place, error = %refused, "Postgres does not answer yet; trying again");
        }
        tries += 1;
        pause(handle, OPEN_PAUSE).await;
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

async fn greet_once(pool: &Pool, place: &str) -> Result<(), WorldError> {
    let client = match pool.get().await {
        Ok(client) => client,
        Err(deadpool_postgres::PoolError::Backend(error)) => return Err(at_first(&error, place)),
        Err(error) => return Err(WorldError::Unavailable(format!("`{place}`: {error}"))),
    };
    let row = client
        .query_one("SELECT current_setting('server_version_num')::integer, pg_is_in_recovery()", &[])
        .await
        .map_err(|error| at_first(&error, place))?;
    let (version, is_replica): (i32, bool) = (row.get(0), row.get(1));
    if version < VERSION_MIN {
        return Err(WorldError::Conflict(format!(
            "Postgres at `{place}` is version {}, which is too old; use 14 or a later one",
            version / 10_000
        )));
    }
    if is_replica {
        return Err(WorldError::Conflict(format!(
            "Postgres at `{place}` is a replica that takes no writes; connect to the primary server"
        )));
    }
    Ok(())
}

/// What a refusal of the first connection means: what will not mend itself is said at once.
fn at_first(error: &Error, place: &str) -> WorldError {
    let Some(code) = error.code() else {
        let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        let is_name = why.contains("lookup") || why.contains("not known") || why.contains("resolution");
        if is_name {
            return WorldError::Invalid(format!(
                "the host of Postgres at `{place}` is not known ({why}); check its name"
            ));
        }
        let text = error.to_string();
        if text.contains("TLS") || text.contains("authentication") || text.contains("password") {
            return WorldError::Invalid(format!("Postgres at `{place}` cannot be used ({text}: {why})"));
        }
        return WorldError::Unavailable(format!(
            "Postgres at `{place}` does not answer ({why}); start the server, or check host and port"
        ));
    };
    match code.code() {
        "28P01" | "28000" => WorldError::Invalid(format!(
            "Postgres at `{place}` does not let this user in ({error}); check user, password and pg_hba.conf",
            error = error.as_db_error().map_or("", |error| error.message())
        )),
        "3D000" => WorldError::Invalid(format!("there is no such database at `{place}`; create it first")),
        _ => of_postgres(error, place),
    }
}
