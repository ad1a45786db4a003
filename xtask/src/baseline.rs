//! `cargo xtask baseline`: a program of an older revision, built in release mode beside this tree.
//!
//! The revision is checked out as a git worktree in `target/baseline/<commit>`, with a target folder of its own there.
//! What is built once is there the next time. `cargo xtask bench --against` measures such a program, and tests with
//! workers of two builds start one.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{cargo, run as run_command};
use crate::error::{Error, Result};
use crate::setup::require_c_compiler;

/// What `help` says.
pub(crate) const HELP: &str = "\
baseline REVISION PACKAGE [PROGRAM]
    Build a program of a package as it was at a git revision, in release mode and in a worktree below
    `target/baseline`, and print its path. The program has the package's name unless told.";

/// How much of a commit's id names its folder.
const DIGITS: usize = 12;

/// Builds the program and prints where it is.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let (revision, package, program) = match arguments {
        [revision, package] => (revision, package, package),
        [revision, package, program] => (revision, package, program),
        _ => return Err(Error::Usage("`baseline` takes a revision, a package and perhaps a program".into())),
    };
    println!("{}", build(root, revision, package, program)?.display());
    Ok(())
}

/// Builds a program of a package as it was at a git revision, and returns its path.
pub(crate) fn build(root: &Path, revision: &str, package: &str, program: &str) -> Result<PathBuf> {
    require_c_compiler()?;
    let commit = commit_of(root, revision)?;
    let tree = check_out(root, &commit)?;
    let target = tree.join("target");
    let mut command = cargo(&tree);
    command.args(["build", "--release", "--package", package, "--bin", program]);
    run_command(command.env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join("release").join(format!("{program}{}", std::env::consts::EXE_SUFFIX)))
}

/// The id of the commit that a revision names.
fn commit_of(root: &Path, revision: &str) -> Result<String> {
    let mut command = git(root);
    // A revision that begins with a dash is no option.
    command
        .args(["rev-parse", "--verify", "--quiet", "--end-of-options"])
        .arg(format!("{revision}^{{commit}}"));
    let output =
        command.output().map_err(|error| Error::Failed(format!("git cannot be started: {error}")))?;
    let commit = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !commit.is_empty() {
        return Ok(commit);
    }
    Err(Error::Usage(format!("git knows no revision `{revision}`")))
}

/// The folder in which a commit is checked out.
fn folder_of(root: &Path, commit: &str) -> PathBuf {
    root.join("target").join("baseline").join(&commit[..DIGITS.min(commit.len())])
}

/// Checks a commit out in a worktree of its own, unless it is there.
fn check_out(root: &Path, commit: &str) -> Result<PathBuf> {
    let folder = folder_of(root, commit);
    if !folder.join("Cargo.toml").exists() {
        // Forgets worktrees whose folder was removed, as `cargo clean` does.
        run_command(git(root).args(["worktree", "prune"]))?;
        run_command(git(root).args(["worktree", "add", "--force", "--detach"]).arg(&folder).arg(commit))?;
    }
    Ok(folder)
}

fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn a_revision_that_git_does_not_know_is_refused() {
        let error = commit_of(root(), "no-such-revision").unwrap_err();
        assert!(matches!(error, Error::Usage(_)), "{error}");
        assert!(error.to_string().contains("git knows no revision `no-such-revision`"), "{error}");
    }

    #[test]
    fn each_commit_has_a_folder_of_its_own() {
        let folder = folder_of(Path::new("root"), "0123456789abcdef0123456789abcdef01234567");
        assert_eq!(folder, Path::new("root/target/baseline/0123456789ab"));
    }

    #[test]
    fn too_few_and_too_many_arguments_are_refused() {
        for line in ["", "HEAD", "HEAD a b c"] {
            let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
            assert!(matches!(run(root(), &arguments), Err(Error::Usage(_))), "{line}");
        }
    }
}
