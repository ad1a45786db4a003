//! Why this user cannot use a file: the permission that is missing.

use std::fs::{Metadata, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

use outlast_core::WorldError;

use crate::connection::opened_file::with_suffix;

/// The permission that this user lacks for the file at `path`, after SQLite could not open or write it; `None` if the
/// cause is another one, or is not certain.
///
/// It does not open the file itself: closing it would release the locks of other connections of this process.
pub(crate) fn missing_permission(path: &Path) -> Option<WorldError> {
    let own_file = match probe_folder(path) {
        FolderProbe::Writable(own_file) => own_file,
        FolderProbe::Unwritable(error) => return Some(error),
        FolderProbe::Unknown => return None,
    };
    let refused: Vec<String> = ["", "-wal", "-shm"]
        .into_iter()
        .filter_map(|suffix| {
            let file = with_suffix(path, suffix);
            let found = file.metadata().ok().filter(|found| is_refused(found, &own_file))?;
            Some(format!("`{}`{}", file.display(), mode_of(&found)))
        })
        .collect();
    (!refused.is_empty()).then(|| {
        WorldError::invalid(format!(
            "this user has no permission to read and write {}; change the owner or the mode",
            refused.join(", ")
        ))
    })
}

/// The error for a folder in which this user cannot create files; `None` if it can, or if this is unknown.
pub(crate) fn unwritable_folder(path: &Path) -> Option<WorldError> {
    match probe_folder(path) {
        FolderProbe::Unwritable(error) => Some(error),
        FolderProbe::Writable(_) | FolderProbe::Unknown => None,
    }
}

/// Whether this user can create files in a folder.
enum FolderProbe {
    /// It can. The metadata are those of a file that it created.
    Writable(Metadata),
    /// It lacks the permission.
    Unwritable(WorldError),
    /// It cannot, for another reason.
    Unknown,
}

/// Creates a file next to the file at `path`, and removes it.
fn probe_folder(path: &Path) -> FolderProbe {
    let folder = folder_of(path);
    let probe = with_suffix(path, &format!("-probe-{}", std::process::id()));
    match OpenOptions::new().create_new(true).write(true).open(&probe) {
        Ok(created) => {
            let metadata = created.metadata();
            // A probe that remains is empty and harmless.
            let _ = std::fs::remove_file(&probe);
            metadata.map_or(FolderProbe::Unknown, FolderProbe::Writable)
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let about = folder.metadata().map_or_else(|_| String::new(), |found| mode_of(&found));
            FolderProbe::Unwritable(WorldError::invalid(format!(
                "this user has no permission to write in the folder `{}` of `{}`{about}; SQLite creates files next to \
                 its own: make the folder writable, or choose another path",
                folder.display(),
                path.display()
            )))
        }
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => {
            FolderProbe::Unwritable(WorldError::invalid(format!(
                "the file system of `{}` is read-only; mount it writable, or choose another path",
                path.display()
            )))
        }
        Err(_) => FolderProbe::Unknown,
    }
}

/// The error for a file that this user can only read.
pub(crate) fn read_only_file(path: &Path) -> WorldError {
    let about = path.metadata().map_or_else(|_| String::new(), |found| mode_of(&found));
    WorldError::invalid(format!(
        "`{}` is read-only for this user{about}; make it writable for this user",
        path.display()
    ))
}

/// The folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether this user certainly cannot both read and write a file. `own_file` is a file that it created.
#[cfg(unix)]
fn is_refused(file: &Metadata, own_file: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;

    const ROOT: u32 = 0;
    const READ_AND_WRITE: u32 = 0o6;
    let [owner, group, others] =
        [6, 3, 0].map(|shift| (file.mode() >> shift) & READ_AND_WRITE == READ_AND_WRITE);
    if own_file.uid() == ROOT {
        return false;
    }
    if own_file.uid() == file.uid() {
        return !owner;
    }
    // The user may belong to the file's group, besides its own.
    !group && !others
}

#[cfg(not(unix))]
fn is_refused(file: &Metadata, _: &Metadata) -> bool {
    file.permissions().readonly()
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
