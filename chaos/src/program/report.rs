//! Checks that are counted, folders that stay when something is wrong, and the table at the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::Result;
use super::place::Place;

/// Counts the checks that were made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checks {
    pub(crate) made: u64,
}

impl Checks {
    /// Fails with a message when it is not so.
    pub(crate) fn that(&mut self, is_so: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
        self.made += 1;
        if is_so { Ok(()) } else { Err(otherwise().into()) }
    }
}

/// A folder that vanishes when all is well.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
}

impl Folder {
    /// A new folder in `above`, or where temporary things are.
    pub(crate) fn new(above: Option<&Path>) -> Result<Self> {
        let above = above.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let folder =
            tempfile::Builder::new().prefix("outlast-chaos-").tempdir_in(&above).map_err(|error| {
                format!(
                    "no folder can be made in `{}` ({error}); give another with --folder",
                    above.display()
                )
            })?;
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn place(&self) -> Place {
        Place::new(self.folder.path())
    }

    /// Removes the folder when all is well. Otherwise keeps it, and says where it is and how to repeat
    /// what happened.
    pub(crate) fn close<T>(self, done: Result<T>, repeat: &str) -> Result<T> {
        done.map_err(|error| {
            let kept: PathBuf = self.folder.keep();
            format!("{error}\n  the files are kept in {}\n  repeat it with: {repeat}", kept.display()).into()
        })
    }
}

/// Prints rows of a name and a value.
pub(crate) fn print_table(title: &str, rows: &[(&str, String)]) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    println!("{title}");
    for (name, value) in rows {
        println!("  {name:width$}  {value}");
    }
}

/// A time in seconds, for people.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
