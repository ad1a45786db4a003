//! Set-up: what the tests need around them, made before the first and gone after the last.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Stdio};

use throwaway::{Postgres, apt, pgbouncer, postgres};

use crate::error::{Error, Result};

/// What the tests need around them. It lasts until it is dropped.
#[derive(Debug)]
pub(crate) struct Setup {
    variables: Vec<(&'static str, OsString)>,
    /// Lives as long as the tests.
    _postgres: Option<Postgres>,
}

/// The servers that the tests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    None,
    All,
}

impl Setup {
    /// Checks what must be installed, and starts what the tests need.
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
                start_postgres()?
            }
        };
        if let Some(postgres) = &postgres {
            variables.push((postgres::VARIABLE, OsString::from(postgres.url())));
        }
        Ok(Self { variables, _postgres: postgres })
    }

    /// Tells a command where everything is.
    pub(crate) fn apply<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)))
    }
}

/// A server for all the tests, unless the caller has named one. All they write is thrown away, so
/// nothing waits for the disk.
fn start_postgres() -> Result<Option<Postgres>> {
    if std::env::var_os(postgres::VARIABLE).is_some() {
        return Ok(None);
    }
    postgres::require()?;
    Ok(Some(Postgres::builder().quick().start()?))
}

/// SQLite is compiled from its C source, so a C compiler with its headers has to be there.
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
        _ if std::env::var_os("CC").is_some() => "let the variable CC name a C compiler, or unset it",
        "macos" => "run `xcode-select --install`",
        "linux" if apt::is_debian() => "run `sudo apt-get update && sudo apt-get install -y gcc libc6-dev`",
        "linux" => "install gcc and the headers of the C library with your system's package manager",
        _ => "install a C compiler and let the variable CC name it",
    };
    format!("`{program}` cannot compile a C program, which the SQLite world needs; {remedy}")
}

fn compiler() -> OsString {
    std::env::var_os("CC").unwrap_or_else(|| OsString::from("cc"))
}

/// Whether the compiler is there and finds the C library's headers.
fn compiles_c() -> bool {
    // On Windows the compiler is found by other means than a name on the path.
    if cfg!(windows) {
        return true;
    }
    // The variable may hold arguments too, as in `ccache gcc`.
    let line = compiler().to_string_lossy().into_owned();
    let mut words = line.split_whitespace();
    let Some(program) = words.next() else { return false };
    let mut command = Command::new(program);
    command.args(words).args(["-E", "-x", "c", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // A compiler that ends early closes the pipe; its status then says so.
        let _ = input.write_all(b"#include <stdlib.h>\n");
    }
    child.wait().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_compiler_comes_with_its_remedy() {
        let text = missing_compiler();
        assert!(text.contains("cannot compile a C program") && text.contains("; "), "{text}");
    }
}
