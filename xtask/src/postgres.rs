//! `cargo xtask postgres`: starts a server for tests, for one command or until the input ends.

use std::path::Path;
use std::process::Command;

use throwaway::{Postgres, postgres};

use crate::cargo;
use crate::error::Result;

/// The text of `help`.
pub(crate) const HELP: &str = "\
postgres [COMMAND ARGUMENTS]
    Start a throwaway Postgres, installing it where that is possible, and run the command with
    OUTLAST_TEST_POSTGRES set to its URL. Without a command, print the URL and wait until the
    input ends. The server and its data are removed afterwards.";

/// Starts a server, and ends it with the command or the input.
pub(crate) fn run(_: &Path, arguments: &[String]) -> Result<()> {
    postgres::require()?;
    let server = Postgres::builder().quick().start()?;
    if let Some((program, rest)) = arguments.split_first() {
        return cargo::run(Command::new(program).args(rest).env(postgres::VARIABLE, server.url()));
    }
    println!("{}={}", postgres::VARIABLE, server.url());
    // Wait for the end of the input.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    Ok(())
}
