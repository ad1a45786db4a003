//! Whether the file of a world is still at its path.
//!
//! A process can keep using an open file that somebody has moved, replaced or removed. SQLite does not notice: it would
//! acknowledge commits that are not in the file at the path. So the world remembers the identity (device and inode) of
//! the file and of its write-ahead log, to which commits are written first. The writer compares both with what is at
//! the paths after every COMMIT and before it answers, readers do so after every query, and the change watcher does so
//! while callers wait. A difference stops the world: that call and every later one fail with the same error.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use outlast_core::WorldError;
use tokio::sync::Notify;

/// The file of an open world, and its write-ahead log.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    path: PathBuf,
    parts: Vec<OpenedPart>,
    /// Why the world has stopped, if it has.
    lost: OnceLock<WorldError>,
    stopped: Notify,
}

/// One of the files, as it was when the world was opened.
#[derive(Debug)]
struct OpenedPart {
    path: PathBuf,
    identity: Option<InodeId>,
}

impl OpenedFile {
    /// The file that was opened at an absolute path and is in use now. `before` is what was there before it was opened.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the file was replaced since.
    pub(crate) fn opened_at(path: &Path, before: Option<InodeId>) -> Result<Self, WorldError> {
        let parts: Vec<_> = [path.to_owned(), with_suffix(path, "-wal")]
            .into_iter()
            .map(|path| OpenedPart { identity: InodeId::at(&path).unwrap_or(None), path })
            .collect();
        if before.is_some() && parts.iter().map(|part| part.identity).next() != Some(before) {
            return Err(WorldError::unavailable(format!(
                "`{}` was replaced while it was being opened; open it again",
                path.display()
            )));
        }
        Ok(Self { path: path.to_owned(), parts, lost: OnceLock::new(), stopped: Notify::new() })
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the paths, and stops the world if another file or none is there.
    ///
    /// # Errors
    ///
    /// `Gone` if the world has stopped, now or before.
    pub(crate) fn check(&self) -> Result<(), WorldError> {
        self.check_stopped()?;
        for part in &self.parts {
            if let Some(difference) = part.difference() {
                let error = self.lost.get_or_init(|| self.lost_error(part, difference));
                self.stopped.notify_waiters();
                return Err(error.clone());
            }
        }
        Ok(())
    }

    /// The error of [`check`](Self::check) without looking at the paths again.
    pub(crate) fn check_stopped(&self) -> Result<(), WorldError> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Waits until the world is stopped, and returns the error.
    pub(crate) async fn wait_until_stopped(&self) -> WorldError {
        loop {
            let stopped = self.stopped.notified();
            if let Some(error) = self.lost.get() {
                return error.clone();
            }
            stopped.await;
        }
    }

    fn lost_error(&self, part: &OpenedPart, difference: &str) -> WorldError {
        WorldError::gone(format!(
            "`{}` was moved, replaced or removed while it was open ({} {difference}), so this process does not use it \
             any more: recent changes are not in the file at that path; stop every process that has it open, put the \
             file back together with its `-wal` file, or restore a backup, and start them again",
            self.path.display(),
            part.path.display()
        ))
    }
}

impl OpenedPart {
    /// How the file at the path differs from the opened one; `None` if it does not, or if this cannot be seen.
    fn difference(&self) -> Option<&'static str> {
        let opened = self.identity?;
        match InodeId::at(&self.path) {
            Ok(Some(found)) if found == opened => None,
            Ok(Some(_)) => Some("is another file now"),
            Ok(None) => Some("does not exist any more"),
            // The path cannot be examined, which proves nothing.
            Err(_) => None,
        }
    }
}

/// A path with a suffix after its file name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Identifies a file, whatever its path. The inode of an open file is not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeId {
    device: u64,
    inode: u64,
}

impl InodeId {
    /// The file at a path, through symbolic links; `None` if there is none.
    pub(crate) fn at(path: &Path) -> std::io::Result<Option<Self>> {
        match Self::read(path) {
            Ok(found) => Ok(found),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks for the inode only. Since Linux 6.13, asking for the times of a file makes the next write to it store a new
    /// time, so that the next flush also writes the inode: that made each commit 30 % slower.
    #[cfg(target_os = "linux")]
    fn read(path: &Path) -> std::io::Result<Option<Self>> {
        use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
        use rustix::io::Errno;
        match statx(CWD, path, AtFlags::empty(), StatxFlags::INO) {
            Ok(found) => Ok(Some(Self {
                device: makedev(found.stx_dev_major, found.stx_dev_minor),
                inode: found.stx_ino,
            })),
            // An old kernel or a sandbox without this call.
            Err(Errno::NOSYS | Errno::PERM) => Ok(Some(Self::of(&path.metadata()?))),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(all(unix, not(target_os = "linux")))]
    fn read(path: &Path) -> std::io::Result<Option<Self>> {
        path.metadata().map(|metadata| Some(Self::of(&metadata)))
    }

    /// Other systems do not let anyone move or remove a file that SQLite has open.
    #[cfg(not(unix))]
    fn read(path: &Path) -> std::io::Result<Option<Self>> {
        path.metadata().map(|_| None)
    }

    #[cfg(unix)]
    fn of(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}
