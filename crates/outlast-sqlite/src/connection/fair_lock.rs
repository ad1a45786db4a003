//! A fair lock for processes that write to one file.
//!
//! **Problem.** SQLite gives its write lock to whichever process asks when the lock is free. A busy process asks again
//! right after its COMMIT, while the others only retry from time to time. They can miss the short gaps for a long time.
//!
//! **Protocol.** A process that finds the file busy takes an exclusive lock on a small *queue file* next to the
//! database. At most one process holds that lock: it is the next one to write. Before every transaction, each process
//! checks whether another process holds the queue file, and if so waits a short time for it to begin. The kernel frees
//! the lock of a process that dies.
//!
//! **A frozen process** (stopped by a debugger, for example) may hold the queue file and never begin. So the others
//! wait for a limited time, and after some waits without effect they ignore the queue file for a while.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outlast_core::duration::duration_text;
use outlast_core::{Backoff, WorldError};
use rusqlite::Error;

use crate::connection::error::{from_sqlite, is_busy};
use crate::connection::file::BUSY_BACKOFF;
use crate::connection::lock_holder::LockHolder;
use crate::connection::opened_file::with_suffix;
use crate::connection::thread::{monotonic_now, pause_before_retry};

/// The pauses between attempts of the queued process to begin, and between checks of the process that yields to it.
const QUEUED_BACKOFF: Backoff = Backoff::constant(Duration::from_micros(250));

/// The number of checks after which a process stops yielding to a queued process that has not begun.
const YIELD_CHECKS_MAX: usize = 25;

/// The number of futile waits in a row after which the queued process is considered frozen.
const FUTILE_WAITS_MAX: u32 = 3;

/// The number of transactions that do not yield after the queued process was considered frozen.
const TRANSACTIONS_WITHOUT_YIELD: u32 = 200;

/// The number of transactions for which the file counts as contended after another process was queued.
const CONTENDED_TRANSACTIONS: u32 = 100;

/// How long a world waits for the write lock before it logs that, and how long before it logs it again.
const WAIT_LOGGED_AFTER: Duration = Duration::from_secs(2);
const WAIT_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The access of one world to the write lock of its file.
#[derive(Debug)]
pub(crate) struct FairLock {
    path: PathBuf,
    /// The current wait for the lock, across transactions that did not begin.
    wait: Option<LockWait>,
    /// `None` if the file cannot be created; then the order is not fair.
    queue_file: Option<File>,
    /// Waits in a row in which the queued process did not begin.
    futile_waits: u32,
    /// Transactions left that do not yield.
    transactions_without_yield: u32,
    /// Transactions left for which the file counts as contended.
    contended_transactions: u32,
}

/// A wait for the write lock.
#[derive(Clone, Copy, Debug)]
struct LockWait {
    since: Instant,
    logged_at: Option<Instant>,
}

impl LockWait {
    /// Whether the wait is to be logged now.
    fn is_log_due(&self, now: Instant) -> bool {
        match self.logged_at {
            None => now >= self.since + WAIT_LOGGED_AFTER,
            Some(logged_at) => now >= logged_at + WAIT_LOG_INTERVAL,
        }
    }
}

impl FairLock {
    /// The lock for the database at `path`.
    pub(crate) fn for_database(path: &Path) -> Self {
        let queue_file = with_suffix(path, "-line");
        let queue_file = OpenOptions::new().create(true).truncate(false).write(true).open(queue_file).ok();
        Self {
            path: path.into(),
            wait: None,
            queue_file,
            futile_waits: 0,
            transactions_without_yield: 0,
            contended_transactions: 0,
        }
    }

    /// Whether other processes were queued recently. Transactions should then be short.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended_transactions > 0
    }

    /// Begins a transaction when it is this world's turn. Returns the error of SQLite if other processes hold the write
    /// lock for longer than `wait_max`.
    pub(crate) fn begin(
        &mut self,
        wait_max: Duration,
        begin: impl Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.contended_transactions = self.contended_transactions.saturating_sub(1);
        self.yield_to_queued_process();
        let begun = match begin() {
            Err(error) if is_busy(&error) => self.wait_and_begin(wait_max, begin),
            other => other,
        };
        if begun.is_ok()
            && let Some(wait) = self.wait.take()
            && wait.logged_at.is_some()
        {
            tracing::info!(
                file = %self.path.display(),
                "the write lock of the file is free again, after {}",
                waited_text(wait.since)
            );
        }
        begun
    }

    /// Queues for the write lock, and begins when it is free.
    fn wait_and_begin(
        &mut self,
        wait_max: Duration,
        begin: impl Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.contended_transactions = CONTENDED_TRANSACTIONS;
        let began_waiting = monotonic_now();
        self.wait.get_or_insert(LockWait { since: began_waiting, logged_at: None });
        let mut is_queued = false;
        let (mut backoff, mut queued_backoff) = (BUSY_BACKOFF, QUEUED_BACKOFF);
        let begun = loop {
            is_queued |= self.queue_file.as_ref().is_some_and(|file| file.try_lock().is_ok());
            pause_before_retry(if is_queued { &mut queued_backoff } else { &mut backoff });
            match begin() {
                // A queued process retries more often, so count time instead of attempts: every process waits equally
                // long.
                Err(error) if is_busy(&error) && began_waiting.elapsed() < wait_max => self.log_wait(),
                other => break other,
            }
        };
        if let Some(file) = self.queue_file.as_ref().filter(|_| is_queued) {
            // If this fails, the lock is freed when the file is closed.
            let _ = file.unlock();
        }
        begun
    }

    /// Logs that the world waits for the lock, once per interval.
    fn log_wait(&mut self) {
        let Some(wait) = &mut self.wait else { return };
        let now = monotonic_now();
        if wait.is_log_due(now) {
            wait.logged_at = Some(now);
            tracing::warn!(
                file = %self.path.display(),
                "{} has held the write lock of the file for {}; starts, sends and commits wait until its transaction \
                 ends",
                LockHolder::of(&self.path),
                waited_text(wait.since)
            );
        }
    }

    /// The error of a transaction that did not begin.
    pub(crate) fn not_begun_error(&self, error: &Error) -> WorldError {
        let Some(wait) = self.wait.filter(|_| is_busy(error)) else { return from_sqlite(error, &self.path) };
        WorldError::unavailable(format!(
            "{} has held the write lock of `{}` for {}; end its transaction, or that process, or raise `timeout` in the \
             URL",
            LockHolder::of(&self.path),
            self.path.display(),
            waited_text(wait.since)
        ))
    }

    /// Waits until no other process is queued, for a limited time.
    fn yield_to_queued_process(&mut self) {
        let Some(file) = &self.queue_file else { return };
        if self.transactions_without_yield > 0 {
            self.transactions_without_yield -= 1;
            return;
        }
        let mut backoff = QUEUED_BACKOFF;
        for _ in 0..YIELD_CHECKS_MAX {
            if file.try_lock_shared().is_ok() {
                let _ = file.unlock();
                self.futile_waits = 0;
                return;
            }
            self.contended_transactions = CONTENDED_TRANSACTIONS;
            pause_before_retry(&mut backoff);
        }
        self.futile_waits += 1;
        if self.futile_waits >= FUTILE_WAITS_MAX {
            (self.futile_waits, self.transactions_without_yield) = (0, TRANSACTIONS_WITHOUT_YIELD);
        }
    }
}

/// The time since a moment, in whole units.
fn waited_text(since: Instant) -> String {
    let waited = since.elapsed();
    let whole =
        if waited.as_secs() > 0 { waited.as_secs() * 1_000 } else { u64::from(waited.subsec_millis()) };
    duration_text(Duration::from_millis(whole))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use rusqlite::ffi;

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn busy() -> Error {
        Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None)
    }

    #[test]
    fn a_wait_is_logged_after_two_seconds_and_then_every_ten() {
        let since = monotonic_now();
        let mut wait = LockWait { since, logged_at: None };
        let mut logged = Vec::new();
        for second in 0..40 {
            if wait.is_log_due(since + seconds(second)) {
                wait.logged_at = Some(since + seconds(second));
                logged.push(second);
            }
        }
        assert_eq!(logged, [2, 12, 22, 32]);
    }

    /// A writer of log lines that the test reads.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_long_wait_and_its_end_are_logged_with_the_file_and_the_time() {
        let lines = Lines::default();
        let for_subscriber = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || for_subscriber.clone()).finish();
        let folder = tempfile::tempdir().unwrap();
        let mut lock = FairLock::for_database(&folder.path().join("shop.db"));
        let since = monotonic_now().checked_sub(seconds(14)).unwrap();
        lock.wait = Some(LockWait { since, logged_at: None });
        tracing::subscriber::with_default(subscriber, || {
            let tries = Cell::new(0);
            let begin = || {
                tries.set(tries.get() + 1);
                if tries.get() < 5 { Err(busy()) } else { Ok(()) }
            };
            lock.begin(seconds(60), begin).unwrap();
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let [held, free] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(held.contains("WARN") && held.contains("shop.db"), "{held}");
        assert!(held.contains("another process has held the write lock of the file for 14s"), "{held}");
        assert!(free.contains("INFO") && free.contains("is free again, after 14s"), "{free}");
    }

    #[test]
    fn a_lock_that_stays_held_is_an_error_with_the_file_and_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut lock = FairLock::for_database(&folder.path().join("shop.db"));
        let since = monotonic_now().checked_sub(seconds(14)).unwrap();
        lock.wait = Some(LockWait { since, logged_at: None });
        let error = lock.begin(Duration::ZERO, || Err(busy())).unwrap_err();
        let WorldError::Unavailable(text) = lock.not_begun_error(&error) else { panic!("{error}") };
        assert!(text.starts_with("another process has held the write lock of `"), "{text}");
        assert!(text.contains("shop.db` for 14s; end its transaction"), "{text}");
    }
}
