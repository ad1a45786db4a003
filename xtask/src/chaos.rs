//! `cargo xtask chaos` and `cargo xtask soak`: the program that breaks the engine on purpose.

use std::path::Path;

use crate::error::Result;
use crate::program::become_program;

/// What `help` says of the kill loop and the power cut.
pub(crate) const CHAOS_HELP: &str = "\
chaos [--world sqlite] [--kills N] [--seed S] [--power] [ARGUMENTS]
    Kill and freeze workers on one file again and again (200 kills unless told), and check that
    nothing is lost or doubled; with `--power`, cut the power instead. Built in release mode;
    `chaos --help` lists the arguments.";

/// What `help` says of the soak.
pub(crate) const SOAK_HELP: &str = "\
soak [--minutes N] [ARGUMENTS]
    Mixed load for so long (30 minutes unless told), a line every ten seconds, and a verdict on
    memory, descriptors, files and latency. Ends with code 1 when one of them grew.";

const PACKAGE: &str = "outlast-chaos";

/// Builds the program and becomes it.
pub(crate) fn chaos(root: &Path, arguments: &[String]) -> Result<()> {
    become_program(root, PACKAGE, arguments)
}

/// Builds the program and becomes its soak.
pub(crate) fn soak(root: &Path, arguments: &[String]) -> Result<()> {
    let arguments: Vec<String> =
        std::iter::once("soak".to_owned()).chain(arguments.iter().cloned()).collect();
    become_program(root, PACKAGE, &arguments)
}
