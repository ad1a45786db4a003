//! Finds or installs the programs of Postgres.

use std::path::PathBuf;

use crate::apt;
use crate::error::{Error, Result};
use crate::programs::{VERSION_MIN, of_postgres};

/// Makes sure that the programs of Postgres are installed: on Debian, root installs them if needed.
///
/// # Errors
///
/// When they are missing and cannot be installed, with the remedy.
pub fn require() -> Result<()> {
    if of_postgres().is_some() {
        return Ok(());
    }
    if apt::is_possible() {
        eprintln!("    no Postgres: installing it");
        let installed = apt::install(&["postgresql"], || of_postgres().is_some());
        installed.map_err(|error| Error::new(format!("{error}; {}", missing())))?;
    }
    find().map(drop)
}

/// The folder of the programs.
pub(super) fn find() -> Result<PathBuf> {
    of_postgres().ok_or_else(|| Error::new(missing()))
}

fn missing() -> String {
    let remedy = match std::env::consts::OS {
        "macos" => "run `brew install postgresql@17`",
        "linux" if apt::is_debian() => {
            "run `sudo apt-get update && sudo apt-get install -y --no-install-recommends postgresql`"
        }
        _ => "install the PostgreSQL server, with `postgres` and `initdb` on the path",
    };
    format!(
        "there is no Postgres server (version {VERSION_MIN} or later) on this machine; {remedy}, or set the \
         variable {} to the URL of a server that tests may use",
        super::VARIABLE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_come_with_their_remedy() {
        let text = missing();
        assert!(text.contains("version 14 or later") && text.contains("OUTLAST_TEST_POSTGRES"), "{text}");
        assert!(text.contains("install"), "{text}");
    }
}
