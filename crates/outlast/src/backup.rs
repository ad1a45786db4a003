//! Backups of worlds that live in a file.

use std::path::Path;

use outlast_core::World;

use crate::error::Error;

/// Copies a world to a file that must not exist, while its workers and clients go on.
///
/// The copy has every start, message and turn that was acknowledged before the call. It opens as a world of
/// its own; what was being worked on goes on there at once, as after a crash of the workers, so steps
/// may be attempted again. Do not let workers serve both the original and the copy, unless the effects may
/// happen twice.
///
/// # Errors
///
/// When the file exists, its folder does not, or it cannot be written: then there is no copy. And when the
/// world has no file: a memory world keeps nothing, and a database has tools of its own.
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
