//! Programs of the workspace, built in release mode.

use std::path::Path;
use std::process::Command;

use crate::cargo::cargo;
use crate::error::{Error, Result};
use crate::setup::require_c_compiler;

/// Builds the program of a package in release mode, and replaces this process with it.
pub(crate) fn become_program(root: &Path, package: &str, arguments: &[String]) -> Result<()> {
    require_c_compiler()?;
    let mut command = cargo(root);
    // In the caller's folder, so that relative paths in the arguments work.
    if let Ok(folder) = std::env::current_dir() {
        command.current_dir(folder);
    }
    command.arg("run").arg("--release").arg("--manifest-path").arg(root.join("Cargo.toml"));
    command.args(["--package", package, "--bin", package, "--"]).args(arguments);
    become_command(&mut command)
}

#[cfg(unix)]
fn become_command(command: &mut Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    // Returns only when the program could not be started.
    Err(Error::Failed(format!("cargo cannot be started: {}", command.exec())))
}

#[cfg(not(unix))]
fn become_command(command: &mut Command) -> Result<()> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::Failed(format!("the program ended with {status}"))),
        Err(error) => Err(Error::Failed(format!("cargo cannot be started: {error}"))),
    }
}
