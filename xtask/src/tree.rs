//! The files of the project: what git knows, and what it would be told of.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// A text file of the project.
#[derive(Debug)]
pub(crate) struct File {
    /// Where it is below the root, with `/` between its parts.
    pub(crate) path: String,
    /// What it says.
    pub(crate) text: String,
}

impl File {
    /// Whether the name ends in this.
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }
}

/// All text files below `root` that are tracked or could be, in order of their paths.
pub(crate) fn files(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for path in paths(root)? {
        // A file that is tracked but deleted, or that is not text, has nothing to check.
        if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
            files.push(File { path, text });
        }
    }
    Ok(files)
}

fn paths(root: &Path) -> Result<BTreeSet<String>> {
    if let Some(paths) = paths_of_git(root) {
        return Ok(paths);
    }
    let mut paths = BTreeSet::new();
    walk(root, "", &mut paths)?;
    Ok(paths)
}

/// What git lists; `None` when there is no git, or the folder is not the root of a work tree.
fn paths_of_git(root: &Path) -> Option<BTreeSet<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let mut command = Command::new("git");
    command.current_dir(root).args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.split('\0').filter(|path| !path.is_empty()).map(String::from).collect())
}

/// Every file below a folder, except what is built.
fn walk(root: &Path, below: &str, paths: &mut BTreeSet<String>) -> Result<()> {
    let folder: PathBuf = root.join(below);
    let failed = |error| Error::Failed(format!("cannot list {}: {error}", folder.display()));
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            if name != "target" && name != ".git" {
                walk(root, &path, paths)?;
            }
        } else if kind.is_file() {
            paths.insert(path);
        }
    }
    Ok(())
}
