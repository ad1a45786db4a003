//! pgbouncer in front of a server.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::account::Account;
use crate::address::Address;
use crate::apt;
use crate::error::{Error, Result};
use crate::folder::TempFolder;
use crate::guarded_process::GuardedProcess;
use crate::wait::wait_for;
use crate::{port, programs};

/// How long it may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// When a client of a pgbouncer gives back its connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// When it disconnects.
    Session,
    /// After every transaction: many clients share a few connections.
    Transaction,
    /// After every statement. Transactions are not possible.
    Statement,
}

/// A pgbouncer in front of a server. It ends when this is dropped and also when the process dies.
#[derive(Debug)]
pub struct Pgbouncer {
    _process: GuardedProcess,
    _folder: TempFolder,
    address: Address,
}

impl Pgbouncer {
    /// The URL of the server through the pgbouncer.
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// The address of the pgbouncer. Its database `pgbouncer` is a console for the server's superuser.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

/// Starts a pgbouncer in front of the server at this URL.
///
/// # Errors
///
/// When the program is missing, with the remedy; or when it fails, with its output.
pub fn pgbouncer(url: &str, mode: PoolMode) -> Result<Pgbouncer> {
    let program = find()?;
    let server: Address = url.parse()?;
    let account = Account::choose()?;
    let folder = TempFolder::make(&std::env::temp_dir(), "pgbouncer", account)?;
    let address = server.through(port::free()?);
    let configuration =
        write(&folder, account, "pgbouncer.ini", &configuration(&server, address.port, mode))?;
    write(&folder, account, "users", &format!("\"{}\" \"{}\"\n", server.user, server.password))?;
    let log = folder.path().join("pgbouncer.log");
    let arguments = [configuration.display().to_string()];
    let mut process = GuardedProcess::spawn(&program, &arguments, account, folder.path(), &log)?;
    let ready = wait_for(START_TIMEOUT, || {
        let listens = TcpStream::connect((Ipv4Addr::LOCALHOST, address.port)).is_ok();
        (listens || process.ended().is_some()).then_some(listens)
    });
    if ready != Some(true) {
        let output = std::fs::read_to_string(&log).unwrap_or_default();
        return Err(Error::new(format!(
            "pgbouncer does not start; its output ends with:\n{}",
            output.trim_end()
        )));
    }
    Ok(Pgbouncer { _process: process, _folder: folder, address })
}

/// Makes sure that the program is installed: on Debian, root installs it if needed.
///
/// # Errors
///
/// When it is missing and cannot be installed, with the remedy.
pub fn require() -> Result<()> {
    if find().is_err() && apt::is_possible() {
        eprintln!("    no pgbouncer: installing it");
        apt::install(&["pgbouncer"], || find().is_ok())?;
    }
    find().map(drop)
}

fn find() -> Result<PathBuf> {
    programs::on_path("pgbouncer").ok_or_else(|| {
        let remedy = match std::env::consts::OS {
            "macos" => "run `brew install pgbouncer`",
            "linux" if apt::is_debian() => "run `sudo apt-get update && sudo apt-get install -y pgbouncer`",
            _ => "install it with your system's package manager",
        };
        Error::new(format!("there is no pgbouncer on this machine; {remedy}"))
    })
}

fn configuration(server: &Address, port: u16, mode: PoolMode) -> String {
    let mode = match mode {
        PoolMode::Session => "session",
        PoolMode::Transaction => "transaction",
        PoolMode::Statement => "statement",
    };
    let Address { host, port: behind, user, .. } = server;
    format!(
        "[databases]\n\
         * = host={host} port={behind}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = plain\n\
         auth_file = users\n\
         admin_users = {user}\n\
         pool_mode = {mode}\n\
         default_pool_size = 20\n\
         max_client_conn = 400\n"
    )
}

fn write(folder: &TempFolder, account: Account, name: &str, text: &str) -> Result<PathBuf> {
    let file: PathBuf = Path::join(folder.path(), name);
    let written = std::fs::write(&file, text);
    written.map_err(|error| Error::new(format!("`{}` cannot be written: {error}", file.display())))?;
    account.give_ownership(&file)?;
    Ok(file)
}
