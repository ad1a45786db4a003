//! Backups: copying the file while it is in use.
//!
//! SQLite writes the copy from one snapshot of the file, on a separate connection and thread, so the writer does not
//! wait for it. The copy is compact, and contains every change that was acknowledged before the backup began. The
//! workers of the original do not work on the copy. So their sessions are ended in the copy, and the runs that they
//! held are ready for the workers that open it.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast_core::{Clock, WorldError};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::connection::error::{Refusal, from_sqlite, world_closed};
use crate::connection::file::{self, ConnectionSettings, retry_busy};
use crate::connection::permissions::unwritable_folder;
use crate::read::id_clock_skew::IdClockSkew;
use crate::sessions::session;
use crate::sessions::session_locks::SessionLocks;
use crate::write::lease_cache::LeaseCache;
use crate::write::tx::Tx;

/// The pause between two flushes of a copy that is being written: some megabytes.
const FLUSH_PAUSE: Duration = Duration::from_millis(10);

/// Copies the file of a world to `to`, which must not exist. The world can be in use in this and other processes.
///
/// The copy contains every change that was acknowledged before the call. Of the changes during the call it contains
/// some or none, each of them completely. It can be opened as a world of its own, without the sessions of the original.
///
/// # Errors
///
/// [`WorldError::Conflict`] if `to` exists, [`WorldError::Invalid`] if its folder does not or this user may not write
/// there, and [`WorldError::Unavailable`] if it cannot be written for another reason. After an error there is no copy.
pub async fn backup(from: &Path, to: &Path, clock: Arc<dyn Clock>) -> Result<(), WorldError> {
    let (from, to) = (from.to_owned(), to.to_owned());
    let (reply, answer) = oneshot::channel();
    let work = move || {
        // Sending fails if the caller's future was dropped; the copy is completed anyway.
        let _ = reply.send(copy(&from, &to, &*clock));
    };
    // The thread is not joined, so that dropping this future does not block.
    std::thread::Builder::new().name("outlast-backup".into()).spawn(work).map_err(|error| {
        WorldError::unavailable(format!(
            "the thread of the backup cannot be started ({error}); reduce the number of threads"
        ))
    })?;
    answer.await.map_err(|_| world_closed())?
}

/// Writes a copy under a temporary name, ends the sessions in it, and gives it its final name.
fn copy(from: &Path, to: &Path, clock: &dyn Clock) -> Result<(), WorldError> {
    file::check_folder(to)?;
    if let Some(error) = unwritable_folder(to) {
        return Err(error);
    }
    if to.symlink_metadata().is_ok() {
        return Err(already_exists(to));
    }
    let copy = UnfinishedCopy::next_to(to);
    copy.write(from)?;
    copy.end_sessions(clock)?;
    copy.publish(to)
}

fn already_exists(to: &Path) -> WorldError {
    WorldError::conflict(format!(
        "`{}` already exists, and a backup does not overwrite files; choose another path",
        to.display()
    ))
}

/// A copy under a temporary name. Its files are removed when it is dropped.
struct UnfinishedCopy(PathBuf);

impl UnfinishedCopy {
    fn next_to(to: &Path) -> Self {
        let mut path = to.as_os_str().to_owned();
        // A random name: processes in several containers have the same id.
        path.push(format!(".unfinished-{:016x}", RandomState::new().hash_one(std::process::id())));
        Self(path.into())
    }

    /// Copies the current state of the file.
    fn write(&self, from: &Path) -> Result<(), WorldError> {
        let to_world_error = |error: rusqlite::Error| from_sqlite(&error, from);
        let Some(path) = self.0.to_str() else {
            return Err(WorldError::invalid(format!(
                "the path `{}` is not UTF-8; choose another path",
                self.0.display()
            )));
        };
        let connection = file::open_existing(from)?;
        let is_written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| self.flush_until(&is_written));
            let written = retry_busy(|| connection.execute("VACUUM INTO ?1", [path]));
            is_written.store(true, Ordering::Relaxed);
            written.map(|_| ()).map_err(to_world_error)
        })
    }

    /// Flushes the copy while it is being written. One flush at the end would delay the commits of the world until all
    /// of it is on the disk.
    fn flush_until(&self, is_written: &AtomicBool) {
        while !is_written.load(Ordering::Relaxed) {
            // The file may not exist yet. Errors are ignored here, because the final flush reports them.
            let _ = File::open(&self.0).and_then(|file| file.sync_data());
            std::thread::park_timeout(FLUSH_PAUSE);
        }
    }

    /// Ends the sessions of the original in the copy: their workers will never renew them there.
    fn end_sessions(&self, clock: &dyn Clock) -> Result<(), WorldError> {
        let to_world_error = |error: rusqlite::Error| from_sqlite(&error, &self.0);
        let connection = file::open(&ConnectionSettings::durable(&self.0), None)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(to_world_error)?;
        end_sessions(&connection, &self.0, clock).map_err(|refusal| refusal.into_world_error(&self.0))?;
        // Without the write-ahead log the copy is a single file.
        connection.execute_batch("COMMIT; PRAGMA journal_mode = DELETE").map_err(to_world_error)
    }

    /// Gives the copy its final name, unless that exists by now.
    fn publish(&self, to: &Path) -> Result<(), WorldError> {
        let to_world_error = |error: std::io::Error| match error.kind() {
            ErrorKind::AlreadyExists => already_exists(to),
            _ => WorldError::unavailable(format!(
                "the backup `{}` cannot be written ({error}); check the disk and the folder",
                to.display()
            )),
        };
        File::open(&self.0).and_then(|file| file.sync_all()).map_err(to_world_error)?;
        match std::fs::hard_link(&self.0, to) {
            // Not every file system supports hard links.
            Err(error) if error.kind() != ErrorKind::AlreadyExists => self.rename(to),
            linked => linked,
        }
        .map_err(to_world_error)?;
        // A file name is durable when its folder is. Systems on which folders cannot be opened do this by themselves.
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    }

    /// Renames the copy. That would replace another file, so an empty file reserves the name first.
    fn rename(&self, to: &Path) -> std::io::Result<()> {
        drop(File::create_new(to)?);
        // Without this the reserved name would stay. The error of the rename is the one to report.
        std::fs::rename(&self.0, to).inspect_err(|_| drop(std::fs::remove_file(to)))
    }
}

impl Drop for UnfinishedCopy {
    fn drop(&mut self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let mut path = self.0.as_os_str().to_owned();
            path.push(suffix);
            // Most of these files do not exist.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn end_sessions(connection: &Connection, path: &Path, clock: &dyn Clock) -> Result<(), Refusal> {
    let sessions = session::sessions(connection)?;
    let locks = SessionLocks::for_database(path, clock.is_virtual());
    let (mut lease_cache, mut id_skew) = (LeaseCache::default(), IdClockSkew::default());
    let mut tx = Tx::new(connection, clock.now(), &locks, &mut lease_cache, &mut id_skew);
    for session in sessions {
        session::leave(&mut tx, &session.id)?;
    }
    tx.finish()?;
    Ok(())
}
