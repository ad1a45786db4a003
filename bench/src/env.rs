//! What a workload is given: a world, a folder of its own, and the raw limits measured a moment before.

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outlast::World;

use crate::Result;
use crate::raw::Raw;

/// The longest that one measurement may take. One that takes longer hangs.
const MEASUREMENT_MAX: Duration = Duration::from_secs(300);

/// The worlds that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WorldKind {
    /// One file, `synchronous=FULL`.
    Sqlite,
    /// Nothing is kept: the engine alone.
    Memory,
}

impl WorldKind {
    /// What a commit waits for in this world.
    pub(crate) fn sync(self) -> &'static str {
        match self {
            Self::Sqlite => "full",
            Self::Memory => "none",
        }
    }
}

impl fmt::Display for WorldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sqlite => "sqlite",
            Self::Memory => "memory",
        })
    }
}

/// What a workload is given for one round.
#[derive(Debug)]
pub(crate) struct Env {
    /// The world to measure.
    pub(crate) world: WorldKind,
    /// A folder that nobody else uses, on the disk that was measured.
    pub(crate) folder: PathBuf,
    /// The raw limits, measured just before.
    pub(crate) raw: Raw,
}

impl Env {
    /// The URL of the world in this round's folder.
    pub(crate) fn url(&self) -> String {
        match self.world {
            WorldKind::Sqlite => sqlite_url(&self.folder),
            WorldKind::Memory => "memory:".into(),
        }
    }

    /// Opens the world of this round.
    pub(crate) async fn open(&self) -> Result<Arc<dyn World>> {
        Ok(outlast::open(&self.url()).await?)
    }
}

/// The URL of the SQLite world in a folder.
pub(crate) fn sqlite_url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("bench.db").display())
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
