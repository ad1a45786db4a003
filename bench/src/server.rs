//! The Postgres that is measured: a server of this program's own, as durable as one in production.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throwaway::{Address, Postgres, postgres};
use tokio_postgres::{Client, NoTls};

use crate::Result;

/// Settings without which a commit would not wait for the disk, or a page could be torn.
const DURABLE: [&str; 3] = ["fsync", "synchronous_commit", "full_page_writes"];

/// A server with the settings that Postgres comes with. It is gone with the last who holds this.
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
            format!("no server can be started in `{}`; give another --folder: {error}", folder.display())
        })?;
        let mut sql = Sql::connect(&postgres.url())?;
        for setting in DURABLE {
            let value: String = sql.one(&format!("SHOW {setting}"))?;
            if value != "on" {
                return Err(format!(
                    "the server's setting {setting} is {value}, so that nothing raw can be measured"
                )
                .into());
            }
        }
        Ok(Self(Arc::new(Shared { postgres, databases: AtomicUsize::new(0) })))
    }

    /// What the server calls itself, without where it was built.
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

    /// A connection to the database that no workload uses.
    pub(crate) fn sql(&self) -> Result<Sql> {
        Sql::connect(&self.0.postgres.url())
    }
}

/// A database of one round. It is dropped with this, whoever is connected.
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
            // The server writes what it has in memory first, so that the next round does not wait for it.
            sql.run(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name()))
        });
        if let Err(error) = dropped {
            eprintln!("warning: the database {} stays where it is: {error}", self.name());
        }
    }
}

/// One connection, and the thread of the caller alone: nothing is between it and the server.
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
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(explained)?;
            // Its end is the client's too, which says why.
            tokio::spawn(async move { drop(connection.await) });
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(client)
        })?;
        Ok(Self { runtime, client })
    }

    /// Does something with the connection.
    pub(crate) fn with<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        self.runtime.block_on(work(&mut self.client)).map_err(explained)
    }

    /// Runs statements that answer nothing.
    pub(crate) fn run(&mut self, statements: &str) -> Result<()> {
        self.with(async |client| client.batch_execute(statements).await)
    }

    /// The one value that a query answers.
    pub(crate) fn one<T: for<'a> tokio_postgres::types::FromSql<'a>>(&mut self, query: &str) -> Result<T> {
        self.with(async |client| client.query_one(query, &[]).await?.try_get(0))
    }
}

/// The driver's errors say "db error" and keep the server's words for those who ask.
fn explained(error: tokio_postgres::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error.as_db_error() {
        Some(said) => format!("Postgres refuses: {said}").into(),
        None => format!("Postgres cannot be asked: {error}").into(),
    }
}
