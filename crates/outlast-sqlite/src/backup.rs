//! Backups: a copy of the file, made while everything goes on.
//!
//! SQLite writes the copy from one unchanging view of the file, on a connection and a thread of its own:
//! the writer does not wait for it. The copy is compact, and has all that was acknowledged before the
//! backup began. The workers of the original are not those of the copy, so their sessions are ended in
//! it, and what they held is ready for whoever opens it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use outlast_core::{Clock, WorldError};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::connection::error::{Refusal, closed, of_sqlite};
use crate::connection::file::{self, Opening, retry_busy};
use crate::read::id_clock_skew::Skew;
use crate::sessions::session;
use crate::sessions::session_locks::Locks;
use crate::write::lease_cache::Holdings;
use crate::write::tx::Tx;

/// Between two flushes of a copy that is being written: some megabytes.
const FLUSH_PAUSE: Duration = Duration::from_millis(10);

/// Copies the file of a world to `to`, which must not exist. The world may be open here and elsewhere, and
/// everything goes on meanwhile.
///
/// The copy has every change that was acknowledged before, and of those that are under way some or none,
/// each whole. It opens as a world of its own, without the sessions of the original.
///
/// # Errors
///
/// [`WorldError::Conflict`] when `to` exists, [`WorldError::Invalid`] when its folder does not,
/// [`WorldError::Unavailable`] when it cannot be written. Then there is no copy.
pub async fn backup(from: &Path, to: &Path, clock: Arc<dyn Clock>) -> Result<(), WorldError> {
    let (from, to) = (from.to_owned(), to.to_owned());
    let (reply, answer) = oneshot::channel();
    let work = move || {
        // Nobody listens any more when the caller's future was dropped; the copy is made all the same.
        let _ = reply.send(copy(&from, &to, &*clock));
    };
    // Not awaited when it is dropped: whoever loses patience does not block.
    std::thread::Builder::new().name("outlast-backup".into()).spawn(work).map_err(|error| {
        WorldError::Unavailable(format!("the thread of the backup cannot be started ({error}); end others"))
    })?;
    answer.await.map_err(|_| closed())?
}

fn copy(from: &Path, to: &Path, clock: &dyn Clock) -> Result<(), WorldError> {
    file::check_folder(to)?;
    if to.symlink_metadata().is_ok() {
        return Err(exists(to));
    }
    let unfinished = Unfinished::beside(to);
    unfinished.write(from)?;
    unfinished.settle(clock)?;
    unfinished.publish(to)
}

fn exists(to: &Path) -> WorldError {
    WorldError::Conflict(format!(
        "`{}` exists; a backup overwrites nothing, choose another path",
        to.display()
    ))
}

/// A copy that nobody knows yet. What is left of it goes when this is dropped.
struct Unfinished(PathBuf);

impl Unfinished {
    fn beside(to: &Path) -> Self {
        static COPIES: AtomicU64 = AtomicU64::new(0);
        let copy = COPIES.fetch_add(1, Ordering::Relaxed);
        let mut path = to.as_os_str().to_owned();
        path.push(format!(".unfinished-{}-{copy}", std::process::id()));
        Self(path.into())
    }

    /// Copies what is in the file now.
    fn write(&self, from: &Path) -> Result<(), WorldError> {
        let refused = |error: rusqlite::Error| of_sqlite(&error, from);
        let Some(path) = self.0.to_str() else {
            return Err(WorldError::Invalid(format!("the path `{}` is not UTF-8", self.0.display())));
        };
        let connection = file::open_existing(from)?;
        let is_written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| self.flush_until(&is_written));
            let written = retry_busy(|| connection.execute("VACUUM INTO ?1", [path]));
            is_written.store(true, Ordering::Relaxed);
            written.map(|_| ()).map_err(refused)
        })
    }

    /// Brings the copy to the disk while it is being written. At once at its end it would keep the disk from
    /// the commits of the world for as long as it takes.
    fn flush_until(&self, is_written: &AtomicBool) {
        while !is_written.load(Ordering::Relaxed) {
            // It may not be there yet; and what does not work here is tried once more at the end.
            let _ = File::open(&self.0).and_then(|file| file.sync_data());
            std::thread::park_timeout(FLUSH_PAUSE);
        }
    }

    /// Ends the sessions of the original in the copy: nobody will ever beat there.
    fn settle(&self, clock: &dyn Clock) -> Result<(), WorldError> {
        let refused = |error: rusqlite::Error| of_sqlite(&error, &self.0);
        let connection = file::open(&Opening::of(&self.0), None)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(refused)?;
        end_sessions(&connection, &self.0, clock).map_err(|refusal| refusal.into_world(&self.0))?;
        // Back into one file, which can be moved.
        connection.execute_batch("COMMIT; PRAGMA journal_mode = DELETE").map_err(refused)
    }

    /// Gives the copy its name, unless that is taken meanwhile.
    fn publish(&self, to: &Path) -> Result<(), WorldError> {
        let refused = |error: std::io::Error| {
            WorldError::Unavailable(format!("the backup `{}` cannot be written ({error})", to.display()))
        };
        File::open(&self.0).and_then(|file| file.sync_all()).map_err(refused)?;
        match std::fs::hard_link(&self.0, to) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(exists(to)),
            // Not every file system has links.
            Err(_) => std::fs::rename(&self.0, to).map_err(refused)?,
        }
        // A name is durable when its folder is; where folders cannot be opened, the system sees to it.
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let mut path = self.0.as_os_str().to_owned();
            path.push(suffix);
            // Most of them are not there.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn end_sessions(connection: &Connection, path: &Path, clock: &dyn Clock) -> Result<(), Refusal> {
    let sessions = session::all(connection)?;
    let locks = Locks::beside(path, clock.is_virtual());
    let (mut holdings, mut skew) = (Holdings::default(), Skew::default());
    let mut tx = Tx::new(connection, clock.now(), &locks, &mut holdings, &mut skew);
    for session in sessions {
        session::leave(&mut tx, &session.id)?;
    }
    tx.finish()?;
    Ok(())
}
