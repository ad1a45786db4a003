//! Lock files: how one process detects that the process of another session is dead.
//!
//! A session holds an exclusive lock on a small file of its own, in a folder next to the database. The kernel frees the
//! lock whenever the process dies. So a process that can take the lock knows that its owner is dead. A missing file
//! proves nothing; then only the expiry time of the session counts.
//!
//! That expiry time is measured by the world's clock, which may jump. So a session counts as overdue only if this
//! process has also observed no beat for the whole session time, measured by a monotonic clock.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outlast_core::{SessionId, Timestamp, WorldError};
use parking_lot::Mutex;

use crate::sessions::session::SessionRow;

/// The interval at which beats save the world's time in the file. If the system clock is set back, the world's clock
/// loses at most this much.
const CLOCK_SAVE_INTERVAL: Duration = Duration::from_secs(30);

/// Attempts to create and lock a file that another process may be removing.
const ACQUIRE_TRIES_MAX: usize = 10;

/// The lock files of a database, and the locks that this process holds for its sessions.
#[derive(Debug)]
pub(crate) struct SessionLocks {
    folder: PathBuf,
    held: Mutex<HashMap<SessionId, File>>,
    /// When a beat last saved the world's time.
    clock_saved_at: Mutex<Option<Timestamp>>,
    /// The last beat of each other session; `None` if a test controls the clock.
    last_beats: Option<Mutex<HashMap<SessionId, LastBeat>>>,
}

/// The last beat of a session, and when this process first observed it.
#[derive(Clone, Copy, Debug)]
struct LastBeat {
    /// The expiry time that the beat set. It identifies the beat.
    expires_at: Timestamp,
    observed_at: Instant,
}

impl SessionLocks {
    /// The locks of the sessions in the database at `path`.
    pub(crate) fn for_database(path: &Path, is_virtual: bool) -> Self {
        let mut folder = path.as_os_str().to_owned();
        folder.push("-sessions");
        let last_beats = (!is_virtual).then(Mutex::default);
        Self { folder: folder.into(), held: Mutex::default(), clock_saved_at: Mutex::default(), last_beats }
    }

    /// Whether this world holds the lock of the session.
    pub(crate) fn holds(&self, session: SessionId) -> bool {
        self.held.lock().contains_key(&session)
    }

    /// Takes the lock of a session before its row is inserted. Repeating the call has no effect.
    pub(crate) fn acquire(&self, session: SessionId) -> Result<(), WorldError> {
        let mut held = self.held.lock();
        let path = self.lock_path(session);
        // A takeover removes the file of a session, and the session may join again.
        if held.contains_key(&session) && path.exists() {
            return Ok(());
        }
        match self.create_and_lock(&path) {
            Ok(file) => {
                held.insert(session, file);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(WorldError::conflict(format!(
                "session {session} is already joined by another process; join with a new session"
            ))),
            Err(error) => Err(WorldError::unavailable(format!(
                "the lock file `{}` of the session cannot be locked ({error}); {}",
                path.display(),
                remedy(&error)
            ))),
        }
    }

    /// Creates and locks a file. If another process removes it as stale between the two steps, it is created again.
    fn create_and_lock(&self, path: &Path) -> io::Result<File> {
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

    /// Whether a session has expired by the world's clock, and this process has observed no beat for the session time.
    #[allow(
        clippy::disallowed_methods,
        reason = "a monotonic clock, to measure how long a session has not beaten"
    )]
    pub(crate) fn is_overdue(&self, other: &SessionRow, now: Timestamp) -> bool {
        let is_expired = other.expires_at <= now;
        let Some(last_beats) = &self.last_beats else { return is_expired };
        let observed_at = Instant::now();
        let new = LastBeat { expires_at: other.expires_at, observed_at };
        let mut last_beats = last_beats.lock();
        let last = last_beats.entry(other.id).or_insert(new);
        if last.expires_at != other.expires_at {
            *last = new;
        }
        is_expired && observed_at.duration_since(last.observed_at) >= other.time
    }

    /// Whether a beat should save the world's time in the file: `true` once per [`CLOCK_SAVE_INTERVAL`].
    pub(crate) fn is_clock_save_due(&self, now: Timestamp) -> bool {
        let mut saved_at = self.clock_saved_at.lock();
        let is_due = saved_at.is_none_or(|saved_at| now >= saved_at.plus(CLOCK_SAVE_INTERVAL));
        if is_due {
            *saved_at = Some(now);
        }
        is_due
    }

    /// Discards the observed beats of all sessions that are not joined any more.
    pub(crate) fn retain_sessions(&self, joined: &[SessionRow]) {
        if let Some(last_beats) = &self.last_beats {
            last_beats.lock().retain(|session, _| joined.iter().any(|joined| joined.id == *session));
        }
    }

    /// Whether the session has a lock file.
    pub(crate) fn has_lock_file(&self, session: SessionId) -> bool {
        self.lock_path(session).exists()
    }

    /// Whether the process of the session is certainly dead.
    pub(crate) fn is_abandoned(&self, session: SessionId) -> bool {
        self.try_lock_abandoned(session).is_some()
    }

    /// Removes the lock files of joins that were interrupted: nobody holds their locks, and their sessions have no
    /// rows.
    pub(crate) fn remove_stale_files(&self, joined: &[SessionRow]) {
        let Ok(files) = std::fs::read_dir(&self.folder) else { return };
        for file in files.flatten() {
            let Some(session) = file.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok())
            else {
                continue;
            };
            if joined.iter().any(|joined| joined.id == session) {
                continue;
            }
            if let Some(lock) = self.try_lock_abandoned(session) {
                // Remove the file while it is locked, so that a process that joins meanwhile creates a new one.
                let _ = std::fs::remove_file(file.path());
                drop(lock);
            }
        }
    }

    /// Takes the lock of a session whose process is dead; `None` if the process is alive, or if this is unknown.
    pub(crate) fn try_lock_abandoned(&self, session: SessionId) -> Option<File> {
        // Without `create`, because a missing file must not look like a free lock.
        let file = OpenOptions::new().write(true).open(self.lock_path(session)).ok()?;
        match file.try_lock() {
            Ok(()) => Some(file),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
        }
    }

    /// Releases the lock of a session and keeps its file, as the kernel does when the process dies.
    #[cfg(feature = "test-support")]
    pub(crate) fn abandon(&self, session: SessionId) {
        self.held.lock().remove(&session);
    }

    /// Releases the lock of a session that has ended, and removes its file.
    pub(crate) fn release(&self, session: SessionId) {
        let file = self.held.lock().remove(&session);
        // A file that remains is harmless: nobody checks the lock of a session that has no row.
        let _ = std::fs::remove_file(self.lock_path(session));
        drop(file);
    }

    fn lock_path(&self, session: SessionId) -> PathBuf {
        self.folder.join(session.to_string())
    }
}

/// How a person can fix the error of a lock file.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "free some space",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "make the folder writable for this user"
        }
        _ => "check that the folder exists and is writable, and how many files this process may open",
    }
}
