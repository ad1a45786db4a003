//! Measuring in a process of its own: what other workloads left in this one's heap does not count.

use std::process::{Command, Stdio};

use crate::Result;

/// Runs this program with these arguments, and returns the numbers that it prints.
pub(super) fn measure_in_child(arguments: &[&str]) -> Result<Vec<f64>> {
    let mut command = Command::new(std::env::current_exe()?);
    let child = command.args(arguments).stdin(Stdio::null()).output()?;
    if !child.status.success() {
        let said = String::from_utf8_lossy(&child.stderr);
        return Err(format!("the process `{}` failed: {said}", arguments[0]).into());
    }
    let said = String::from_utf8(child.stdout)?;
    Ok(said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}
