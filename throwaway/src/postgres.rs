//! A Postgres server of one's own.

mod builder;
mod install;
mod status;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use crate::account::Account;
use crate::address::Address;
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::guard::Guarded;
use crate::patience::wait_for;
use crate::port;

pub use builder::Builder;
pub use install::require;

/// The variable that tells tests the URL of a server that is there already.
pub const VARIABLE: &str = "OUTLAST_TEST_POSTGRES";

/// How long a server may take to be ready. One that comes back from a crash reads its log first.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// How many ports are tried: others may take one between our look and the server's.
const PORTS_MAX: usize = 10;

/// The URL of a server for tests, as its superuser: the one that [`VARIABLE`] names, or one that is
/// started at the first call and ends with this process.
///
/// # Panics
///
/// When there is no server and none can be started; the message says why.
pub fn for_tests() -> &'static str {
    static SERVER: LazyLock<Result<(String, Option<Postgres>)>> = LazyLock::new(|| {
        if let Ok(url) = std::env::var(VARIABLE) {
            return Ok((url, None));
        }
        let server = Postgres::builder().quick().start()?;
        Ok((server.url(), Some(server)))
    });
    match &*SERVER {
        Ok((url, _)) => url,
        Err(error) => panic!("there is no Postgres for this test: {error}"),
    }
}

/// A Postgres server in a temporary folder, on a port of the loopback and on a socket in the folder.
///
/// It ends, and its folder is removed, when this is dropped and also when the process dies.
#[derive(Debug)]
pub struct Postgres {
    // First, so that it has ended when the folder is removed.
    server: Option<Guarded>,
    programs: PathBuf,
    account: Account,
    settings: Vec<(String, String)>,
    address: Address,
    folder: Folder,
}

impl Postgres {
    /// Chooses how the server will be.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The server's URL, as its superuser.
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// Where the server is. It stays the same for all its lives.
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
        self.server.as_ref().map(Guarded::pid)
    }

    /// The end of what the server has said.
    pub fn log(&self) -> String {
        status::tail(&self.log_file())
    }

    /// Ends the server in order, without waiting for its clients. It can be started again.
    ///
    /// # Errors
    ///
    /// When it does not end; then it still runs.
    pub fn stop(&mut self) -> Result<()> {
        self.end(|server| server.end("INT"))
    }

    /// Kills the server, as a crash would. It can be started again, and finds what was committed.
    ///
    /// # Errors
    ///
    /// When it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.end(Guarded::kill)
    }

    /// Starts the server again, on the same folder and port, and waits until it takes connections.
    /// Nothing happens when it runs.
    ///
    /// # Errors
    ///
    /// When it ends instead, or is not ready in time; what it said is part of the message.
    pub fn start(&mut self) -> Result<()> {
        if self.server.as_mut().is_some_and(|server| server.ended().is_none()) {
            return Ok(());
        }
        // What a killed server leaves behind notices its death when it next waits. Until then its
        // memory is in use, and a new server refuses.
        let started = wait_for(START_PATIENCE, || match self.try_start() {
            Err(refusal) if refusal.is_for_now() => None,
            answer => Some(answer),
        });
        match started {
            Some(answer) => answer.map_err(|refusal| Error::new(refusal.to_string())),
            None => Err(Error::new(format!("Postgres cannot start again; it said:\n{}", self.log()))),
        }
    }

    fn end(&mut self, how: impl FnOnce(&mut Guarded) -> Result<()>) -> Result<()> {
        let Some(server) = &mut self.server else { return Ok(()) };
        if let Err(error) = how(server) {
            return Err(Error::new(format!("{error}; Postgres said:\n{}", self.log())));
        }
        self.server = None;
        Ok(())
    }

    fn try_start(&mut self) -> std::result::Result<(), status::Refusal> {
        let log = self.log_file();
        let begin = status::length(&log);
        let refused = |reason: &str| status::Refusal::new(reason, &log, begin);
        let program = self.programs.join("postgres");
        let server = Guarded::spawn(&program, &self.arguments(), self.account, self.folder.path(), &log);
        let server = self.server.insert(server.map_err(|error| refused(&error.to_string()))?);
        let data = self.folder.path().join("data");
        let answer = wait_for(START_PATIENCE, || match server.ended() {
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
        // Of two settings with one name the last counts: ours, which the rest of this crate relies on.
        let settings = given.chain(ours).flat_map(|setting| ["-c".to_owned(), setting]);
        ["-D".to_owned(), format!("{folder}/data")].into_iter().chain(settings).collect()
    }

    /// The first start: a port that somebody took meanwhile is replaced by another.
    fn start_somewhere(&mut self) -> Result<()> {
        for _ in 1..PORTS_MAX {
            self.address.port = port::free()?;
            match self.try_start() {
                Err(refusal) if refusal.is_of_the_port() => {}
                answer => return answer.map_err(|refusal| Error::new(refusal.to_string())),
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
