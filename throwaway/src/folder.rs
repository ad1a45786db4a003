//! Folders that vanish with their owner.

use std::path::{Path, PathBuf};
use std::process::Child;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::guard::{dismiss, watcher};
use crate::random;

/// Waits for the owner's end of the pipe to close without a word, and removes the folder then. A server
/// that is about to die may still write into it, so it looks again, but not for ever.
const KEEPER: &str = r#"
read -r word && exit 0
tries=0
while [ -e "$1" ] && [ "$tries" -lt 150 ]; do
    rm -rf -- "$1"
    tries=$((tries + 1))
    sleep 0.1
done
"#;

/// A temporary folder of a server. It is removed when this is dropped, and also when the process dies.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    keeper: Child,
}

impl Folder {
    /// Makes one in `parent` for the server `name`, which only the account can look into.
    pub(crate) fn make(parent: &Path, name: &str, account: Account) -> Result<Self> {
        let path = parent.join(format!("outlast-{name}-{}", &random::word()[..16]));
        let failed = |error| {
            let parent = parent.display();
            Error::new(format!(
                "no folder for {name} can be made in `{parent}`: {error}; set TMPDIR to another place"
            ))
        };
        make_private(&path).map_err(failed)?;
        let keeper = match watcher(KEEPER, &path.to_string_lossy(), Account::Caller) {
            Ok(keeper) => keeper,
            Err(error) => {
                let _ = std::fs::remove_dir(&path);
                return Err(Error::new(format!("`sh` cannot be started: {error}")));
            }
        };
        let folder = Self { path, keeper };
        account.own(&folder.path)?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now, the keeper tries again for a while.
        if std::fs::remove_dir_all(&self.path).is_ok() {
            dismiss(&mut self.keeper);
        }
    }
}

#[cfg(unix)]
fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(not(unix))]
fn make_private(path: &Path) -> std::io::Result<()> {
    std::fs::create_dir(path)
}
