//! How a server will be, and its first start.

use std::path::{Path, PathBuf};

use super::{Postgres, install, status};
use crate::account::Account;
use crate::address::Address;
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::guard::Guarded;
use crate::random;

/// The superuser, and the database that every server has.
const SUPERUSER: &str = "postgres";

/// How a server will be. Without another word it is durable, as one in production: a commit waits for the disk.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    parent: Option<PathBuf>,
    settings: Vec<(String, String)>,
}

impl Builder {
    /// A setting of `postgresql.conf`. The last of the same name counts.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// For tests: nothing waits for the disk, and many may connect. What was committed survives
    /// [`Postgres::kill`], but would not survive a power cut.
    #[must_use]
    pub fn quick(self) -> Self {
        self.setting("fsync", "off").setting("full_page_writes", "off").setting("max_connections", "400")
    }

    /// The folder in which the server's own is made, instead of the system's temporary one.
    #[must_use]
    pub fn within(mut self, parent: impl AsRef<Path>) -> Self {
        self.parent = Some(parent.as_ref().to_path_buf());
        self
    }

    /// Makes a new server and starts it; it is ready when this returns. Not as root: root starts it as
    /// user `postgres` or `nobody`.
    ///
    /// # Errors
    ///
    /// When the programs are missing, with the remedy; or with what they said when they failed.
    pub fn start(self) -> Result<Postgres> {
        let programs = install::find()?;
        let account = Account::choose()?;
        let parent = self.parent.unwrap_or_else(std::env::temp_dir);
        let folder = Folder::make(&parent, "postgres", account)?;
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
        postgres.start_somewhere()?;
        Ok(postgres)
    }
}

/// Makes the files of a new server, with a superuser whom only the password lets in.
fn initialise(postgres: &Postgres) -> Result<()> {
    let folder = postgres.folder.path();
    let secret = folder.join("password");
    let written = std::fs::write(&secret, &postgres.address.password);
    written.map_err(|error| Error::new(format!("`{}` cannot be written: {error}", secret.display())))?;
    postgres.account.own(&secret)?;
    let path = |name: &str| folder.join(name).display().to_string();
    // The password goes over the loopback as it is: in tests, connections are many and are to be cheap.
    let arguments = [
        format!("--pgdata={}", path("data")),
        format!("--pwfile={}", path("password")),
        format!("--username={SUPERUSER}"),
        "--auth=password".into(),
        "--encoding=UTF8".into(),
        "--no-locale".into(),
        // The server's own files need not survive a power cut that comes before its first start.
        "--no-sync".into(),
    ];
    let log = folder.join("initdb.log");
    let program = postgres.programs.join("initdb");
    let status = Guarded::spawn(&program, &arguments, postgres.account, folder, &log)?.wait()?;
    let _ = std::fs::remove_file(&secret);
    if status.success() {
        return Ok(());
    }
    Err(Error::new(format!("`initdb` ended with {status}; it said:\n{}", status::tail(&log))))
}
