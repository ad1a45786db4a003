//! `cargo xtask postgres`: the server that the tests use, for one command or for a while.

use std::path::Path;
use std::process::Command;

use throwaway::{Postgres, postgres};

use crate::cargo;
use crate::error::Result;

/// What `help` says.
pub(crate) const HELP: &str = "\
postgres [COMMAND ARGUMENTS]
    Start a throwaway Postgres, installing it where that is possible, and run the command with
    OUTLAST_TEST_POSTGRES set to its URL. Without a command, print the URL and go on until the
    input ends. The server and all that is in it are gone afterwards.";

/// Starts a server, and ends it with the command or the input.
pub(crate) fn run(_: &Path, arguments: &[String]) -> Result<()> {
    postgres::require()?;
    let server = Postgres::builder().quick().start()?;
    if let Some((program, rest)) = arguments.split_first() {
        return cargo::run(Command::new(program).args(rest).env(postgres::VARIABLE, server.url()));
    }
    println!("{}={}", postgres::VARIABLE, server.url());
    // Only its end is of interest.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    Ok(())
}
