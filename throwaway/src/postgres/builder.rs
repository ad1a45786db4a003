//! The configuration of a new server, and its first start.

use std::path::{Path, PathBuf};

use super::{Postgres, install, status};
use crate::account::Account;
use crate::address::Address;
use crate::error::{Error, Result};
use crate::folder::TempFolder;
use crate::guarded_process::GuardedProcess;
use crate::random;

/// The superuser, and the database that every server has.
const SUPERUSER: &str = "postgres";

/// The configuration of a new server. By default it is as durable as in production: a commit waits for the disk.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    parent: Option<PathBuf>,
    settings: Vec<(String, String)>,
}

impl Builder {
    /// A setting of `postgresql.conf`. The last one with the same name applies.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// For tests: commits do not wait for the disk, and many clients may connect. Committed data survives
    /// [`Postgres::kill`], but not a power failure.
    #[must_use]
    pub fn quick(self) -> Self {
        self.setting("fsync", "off").setting("full_page_writes", "off").setting("max_connections", "400")
    }

    /// The parent of the server's folder, instead of the system's temporary folder.
    #[must_use]
    pub fn within(mut self, parent: impl AsRef<Path>) -> Self {
        self.parent = Some(parent.as_ref().to_path_buf());
        self
    }

    /// Creates a new server and starts it; it is ready when this returns. If the caller is root, it runs as user
    /// `postgres` or `nobody`.
    ///
    /// # Errors
    ///
    /// When the programs are missing, with the remedy; or when they fail, with their output.
    pub fn start(self) -> Result<Postgres> {
        let programs = install::find()?;
        let account = Account::choose()?;
        let parent = self.parent.unwrap_or_else(std::env::temp_dir);
        let folder = TempFolder::make(&parent, "postgres", account)?;
        let address = Address {
            host: "127.0.0.1".into(),
            port: 0,
            user: SUPERUSER.into(),
            password: random::word(),
            database: SUPERUSER.into(),
        };
        let server = None;
        let mut postgres = Postgres { server, programs, account, settings: self.settings, address, folder };
        initialise(&postgres)?;
        postgres.start_on_free_port()?;
        Ok(postgres)
    }
}

/// Creates the files of a new server, with password authentication.
fn initialise(postgres: &Postgres) -> Result<()> {
    let folder = postgres.folder.path();
    let secret = folder.join("password");
    let written = std::fs::write(&secret, &postgres.address.password);
    written.map_err(|error| Error::new(format!("`{}` cannot be written: {error}", secret.display())))?;
    postgres.account.give_ownership(&secret)?;
    let path = |name: &str| folder.join(name).display().to_string();
    // The password is sent in clear over the loopback: tests make many connections, which should be cheap.
    let arguments = [
        format!("--pgdata={}", path("data")),
        format!("--pwfile={}", path("password")),
        format!("--username={SUPERUSER}"),
        "--auth=password".into(),
        "--encoding=UTF8".into(),
        "--no-locale".into(),
        // The new files need not survive a power failure before the first start.
        "--no-sync".into(),
    ];
    let log = folder.join("initdb.log");
    let program = postgres.programs.join("initdb");
    let status = GuardedProcess::spawn(&program, &arguments, postgres.account, folder, &log)?.wait()?;
    let _ = std::fs::remove_file(&secret);
    if status.success() {
        return Ok(());
    }
    Err(Error::new(format!("`initdb` ended with {status}; its output ends with:\n{}", status::tail(&log))))
}
