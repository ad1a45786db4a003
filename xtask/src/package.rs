//! `cargo xtask package`: the packages that would be published.

use std::path::{Path, PathBuf};

use crate::cargo::{cargo, run as run_command};
use crate::error::{Error, Result};
use crate::tidy::manifests;

/// The text of `help`.
pub(crate) const HELP: &str = "\
package [--build]
    Make the packages of all crates that are published, without network access, as
    `cargo publish` would upload them. With `--build` each is also compiled from its package.";

/// Makes the packages, and checks that each contains its readme and its licences.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    match arguments {
        [] => check(root, Verification::None),
        [flag] if flag == "--build" => check(root, Verification::Build),
        _ => Err(Error::Usage(format!("`package` takes only `--build`: {}", arguments.join(" ")))),
    }
}

/// What is done with a package after it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verification {
    None,
    Build,
}

/// Makes the packages of all published crates.
pub(crate) fn check(root: &Path, verification: Verification) -> Result<()> {
    let published = published(root)?;
    let mut command = cargo(root);
    // The packages are those of the work tree, whether it is committed or not.
    command.args(["package", "--quiet", "--offline", "--allow-dirty"]);
    if verification == Verification::None {
        command.arg("--no-verify");
    }
    for name in &published {
        command.args(["--package", name]);
    }
    run_command(&mut command)?;
    for name in &published {
        check_contents(root, name)?;
    }
    Ok(())
}

/// The files that every package contains besides its source.
const REQUIRED: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

fn check_contents(root: &Path, name: &str) -> Result<()> {
    let mut command = cargo(root);
    command.args(["package", "--list", "--quiet", "--offline", "--allow-dirty", "--package", name]);
    let failed =
        |reason: String| Error::Failed(format!("the package of `{name}` cannot be listed: {reason}"));
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let files = String::from_utf8_lossy(&output.stdout).into_owned();
    match REQUIRED.iter().find(|required| !files.lines().any(|file| file == **required)) {
        Some(missing) => Err(Error::Failed(format!("the package of `{name}` has no `{missing}`; add it"))),
        None => Ok(()),
    }
}

/// The names of the crates that are published, in the order of their folders.
fn published(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("crates");
    let failed = |error| Error::Failed(format!("cannot list {}: {error}", folder.display()));
    let mut manifests = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        manifests.push(entry.map_err(failed)?.path().join("Cargo.toml"));
    }
    manifests.sort();
    Ok(manifests.iter().filter_map(published_name).collect())
}

/// The name of the package, if it is published.
fn published_name(manifest: &PathBuf) -> Option<String> {
    let text = std::fs::read_to_string(manifest).ok()?;
    manifests::is_published(&text).then(|| manifests::name(&text)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_library_crates_are_published() {
        let published = published(&crate::root()).unwrap();
        assert!(published.iter().any(|name| name == "outlast"), "{published:?}");
        assert!(!published.iter().any(|name| name == "xtask"), "{published:?}");
    }
}
