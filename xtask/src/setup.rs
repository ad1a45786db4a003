//! The environment of the tests: servers and tools that exist while the tests run.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use throwaway::{Postgres, apt, axe, chromedriver, pgbouncer, postgres, promtool, skipped};

use crate::error::{Error, Result};

/// The environment of the tests, until it is dropped.
#[derive(Debug)]
pub(crate) struct Setup {
    variables: Vec<(&'static str, OsString)>,
    /// Runs as long as the tests.
    _postgres: Option<Postgres>,
    /// The file in which skipped tests report themselves.
    skipped: PathBuf,
}

/// The servers that the tests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    None,
    All,
}

impl Setup {
    /// Checks the required tools, and starts the required servers.
    pub(crate) fn begin(servers: Servers) -> Result<Self> {
        require_c_compiler()?;
        let mut variables = Vec::new();
        if std::env::var_os("RUST_BACKTRACE").is_none() {
            variables.push(("RUST_BACKTRACE", OsString::from("1")));
        }
        let postgres = match servers {
            Servers::None => None,
            Servers::All => {
                pgbouncer::require()?;
                promtool::require()?;
                chromedriver::require()?;
                axe::require()?;
                start_postgres()?
            }
        };
        if let Some(postgres) = &postgres {
            variables.push((postgres::VARIABLE, OsString::from(postgres.url())));
        }
        let skipped = std::env::temp_dir().join(format!("outlast-skipped-{}", std::process::id()));
        variables.push((skipped::VARIABLE, skipped.clone().into_os_string()));
        Ok(Self { variables, _postgres: postgres, skipped })
    }

    /// Fails if a test was skipped: here all servers that tests need are available, so every test is required.
    pub(crate) fn check_skipped(&self) -> Result<()> {
        let Ok(tests) = std::fs::read_to_string(&self.skipped) else { return Ok(()) };
        // A failure leaves a small file in the folder for temporary files.
        let _ = std::fs::remove_file(&self.skipped);
        no_test_was_skipped(&tests)
    }

    /// Sets the environment variables of a command.
    pub(crate) fn apply<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)))
    }
}

/// The error for these reports of skipped tests, one per line.
fn no_test_was_skipped(tests: &str) -> Result<()> {
    match tests.lines().count() {
        0 => Ok(()),
        count => {
            Err(Error::Failed(format!("{count} tests were skipped, and none may be:\n{}", tests.trim_end())))
        }
    }
}

/// Starts a server for all tests, unless the caller has set the URL of one. Commits do not wait for the disk, since the
/// data is removed afterwards.
fn start_postgres() -> Result<Option<Postgres>> {
    if std::env::var_os(postgres::VARIABLE).is_some() {
        return Ok(None);
    }
    postgres::require()?;
    Ok(Some(Postgres::builder().quick().start()?))
}

/// Checks for a C compiler and its headers: SQLite is compiled from source.
pub(crate) fn require_c_compiler() -> Result<()> {
    if compiles_c() {
        return Ok(());
    }
    if std::env::var_os("CC").is_none() && apt::is_possible() {
        eprintln!("    no C compiler: installing gcc");
        apt::install(&["gcc", "libc6-dev"], compiles_c)?;
        if compiles_c() {
            return Ok(());
        }
    }
    Err(Error::Failed(missing_compiler()))
}

fn missing_compiler() -> String {
    let program = compiler().to_string_lossy().into_owned();
    let remedy = match std::env::consts::OS {
        _ if std::env::var_os("CC").is_some() => "set the variable CC to a C compiler, or unset it",
        "macos" => "run `xcode-select --install`",
        "linux" if apt::is_debian() => "run `sudo apt-get update && sudo apt-get install -y gcc libc6-dev`",
        "linux" => "install gcc and the headers of the C library with your system's package manager",
        _ => "install a C compiler and set the variable CC to it",
    };
    format!("`{program}` cannot compile a C program, which the SQLite world needs; {remedy}")
}

fn compiler() -> OsString {
    std::env::var_os("CC").unwrap_or_else(|| OsString::from("cc"))
}

/// Whether the compiler works and finds the headers of the C library.
fn compiles_c() -> bool {
    // On Windows the compiler need not be on the path.
    if cfg!(windows) {
        return true;
    }
    // The variable may contain arguments, as in `ccache gcc`.
    let line = compiler().to_string_lossy().into_owned();
    let mut words = line.split_whitespace();
    let Some(program) = words.next() else { return false };
    let mut command = Command::new(program);
    command.args(words).args(["-E", "-x", "c", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // If the compiler has ended early, its status is checked below.
        let _ = input.write_all(b"#include <stdlib.h>\n");
    }
    child.wait().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_an_error_with_its_reason() {
        assert!(no_test_was_skipped("").is_ok());
        let error = no_test_was_skipped("skipped a::b: no Postgres\nskipped c: no Postgres\n").unwrap_err();
        assert!(error.to_string().starts_with("2 tests were skipped"), "{error}");
        assert!(error.to_string().contains("skipped a::b: no Postgres"), "{error}");
    }

    #[test]
    fn the_error_for_a_missing_compiler_has_a_remedy() {
        let text = missing_compiler();
        assert!(text.contains("cannot compile a C program") && text.contains("; "), "{text}");
    }
}
