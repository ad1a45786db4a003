//! Folders that are removed with their owner.

use std::path::{Path, PathBuf};
use std::process::Child;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::guarded_process::{stop_watcher, watcher};
use crate::random;

/// Waits until the pipe is closed without a line, and then removes the folder. A dying server may still write into it,
/// so the removal is repeated a limited number of times.
const REMOVE_SCRIPT: &str = r#"
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
pub(crate) struct TempFolder {
    path: PathBuf,
    remover: Child,
}

impl TempFolder {
    /// Creates a folder in `parent` for the server `name`, which only the account can read.
    pub(crate) fn make(parent: &Path, name: &str, account: Account) -> Result<Self> {
        let path = parent.join(format!("outlast-{name}-{}", &random::word()[..16]));
        let failed = |error| {
            let parent = parent.display();
            Error::new(format!(
                "no folder for {name} can be created in `{parent}`: {error}; set TMPDIR to another folder"
            ))
        };
        make_private(&path).map_err(failed)?;
        let remover = match watcher(REMOVE_SCRIPT, &path.to_string_lossy(), Account::Caller) {
            Ok(remover) => remover,
            Err(error) => {
                let _ = std::fs::remove_dir(&path);
                return Err(Error::new(format!("`sh` cannot be started: {error}")));
            }
        };
        let folder = Self { path, remover };
        account.give_ownership(&folder.path)?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // If this fails, the other process repeats it for a while.
        if std::fs::remove_dir_all(&self.path).is_ok() {
            stop_watcher(&mut self.remover);
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
