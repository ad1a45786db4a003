//! As whom servers run: never as root, since they refuse that.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// Whom root becomes for a server, the first that there is.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// As whom a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// As the caller, who is not root.
    Caller,
    /// As somebody else, by number.
    Other { user: u32, group: u32 },
}

impl Account {
    /// The account for servers of this process.
    pub(crate) fn choose() -> Result<Self> {
        if !is_root() {
            return Ok(Self::Caller);
        }
        let known = |name| Some(Self::Other { user: id("-u", name)?, group: id("-g", name)? });
        CANDIDATES.into_iter().find_map(known).ok_or_else(|| {
            let names = CANDIDATES.join("` or `");
            Error::new(format!("a server must not run as root, and there is no user `{names}`; add one"))
        })
    }

    /// Lets the command run as this account.
    #[cfg(unix)]
    pub(crate) fn apply(self, command: &mut Command) {
        use std::os::unix::process::CommandExt;
        if let Self::Other { user, group } = self {
            // Becoming another user also leaves root's supplementary groups.
            command.gid(group).uid(user);
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn apply(self, _: &mut Command) {}

    /// Gives the file or folder to this account.
    #[cfg(unix)]
    pub(crate) fn own(self, path: &Path) -> Result<()> {
        let Self::Other { user, group } = self else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(user), Some(group)).map_err(|error| {
            Error::new(format!("`{}` cannot be given to user {user}: {error}", path.display()))
        })
    }

    #[cfg(not(unix))]
    pub(crate) fn own(self, _: &Path) -> Result<()> {
        Ok(())
    }
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    let output = Command::new("id").arg("-u").stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn id(what: &str, name: &str) -> Option<u32> {
    let output = Command::new("id").args([what, name]).stdin(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
