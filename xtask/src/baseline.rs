//! `cargo xtask baseline`: a program of an older revision, built in release mode beside this tree.
//!
//! The revision is checked out as a git worktree in `target/baseline/<commit>`, with its own target folder there,
//! which is reused. `cargo xtask bench --against` measures such a program, and `cargo xtask chaos --old` runs workers
//! of one.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{cargo, run as run_command};
use crate::error::{Error, Result};
use crate::setup::require_c_compiler;

/// The text of `help`.
pub(crate) const HELP: &str = "\
baseline REVISION PACKAGE [PROGRAM]
    Build a program of a package as it was at a git revision, in release mode and in a worktree below
    `target/baseline`, and print its path. The program has the package's name by default.";

/// The number of digits of a commit's id in the name of its folder.
const DIGITS: usize = 12;

/// Builds the program and prints its path.
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

/// The value of an option such as `--against`, if it is given, and the other arguments.
pub(crate) fn take_revision(arguments: &[String], option: &str) -> Result<(Option<String>, Vec<String>)> {
    let (mut revision, mut others) = (None, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let given = match argument.strip_prefix(option).map(|value| value.strip_prefix('=')) {
            Some(Some(given)) => Some(given.to_owned()),
            None | Some(None) if argument == option => rest.next().cloned(),
            None | Some(None) => {
                others.push(argument.clone());
                continue;
            }
        };
        let given = given.filter(|given| !given.is_empty());
        let given = given.ok_or_else(|| Error::Usage(format!("`{option}` takes a git revision")))?;
        if revision.replace(given).is_some() {
            return Err(Error::Usage(format!("`{option}` takes one git revision")));
        }
    }
    Ok((revision, others))
}

/// The id of a revision's commit.
fn commit_of(root: &Path, revision: &str) -> Result<String> {
    let mut command = git(root);
    // So that a revision that begins with a dash is not parsed as an option.
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

/// Checks a commit out in a worktree of its own, unless that exists.
fn check_out(root: &Path, commit: &str) -> Result<PathBuf> {
    let folder = folder_of(root, commit);
    if !folder.join("Cargo.toml").exists() {
        // Removes the records of worktrees whose folder was deleted, for example by `cargo clean`.
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
    fn an_unknown_revision_is_refused() {
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

    fn take(line: &str) -> Result<(Option<String>, Vec<String>)> {
        take_revision(&line.split_whitespace().map(String::from).collect::<Vec<_>>(), "--against")
    }

    #[test]
    fn the_revision_is_removed_and_the_other_arguments_are_kept() {
        for line in ["--only B2 --against v1 --json", "--against=v1 --only B2 --json"] {
            let (revision, others) = take(line).unwrap();
            assert_eq!(revision.as_deref(), Some("v1"), "{line}");
            assert_eq!(others, ["--only", "B2", "--json"], "{line}");
        }
        assert_eq!(take("--rounds 1").unwrap().0, None);
        assert_eq!(take("--against-all 1").unwrap(), (None, vec!["--against-all".into(), "1".into()]));
    }

    #[test]
    fn the_option_takes_one_revision() {
        for line in ["--against", "--against=", "--against a --against b"] {
            assert!(matches!(take(line), Err(Error::Usage(_))), "{line}");
        }
    }
}
