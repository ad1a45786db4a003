//! Locks: how one process knows that another is gone.
//!
//! A session holds an exclusive lock on a small file of its own, in a folder beside the database. The
//! kernel frees the lock at any death of the process, so whoever can take it knows that the owner is
//! gone. A file that is not there says nothing: then only the session's time counts.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use outlast_core::{SessionId, WorldError};
use parking_lot::Mutex;

/// The lock files of a database, and the locks that this process holds for its sessions.
#[derive(Debug)]
pub(crate) struct Locks {
    folder: PathBuf,
    held: Mutex<HashMap<SessionId, File>>,
}

impl Locks {
    /// The locks of the sessions in the database at `path`.
    pub(crate) fn beside(path: &Path) -> Self {
        let mut folder = path.as_os_str().to_owned();
        folder.push("-sessions");
        Self { folder: folder.into(), held: Mutex::default() }
    }

    /// Whether this world holds the session's lock.
    pub(crate) fn holds(&self, session: SessionId) -> bool {
        self.held.lock().contains_key(&session)
    }

    /// Takes the session's lock, before its row says that it exists. Repeating it changes nothing.
    pub(crate) fn acquire(&self, session: SessionId) -> Result<(), WorldError> {
        let mut held = self.held.lock();
        let path = self.path(session);
        // A takeover removes the file of a session, which may join again.
        if held.contains_key(&session) && path.exists() {
            return Ok(());
        }
        let locked = std::fs::create_dir_all(&self.folder)
            .and_then(|()| OpenOptions::new().create(true).truncate(false).write(true).open(&path))
            .and_then(|file| file.try_lock().map(|()| file).map_err(io::Error::from));
        match locked {
            Ok(file) => {
                held.insert(session, file);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(WorldError::Conflict(format!(
                "session {session} is joined by another process; join with a new one"
            ))),
            Err(error) => Err(WorldError::Unavailable(format!(
                "the session's lock `{}` cannot be taken ({error}); make the folder writable for this user",
                path.display()
            ))),
        }
    }

    /// The lock of a session whose owner is gone; `None` when it lives, or when nothing can be told.
    pub(crate) fn take_abandoned(&self, session: SessionId) -> Option<File> {
        // Without `create`: a missing file must not look like a free lock.
        let file = OpenOptions::new().write(true).open(self.path(session)).ok()?;
        match file.try_lock() {
            Ok(()) => Some(file),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
        }
    }

    /// Removes the lock of a session that has ended.
    pub(crate) fn release(&self, session: SessionId) {
        let file = self.held.lock().remove(&session);
        // A file that stays is harmless: nothing asks for the lock of a session that has no row.
        let _ = std::fs::remove_file(self.path(session));
        drop(file);
    }

    fn path(&self, session: SessionId) -> PathBuf {
        self.folder.join(session.to_string())
    }
}
