//! The environment of a workload: a world, a new folder, and the raw limits measured just before.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outlast::World;

use crate::Result;
use crate::raw::RawLimits;
use crate::server::Database;

/// The time limit of one measurement.
const MEASUREMENT_MAX: Duration = Duration::from_secs(300);

/// The name of the round's world.
const OWN: &str = "bench";

/// The worlds that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WorldKind {
    /// One file, `synchronous=FULL`.
    Sqlite,
    /// A server on this machine, with the settings that Postgres comes with.
    Postgres,
    /// Nothing is stored: the engine alone.
    Memory,
}

impl WorldKind {
    /// The durability setting of this world.
    pub(crate) fn sync(self) -> &'static str {
        match self {
            Self::Sqlite => "full",
            Self::Postgres => "on",
            Self::Memory => "none",
        }
    }
}

impl fmt::Display for WorldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Memory => "memory",
        })
    }
}

/// The environment of a workload in one round.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The world to measure.
    pub(crate) world: WorldKind,
    /// A new folder, on the measured disk.
    pub(crate) folder: PathBuf,
    /// A new database, if the world is Postgres.
    pub(crate) database: Option<Database>,
    /// The raw limits, measured just before.
    pub(crate) raw: RawLimits,
}

impl Environment {
    /// The URL of the world of this round.
    pub(crate) fn url(&self) -> String {
        self.url_of(OWN)
    }

    /// The URL of another new world.
    pub(crate) fn url_of(&self, name: &str) -> String {
        match (&self.database, self.world) {
            (Some(database), _) => format!("{}?schema={name}", database.url()),
            (None, WorldKind::Memory) => "memory:".into(),
            (None, _) => format!("sqlite:{}", self.folder.join(format!("{name}.db")).display()),
        }
    }

    /// The database of this round.
    pub(crate) fn database(&self) -> Result<&Database> {
        Ok(self.database.as_ref().ok_or("this workload requires Postgres")?)
    }

    /// Opens the world of this round.
    pub(crate) async fn open(&self) -> Result<Arc<dyn World>> {
        Ok(outlast::open(&self.url()).await?)
    }
}

/// Runs a measurement on a runtime of its own with as many threads as a user's program has by default.
pub(crate) fn block_on<T>(measurement: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(MEASUREMENT_MAX, measurement)
            .await
            .map_err(|_| format!("the measurement did not end within {MEASUREMENT_MAX:?}; a run hangs"))?
    })
}
