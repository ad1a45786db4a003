//! `cargo xtask sim`: the simulation, built in release mode.

use std::path::Path;

use crate::cargo::{cargo, run as run_command};
use crate::error::Result;
use crate::setup::require_c_compiler;

/// The text of `help`.
pub(crate) const HELP: &str = "\
sim [--seeds N] [--from S] [--threads T] [--trace]
    Simulate the whole engine with N seeds (1,000 by default) from S on, each twice: the seed determines
    the faults of calls and workers, and the rules of RELIABILITY.md are checked. A seed that fails is
    printed with the end of its trace; `--trace` prints complete traces.";

const PACKAGE: &str = "outlast-conformance";

/// Builds the simulation and runs it.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if matches!(arguments, [flag] if flag == "--help" || flag == "-h") {
        println!("Usage: cargo xtask {HELP}");
        return Ok(());
    }
    require_c_compiler()?;
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--release", "--package", PACKAGE, "--example", "simulation", "--"]);
    run_command(command.args(arguments))
}
