//! `cargo xtask ci`: all checks that a change has to pass.

use std::path::Path;

use crate::cargo::{cargo, run as run_command};
use crate::error::{Error, Result};
use crate::fuzz_api;
use crate::package::{self, Verification};
use crate::report::Report;
use crate::test::{self, Request};

/// The text of `help`.
pub(crate) const HELP: &str = "\
ci
Run all checks that a change has to pass: formatting, clippy, `test`, `fuzz-api`, documentation
    without warnings, and `package`.";

/// Runs all checks, the quick ones first.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        return Err(Error::Usage(format!("`ci` takes no arguments: {}", arguments.join(" "))));
    }
    let mut report = Report::default();
    report.stage("format", || run_command(cargo(root).args(["fmt", "--all", "--", "--check"])))?;
    report.stage("clippy", || {
        run_command(cargo(root).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    test::stages(root, &Request::default(), &mut report)?;
    report.stage("fuzz-api", || fuzz_api::run(root, &[]))?;
    report.stage("docs", || {
        let mut command = cargo(root);
        run_command(command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    report.stage("package", || package::check(root, Verification::None))?;
    report.print();
    Ok(())
}
