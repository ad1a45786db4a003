//! The files of the project: tracked by git, or not ignored.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// A text file of the project.
#[derive(Debug)]
pub(crate) struct TextFile {
    /// Its path below the root, with `/` as the separator.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

impl TextFile {
    /// Whether the file has this extension.
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }
}

/// All text files below `root` that are tracked or not ignored, ordered by path.
pub(crate) fn files(root: &Path) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    for path in paths(root)? {
        // Skips tracked files that were deleted, and files that are not text.
        if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
            files.push(TextFile { path, text });
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

/// The files that git lists; `None` without git, or if the folder is not the root of a work tree.
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

/// Every file below a folder, without build results.
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
