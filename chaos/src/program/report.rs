//! Counted checks, temporary folders that are kept after a failure, and the table at the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::Result;
use super::workdir::Workdir;

/// Counts the checks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checks {
    pub(crate) made: u64,
}

impl Checks {
    /// Fails with a message when the condition is false.
    pub(crate) fn that(&mut self, is_true: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
        self.made += 1;
        if is_true { Ok(()) } else { Err(otherwise().into()) }
    }
}

/// A temporary folder that is kept after a failure.
#[derive(Debug)]
pub(crate) struct TempFolder {
    folder: TempDir,
}

impl TempFolder {
    /// A new folder in `above`, or in the folder for temporary files.
    pub(crate) fn new(above: Option<&Path>) -> Result<Self> {
        let above = above.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let folder =
            tempfile::Builder::new().prefix("outlast-chaos-").tempdir_in(&above).map_err(|error| {
                format!(
                    "cannot create a folder in `{}` ({error}); choose another with --folder",
                    above.display()
                )
            })?;
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn workdir(&self) -> Workdir {
        Workdir::new(self.folder.path())
    }

    /// Removes the folder after a success. After a failure keeps it, and adds its path and the command that repeats the
    /// run to the error.
    pub(crate) fn close<T>(self, done: Result<T>, repeat: &str) -> Result<T> {
        done.map_err(|error| {
            let kept: PathBuf = self.folder.keep();
            format!("{error}\n  the files are kept in {}\n  to repeat it: {repeat}", kept.display()).into()
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

/// A time in seconds, as text.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
