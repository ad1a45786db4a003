//! Backups of worlds that live in a file.

use std::path::Path;

use outlast_core::World;

use crate::error::Error;

/// Copies a SQLite world to a new file, while its workers and clients keep running.
///
/// The copy contains every start, message and turn that was acknowledged before the call. It opens like any other
/// world. Runs that were in progress continue there as after a crash of their workers, so steps may be attempted again.
/// Do not let workers serve both the original and the copy, because the effects would happen twice.
///
/// # Errors
///
/// If the file exists, its directory does not exist, or it cannot be written; then there is no copy. Also if the world
/// is not a SQLite file: a memory world cannot be copied, and a database has its own tools.
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
    let about = world.describe();
    match about.kind {
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(outlast_sqlite::backup(about.place.as_ref(), to.as_ref(), world.clock()).await?),
        "memory" => {
            Err(Error::invalid("a world in memory has no backups; open a `sqlite:` one to keep runs"))
        }
        kind => Err(Error::invalid(format!(
            "a world of kind `{kind}` is not backed up from here (to `{}`); use the tools of its database",
            to.as_ref().display()
        ))),
    }
}
