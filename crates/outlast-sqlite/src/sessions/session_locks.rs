//! Locks: how one process knows that another is gone.
//!
//! A session holds an exclusive lock on a small file of its own, in a folder beside the database. The
//! kernel frees the lock at any death of the process, so whoever can take it knows that the owner is
//! gone. A file that is not there says nothing: then only the session's time counts.
//!
//! That time is the world's, which may jump. So a session is overdue only when this process, too, has
//! seen it silent for as long, by a clock that nobody can set.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outlast_core::{SessionId, Timestamp, WorldError};
use parking_lot::Mutex;

use crate::sessions::session::Joined;

/// How often beats note the world's time: so much of it may be lost when the machine's clock is set back.
const NOTE_EVERY: Duration = Duration::from_secs(30);

/// Tries to lock a file that another process may be sweeping away.
const ACQUIRE_TRIES_MAX: usize = 10;

/// The lock files of a database, and the locks that this process holds for its sessions.
#[derive(Debug)]
pub(crate) struct Locks {
    folder: PathBuf,
    held: Mutex<HashMap<SessionId, File>>,
    /// When the world's time was last noted.
    noted_at: Mutex<Option<Timestamp>>,
    /// Since when others have not beaten; `None` when a test moves the clock.
    silent: Option<Mutex<HashMap<SessionId, Silent>>>,
}

/// A session's last beat, and when this process first saw that it was the last.
#[derive(Clone, Copy, Debug)]
struct Silent {
    expires_at: Timestamp,
    since: Instant,
}

impl Locks {
    /// The locks of the sessions in the database at `path`.
    pub(crate) fn beside(path: &Path, is_virtual: bool) -> Self {
        let mut folder = path.as_os_str().to_owned();
        folder.push("-sessions");
        let silent = (!is_virtual).then(Mutex::default);
        Self { folder: folder.into(), held: Mutex::default(), noted_at: Mutex::default(), silent }
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
        match self.lock(&path) {
            Ok(file) => {
                held.insert(session, file);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(WorldError::Conflict(format!(
                "session {session} is joined by another process; join with a new one"
            ))),
            Err(error) => Err(WorldError::Unavailable(format!(
                "the session's lock `{}` cannot be taken ({error}); {}",
                path.display(),
                remedy(&error)
            ))),
        }
    }

    /// Makes and locks a file. One that is swept away in between, by someone who took it for a leftover,
    /// is made again.
    fn lock(&self, path: &Path) -> io::Result<File> {
        let mut last = io::Error::from(io::ErrorKind::WouldBlock);
        for _ in 0..ACQUIRE_TRIES_MAX {
            let locked = std::fs::create_dir_all(&self.folder)
                .and_then(|()| OpenOptions::new().create(true).truncate(false).write(true).open(path))
                .and_then(|file| file.try_lock().map(|()| file).map_err(io::Error::from));
            match locked {
                Ok(file) if path.exists() => return Ok(file),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    last = error;
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Whether a session has not beaten for its time, by the world's clock and by this process's own.
    #[allow(clippy::disallowed_methods, reason = "a clock that nobody can set, for what others do not do")]
    pub(crate) fn is_overdue(&self, other: &Joined, now: Timestamp) -> bool {
        let is_expired = other.expires_at <= now;
        let Some(silent) = &self.silent else { return is_expired };
        let this_moment = Instant::now();
        let new = Silent { expires_at: other.expires_at, since: this_moment };
        let mut silent = silent.lock();
        let seen = silent.entry(other.id).or_insert(new);
        if seen.expires_at != other.expires_at {
            *seen = new;
        }
        is_expired && this_moment.duration_since(seen.since) >= other.time
    }

    /// Whether a beat should note the world's time in the file; `true` once per [`NOTE_EVERY`].
    pub(crate) fn is_time_to_note(&self, now: Timestamp) -> bool {
        let mut noted_at = self.noted_at.lock();
        let is_time = noted_at.is_none_or(|noted_at| now >= noted_at.plus(NOTE_EVERY));
        if is_time {
            *noted_at = Some(now);
        }
        is_time
    }

    /// Forgets since when others have been silent, of those that are gone.
    pub(crate) fn forget_all_but(&self, joined: &[Joined]) {
        if let Some(silent) = &self.silent {
            silent.lock().retain(|session, _| joined.iter().any(|joined| joined.id == *session));
        }
    }

    /// Whether there is a lock of the session that somebody may hold.
    pub(crate) fn has_file(&self, session: SessionId) -> bool {
        self.path(session).exists()
    }

    /// Whether the session's owner is gone for sure.
    pub(crate) fn is_abandoned(&self, session: SessionId) -> bool {
        self.take_abandoned(session).is_some()
    }

    /// Removes the lock files of joins that were cut short: nobody holds them, and no session is theirs.
    pub(crate) fn sweep(&self, joined: &[Joined]) {
        let Ok(files) = std::fs::read_dir(&self.folder) else { return };
        for file in files.flatten() {
            let Some(session) = file.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok())
            else {
                continue;
            };
            if joined.iter().any(|joined| joined.id == session) {
                continue;
            }
            if let Some(lock) = self.take_abandoned(session) {
                // Under the lock: whoever joins meanwhile makes the file again.
                let _ = std::fs::remove_file(file.path());
                drop(lock);
            }
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

/// What a person does when a lock cannot be taken.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "free some space",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "make the folder writable for this user"
        }
        _ => "check that the folder is there and writable, and how many files this process may open",
    }
}
