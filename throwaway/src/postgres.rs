//! A new Postgres server.

mod builder;
mod for_tests;
mod install;
mod status;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::account::Account;
use crate::address::Address;
use crate::error::{Error, Result};
use crate::folder::TempFolder;
use crate::guarded_process::GuardedProcess;
use crate::port;
use crate::wait::wait_for;

pub use builder::Builder;
pub use for_tests::{for_tests, missing_for_tests, new_schema_name, new_schema_url, schema_url};
pub use install::require;

/// The environment variable with the URL of an existing server for tests.
pub const VARIABLE: &str = "OUTLAST_TEST_POSTGRES";

/// How long a server may take to be ready. After a crash it recovers from its log first.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The number of ports that are tried: another process may take a free port before the server does.
const PORTS_MAX: usize = 10;

/// A Postgres server in a temporary folder, on a port of the loopback and on a socket in the folder.
///
/// It ends, and its folder is removed, when this is dropped and also when the process dies.
#[derive(Debug)]
pub struct Postgres {
    // Declared first, so that it has ended when the folder is removed.
    server: Option<GuardedProcess>,
    programs: PathBuf,
    account: Account,
    settings: Vec<(String, String)>,
    address: Address,
    folder: TempFolder,
}

impl Postgres {
    /// Configures a new server.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The server's URL, as its superuser.
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// The address of the server. It does not change when the server is restarted.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The folder in which it has its data, its log and its socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of its programs, with `psql` where that is installed.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// The process id of the server, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(GuardedProcess::pid)
    }

    /// The end of the server's log.
    pub fn log(&self) -> String {
        status::tail(&self.log_file())
    }

    /// Shuts the server down without waiting for its clients. It can be started again.
    ///
    /// # Errors
    ///
    /// When it does not end; then it still runs.
    pub fn stop(&mut self) -> Result<()> {
        self.end(|server| server.end("INT"))
    }

    /// Kills the server, like a crash. It can be started again, and has everything that was committed.
    ///
    /// # Errors
    ///
    /// When it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.end(GuardedProcess::kill)
    }

    /// Starts the server again, on the same folder and port, and waits until it accepts connections.
    /// Nothing happens when it runs.
    ///
    /// # Errors
    ///
    /// When it ends instead, or is not ready in time; the message contains its log.
    pub fn start(&mut self) -> Result<()> {
        if self.server.as_mut().is_some_and(|server| server.ended().is_none()) {
            return Ok(());
        }
        // The remaining processes of a killed server notice its death when they next wait. Until then its shared memory
        // is in use, and a new server does not start.
        let started = wait_for(START_TIMEOUT, || match self.try_start() {
            Err(failure) if failure.is_temporary() => None,
            answer => Some(answer),
        });
        match started {
            Some(answer) => answer.map_err(|failure| Error::new(failure.to_string())),
            None => {
                Err(Error::new(format!("Postgres cannot start again; its log ends with:\n{}", self.log())))
            }
        }
    }

    fn end(&mut self, how: impl FnOnce(&mut GuardedProcess) -> Result<()>) -> Result<()> {
        let Some(server) = &mut self.server else { return Ok(()) };
        if let Err(error) = how(server) {
            return Err(Error::new(format!("{error}; the log of Postgres ends with:\n{}", self.log())));
        }
        self.server = None;
        Ok(())
    }

    fn try_start(&mut self) -> std::result::Result<(), status::StartFailure> {
        let log = self.log_file();
        let begin = status::length(&log);
        let refused = |reason: &str| status::StartFailure::new(reason, &log, begin);
        let program = self.programs.join("postgres");
        let server =
            GuardedProcess::spawn(&program, &self.arguments(), self.account, self.folder.path(), &log);
        let server = self.server.insert(server.map_err(|error| refused(&error.to_string()))?);
        let data = self.folder.path().join("data");
        let answer = wait_for(START_TIMEOUT, || match server.ended() {
            Some(status) => Some(Err(refused(&format!("Postgres ended with {status}")))),
            None => status::is_ready(&data, server.pid()).then_some(Ok(())),
        });
        let answer = answer.unwrap_or_else(|| Err(refused("Postgres is not ready in time")));
        if answer.is_err() {
            self.server = None;
        }
        answer
    }

    fn arguments(&self) -> Vec<String> {
        let folder = self.folder.path().display().to_string();
        let given = self.settings.iter().map(|(name, value)| format!("{name}={value}"));
        let ours = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.address.port),
            format!("unix_socket_directories={folder}"),
            "logging_collector=off".to_owned(),
            "log_destination=stderr".to_owned(),
        ];
        // The last of two settings with the same name applies: this crate relies on its own.
        let settings = given.chain(ours).flat_map(|setting| ["-c".to_owned(), setting]);
        ["-D".to_owned(), format!("{folder}/data")].into_iter().chain(settings).collect()
    }

    /// The first start: tries another port if the chosen one is in use.
    fn start_on_free_port(&mut self) -> Result<()> {
        for _ in 1..PORTS_MAX {
            self.address.port = port::free()?;
            match self.try_start() {
                Err(failure) if failure.is_port_in_use() => {}
                answer => return answer.map_err(|failure| Error::new(failure.to_string())),
            }
        }
        self.address.port = port::free()?;
        self.start()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.server.take().is_none() {
            status::free_memory(&self.folder.path().join("data"));
        }
    }
}
