//! promtool, which checks metrics, rules and configurations of Prometheus.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::{apt, programs};

/// Runs promtool with these arguments and this input. Returns its output.
///
/// # Errors
///
/// When the program is missing, with the remedy; or when it finds a problem, with its output.
pub fn promtool(arguments: &[&str], input: &str) -> Result<String> {
    let cannot = |error: std::io::Error| Error::new(format!("promtool cannot be started: {error}"));
    let mut command = Command::new(find()?);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    if let Some(mut stdin) = child.stdin.take() {
        // If the program has ended early, its status is checked below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(cannot)?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(Error::new(format!("promtool {} failed: {}", arguments.join(" "), text.trim_end())))
}

/// Why promtool cannot be used on this machine; `None` if it can.
pub fn missing() -> Option<String> {
    find().err().map(|error| error.to_string())
}

/// Makes sure that the program is installed: on Debian, root installs it if needed.
///
/// # Errors
///
/// When it is missing and cannot be installed, with the remedy.
pub fn require() -> Result<()> {
    if find().is_err() && apt::is_possible() {
        eprintln!("    no promtool: installing prometheus, which contains it");
        apt::install(&["prometheus"], || find().is_ok())?;
    }
    find().map(drop)
}

fn find() -> Result<PathBuf> {
    programs::on_path("promtool").ok_or_else(|| {
        let remedy = match std::env::consts::OS {
            "macos" => "run `brew install prometheus`",
            "linux" if apt::is_debian() => "run `sudo apt-get update && sudo apt-get install -y prometheus`",
            _ => "install Prometheus with your system's package manager",
        };
        Error::new(format!("there is no promtool on this machine; {remedy}"))
    })
}
