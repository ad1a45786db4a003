//! Running cargo and other programs.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// The cargo that runs this task, in the folder `root`.
pub(crate) fn cargo(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root);
    command
}

/// Whether `cargo nextest` is installed. It shows slow and failing tests better; `cargo test` works too.
pub(crate) fn has_nextest(root: &Path) -> bool {
    succeeds(cargo(root).args(["nextest", "--version"]))
}

/// Whether the command succeeds. Its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs the command to its end without input.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    eprintln!("    {line}");
    let status = command.stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::Failed(format!("`{line}` ended with {status}"))),
        Err(error) => Err(Error::Failed(format!("`{line}` cannot be started: {error}"))),
    }
}

/// The command line of the command.
fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_a_missing_program() {
        let error = run(&mut Command::new("no-such-program-outlast")).unwrap_err();
        assert!(error.to_string().contains("`no-such-program-outlast` cannot be started"), "{error}");
    }
}
