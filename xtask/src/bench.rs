//! `cargo xtask bench`: the benchmark program, built for speed.

use std::path::Path;

use crate::error::Result;
use crate::program::become_program;

/// What `help` says.
pub(crate) const HELP: &str = "\
bench [ARGUMENTS]
    Build the benchmark in release mode and run it with the arguments (`bench --help` lists them).
    Progress goes to the standard error, so that the output of `--json` is JSON alone.";

const PACKAGE: &str = "outlast-bench";

/// Builds the benchmark and becomes it.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    become_program(root, PACKAGE, arguments)
}
