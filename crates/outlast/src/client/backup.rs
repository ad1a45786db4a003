//! Backups of worlds that are stored in a file.

use std::path::Path;

use outlast_core::World;

use crate::error::Error;

/// Copies a world to a file that must not exist, while its workers and clients continue to work.
///
/// The copy has every start, message and turn that was acknowledged before the call. It can be opened as a separate
/// world. Runs that were being executed continue there immediately, as after a crash of the workers, so steps may be
/// attempted again. Do not let workers serve both the original and the copy, unless effects may happen twice.
///
/// # Errors
///
/// When the file exists, its folder does not exist, or it cannot be written; no copy is left then. Also when the world
/// is not stored in a file: a memory world stores nothing, and a database has its own tools.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), outlast::Error> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = |name: &str| folder.path().join(name).display().to_string();
/// let world = outlast::open(&format!("sqlite:{}", path("shop.db"))).await?;
/// outlast::backup(&*world, path("shop-monday.db")).await?;
/// # assert!(outlast::backup(&*world, path("shop-monday.db")).await.is_err());
/// # Ok(()) }
/// ```
pub async fn backup(world: &dyn World, to: impl AsRef<Path>) -> Result<(), Error> {
    #[cfg(feature = "sqlite")]
    if let Some(world) = (world as &dyn std::any::Any).downcast_ref::<outlast_sqlite::SqliteWorld>() {
        return Ok(world.backup(to).await?);
    }
    let description = world.describe();
    match description.kind {
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(outlast_sqlite::backup(description.place.as_ref(), to.as_ref(), world.clock()).await?),
        "memory" => {
            Err(Error::invalid("a world in memory cannot be backed up; open a `sqlite:` world to keep runs"))
        }
        kind => Err(Error::invalid(format!(
            "a world of kind `{kind}` cannot be backed up to a file (`{}`); use the tools of its database",
            to.as_ref().display()
        ))),
    }
}
