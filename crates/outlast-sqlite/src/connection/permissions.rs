//! Why this user cannot use a file: the permission that is missing.

use std::fs::{Metadata, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

use outlast_core::WorldError;

use crate::connection::opened_file::with_suffix;

/// The permission that this user lacks for the file at `path`, after SQLite could not open or write it; `None` if the
/// cause is another one.
///
/// It does not open the file itself: closing it would release the locks of other connections of this process.
pub(crate) fn missing_permission(path: &Path) -> Option<WorldError> {
    if let Some(error) = unwritable_folder(path) {
        return Some(error);
    }
    // The folder could be written just now, so the process may open more files, and the disk has space.
    let files: Vec<String> =
        ["", "-wal", "-shm"].into_iter().filter_map(|suffix| describe(&with_suffix(path, suffix))).collect();
    (!files.is_empty()).then(|| {
        WorldError::Invalid(format!(
            "this user has no permission to read and write `{}` ({}); change the owner or the mode of these files",
            path.display(),
            files.join(", ")
        ))
    })
}

/// The error for a folder in which this user cannot create files; `None` if it can, or if this is unknown.
pub(crate) fn unwritable_folder(path: &Path) -> Option<WorldError> {
    let folder = folder_of(path);
    let probe = with_suffix(path, &format!("-probe-{}", std::process::id()));
    match OpenOptions::new().create_new(true).write(true).open(&probe) {
        Ok(_) => {
            // A probe that remains is empty and harmless.
            let _ = std::fs::remove_file(&probe);
            None
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let about = folder.metadata().map_or_else(|_| String::new(), |found| mode_of(&found));
            Some(WorldError::Invalid(format!(
                "this user has no permission to write in the folder `{}` of `{}`{about}; SQLite creates files next to \
                 its own: make the folder writable, or choose another path",
                folder.display(),
                path.display()
            )))
        }
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => Some(WorldError::Invalid(format!(
            "the file system of `{}` is read-only; mount it writable, or choose another path",
            path.display()
        ))),
        Err(_) => None,
    }
}

/// The error for a file that this user can only read.
pub(crate) fn read_only_file(path: &Path) -> WorldError {
    let about = path.metadata().map_or_else(|_| String::new(), |found| mode_of(&found));
    WorldError::Invalid(format!(
        "`{}` is read-only for this user{about}; make it writable for this user",
        path.display()
    ))
}

/// The folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The file with its owner and mode; `None` if it does not exist.
fn describe(path: &Path) -> Option<String> {
    let found = path.metadata().ok()?;
    Some(format!("`{}`{}", path.display(), mode_of(&found)))
}

#[cfg(unix)]
fn mode_of(metadata: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    format!(" (mode {:04o}, owner {}:{})", metadata.mode() & 0o7777, metadata.uid(), metadata.gid())
}

#[cfg(not(unix))]
fn mode_of(_: &Metadata) -> String {
    String::new()
}
