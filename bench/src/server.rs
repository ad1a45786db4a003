//! The measured Postgres server: started by this program, with the durability of production.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throwaway::{Address, Postgres, postgres};
use tokio_postgres::{Client, NoTls};

use crate::Result;

/// Settings that make commits wait for the disk and protect against torn pages.
const DURABILITY_SETTINGS: [&str; 3] = ["fsync", "synchronous_commit", "full_page_writes"];

/// A server with default settings. It ends with the last clone of this value.
#[derive(Clone, Debug)]
pub(crate) struct Server(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    postgres: Postgres,
    databases: AtomicUsize,
}

impl Server {
    /// Starts one with its files in `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        postgres::require()?;
        let started = Postgres::builder().within(folder).start();
        let postgres = started.map_err(|error| {
            format!("no server can be started in `{}`; choose another --folder: {error}", folder.display())
        })?;
        let mut sql = Sql::connect(&postgres.url())?;
        for setting in DURABILITY_SETTINGS {
            let value: String = sql.one(&format!("SHOW {setting}"))?;
            if value != "on" {
                return Err(format!(
                    "the server's setting {setting} is {value}; raw limits cannot be measured"
                )
                .into());
            }
        }
        Ok(Self(Arc::new(Shared { postgres, databases: AtomicUsize::new(0) })))
    }

    /// The version of the server.
    pub(crate) fn version(&self) -> Result<String> {
        let version: String = self.sql()?.one("SHOW server_version")?;
        Ok(format!("PostgreSQL {}", version.split(' ').next().unwrap_or_default()))
    }

    /// An empty database.
    pub(crate) fn database(&self) -> Result<Database> {
        let name = format!("bench_{}", self.0.databases.fetch_add(1, Ordering::Relaxed));
        self.sql()?.run(&format!("CREATE DATABASE {name}"))?;
        let address = Address { database: name, ..self.0.postgres.address().clone() };
        Ok(Database { server: self.clone(), address })
    }

    /// A connection to the database `postgres`.
    pub(crate) fn sql(&self) -> Result<Sql> {
        Sql::connect(&self.0.postgres.url())
    }
}

/// The database of one round. Dropped with this value, even with open connections.
#[derive(Debug)]
pub(crate) struct Database {
    /// Where it is.
    pub(crate) server: Server,
    address: Address,
}

impl Database {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.address.database
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let dropped = self.server.sql().and_then(|mut sql| {
            // The drop also flushes the server's buffers, so that the next round does not wait for them.
            sql.run(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name()))
        });
        if let Err(error) = dropped {
            eprintln!("warning: the database {} was not dropped: {error}", self.name());
        }
    }
}

/// One connection, driven by the caller's thread alone.
#[derive(Debug)]
pub(crate) struct Sql {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Sql {
    /// Connects.
    pub(crate) fn connect(url: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(explain_error)?;
            // An error of the connection is also reported by the client.
            tokio::spawn(async move { drop(connection.await) });
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(client)
        })?;
        Ok(Self { runtime, client })
    }

    /// Calls `work` with the connection.
    pub(crate) fn with<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        self.runtime.block_on(work(&mut self.client)).map_err(explain_error)
    }

    /// Runs statements without results.
    pub(crate) fn run(&mut self, statements: &str) -> Result<()> {
        self.with(async |client| client.batch_execute(statements).await)
    }

    /// The only value of a query's result.
    pub(crate) fn one<T: for<'a> tokio_postgres::types::FromSql<'a>>(&mut self, query: &str) -> Result<T> {
        self.with(async |client| client.query_one(query, &[]).await?.try_get(0))
    }
}

/// The driver's errors display as "db error"; this adds the server's message.
fn explain_error(error: tokio_postgres::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error.as_db_error() {
        Some(output) => format!("Postgres refused: {output}").into(),
        None => format!("Postgres is unreachable: {error}").into(),
    }
}
