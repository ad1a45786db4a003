//! `cargo xtask bench`: the benchmark program, built in release mode.

use std::path::Path;

use crate::baseline;
use crate::error::Result;
use crate::program::become_program;

/// The text of `help`.
pub(crate) const HELP: &str = "\
bench [--against REVISION] [ARGUMENTS]
    Build the benchmark in release mode and run it with the arguments (`bench --help` lists them).
    Progress goes to the standard error, so that the output of `--json` is JSON alone. With `--against`,
    also build the benchmark of that git revision, measure both alternately, and compare their medians.";

const PACKAGE: &str = "outlast-bench";

/// Builds the benchmark, and replaces this process with it.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let (revision, mut arguments) = baseline::take_revision(arguments, "--against")?;
    if let Some(revision) = revision {
        let program = baseline::build(root, &revision, PACKAGE, PACKAGE)?;
        arguments.extend(["--against".to_owned(), program.to_string_lossy().into_owned()]);
    }
    become_program(root, PACKAGE, &arguments)
}
