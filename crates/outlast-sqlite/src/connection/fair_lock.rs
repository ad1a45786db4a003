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
use std::path::Path;
use std::time::Duration;

use outlast_core::Backoff;
use rusqlite::Error;

use crate::connection::error::is_busy;
use crate::connection::file::{BUSY_BACKOFF, BUSY_TIME};
use crate::connection::thread::pause_before_retry;

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

/// The access of one world to the write lock of its file.
#[derive(Debug)]
pub(crate) struct FairLock {
    /// `None` if the file cannot be created; then the order is not fair.
    queue_file: Option<File>,
    /// Waits in a row in which the queued process did not begin.
    futile_waits: u32,
    /// Transactions left that do not yield.
    without_yield: u32,
    /// Transactions left for which the file counts as contended.
    contended: u32,
}

impl FairLock {
    /// The lock for the database at `path`.
    pub(crate) fn for_database(path: &Path) -> Self {
        let mut queue_file = path.as_os_str().to_owned();
        queue_file.push("-line");
        let queue_file = OpenOptions::new().create(true).truncate(false).write(true).open(queue_file).ok();
        Self { queue_file, futile_waits: 0, without_yield: 0, contended: 0 }
    }

    /// Whether other processes were queued recently. Transactions should then be short.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended > 0
    }

    /// Begins a transaction when it is this world's turn. Returns the error of SQLite if other processes write for
    /// about five seconds.
    pub(crate) fn begin(&mut self, begin: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
        self.contended = self.contended.saturating_sub(1);
        self.yield_to_queued_process();
        match begin() {
            Err(error) if is_busy(&error) => {}
            other => return other,
        }
        self.contended = CONTENDED_TRANSACTIONS;
        let mut is_queued = false;
        // A queued process retries more often, so count time instead of attempts: every process waits equally long.
        let (mut waited, mut backoff, mut queued_backoff) = (Duration::ZERO, BUSY_BACKOFF, QUEUED_BACKOFF);
        let begun = loop {
            is_queued |= self.queue_file.as_ref().is_some_and(|file| file.try_lock().is_ok());
            waited += pause_before_retry(if is_queued { &mut queued_backoff } else { &mut backoff });
            match begin() {
                Err(error) if is_busy(&error) && waited < BUSY_TIME => {}
                other => break other,
            }
        };
        if let Some(file) = self.queue_file.as_ref().filter(|_| is_queued) {
            // If this fails, the lock is freed when the file is closed.
            let _ = file.unlock();
        }
        begun
    }

    /// Waits until no other process is queued, for a limited time.
    fn yield_to_queued_process(&mut self) {
        let Some(file) = &self.queue_file else { return };
        if self.without_yield > 0 {
            self.without_yield -= 1;
            return;
        }
        let mut backoff = QUEUED_BACKOFF;
        for _ in 0..YIELD_CHECKS_MAX {
            if file.try_lock_shared().is_ok() {
                let _ = file.unlock();
                self.futile_waits = 0;
                return;
            }
            self.contended = CONTENDED_TRANSACTIONS;
            pause_before_retry(&mut backoff);
        }
        self.futile_waits += 1;
        if self.futile_waits >= FUTILE_WAITS_MAX {
            (self.futile_waits, self.without_yield) = (0, TRANSACTIONS_WITHOUT_YIELD);
        }
    }
}
