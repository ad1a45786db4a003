//! The user account of servers: never root, which Postgres refuses.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// The users that root may use for a server; the first existing one is used.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// The account of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// The caller, who is not root.
    Caller,
    /// Another user.
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

    /// Makes the command run as this account.
    #[cfg(unix)]
    pub(crate) fn apply(self, command: &mut Command) {
        use std::os::unix::process::CommandExt;
        if let Self::Other { user, group } = self {
            // Changing the user also drops root's supplementary groups.
            command.gid(group).uid(user);
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn apply(self, _: &mut Command) {}

    /// Makes this account the owner of the file or folder.
    #[cfg(unix)]
    pub(crate) fn give_ownership(self, path: &Path) -> Result<()> {
        let Self::Other { user, group } = self else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(user), Some(group)).map_err(|error| {
            Error::new(format!("`{}` cannot be given to user {user}: {error}", path.display()))
        })
    }

    #[cfg(not(unix))]
    pub(crate) fn give_ownership(self, _: &Path) -> Result<()> {
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
