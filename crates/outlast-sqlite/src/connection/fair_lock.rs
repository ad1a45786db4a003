//! The turnstile: processes that write to one file take turns.
//!
//! SQLite's lock goes to whoever asks at the right moment. A busy writer asks again as soon as it is done,
//! so that others, who look every now and then, may miss that moment for long. Here, who finds the file
//! busy stands in line by locking a small file beside it, and who was just writing lets the one in line go
//! first. The kernel frees the place of one that dies.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Duration;

use rusqlite::Error;

use crate::connection::error::is_busy;
use crate::connection::file::{BUSY_PAUSE, BUSY_TRIES_MAX};

/// How often the one in line tries to begin, and the one that lets it go first looks.
const PAUSE: Duration = Duration::from_micros(200);

/// Looks before a writer goes on though the one in line has not begun.
const LOOKS_MAX: usize = 25;

/// After so many times in vain the one in line is frozen, and not waited for ...
const IN_VAIN_MAX: u32 = 3;

/// ... in so many transactions.
const IGNORED: u32 = 200;

/// Transactions for which others are expected after one was in line.
const CROWDED: u32 = 100;

/// One world's way to the file.
#[derive(Debug)]
pub(crate) struct Turnstile {
    /// None where no such file can be made: then luck decides.
    line: Option<File>,
    in_vain: u32,
    ignored: u32,
    /// In so many transactions more others are expected.
    crowded: u32,
}

impl Turnstile {
    /// The turnstile of the database at `path`.
    pub(crate) fn beside(path: &Path) -> Self {
        let mut line = path.as_os_str().to_owned();
        line.push("-line");
        let line = OpenOptions::new().create(true).truncate(false).write(true).open(line).ok();
        Self { line, in_vain: 0, ignored: 0, crowded: 0 }
    }

    /// Whether others have been in line lately: then transactions should be short.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded > 0
    }

    /// Begins a transaction once it is this world's turn. Gives up when others write for too long.
    pub(crate) fn begin(&mut self, begin: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
        self.crowded = self.crowded.saturating_sub(1);
        self.let_others_go_first();
        match begin() {
            Err(error) if is_busy(&error) => {}
            other => return other,
        }
        self.crowded = CROWDED;
        let mut is_in_line = false;
        // In line it tries more often, so that all wait for about the same time.
        let mut waited = Duration::ZERO;
        let begun = loop {
            is_in_line |= self.line.as_ref().is_some_and(|line| line.try_lock().is_ok());
            let pause = if is_in_line { PAUSE } else { BUSY_PAUSE };
            std::thread::park_timeout(pause);
            waited += pause;
            match begin() {
                Err(error) if is_busy(&error) && waited < BUSY_PAUSE * BUSY_TRIES_MAX => {}
                other => break other,
            }
        };
        if let Some(line) = self.line.as_ref().filter(|_| is_in_line) {
            // It is freed when the file is closed, at the latest.
            let _ = line.unlock();
        }
        begun
    }

    fn let_others_go_first(&mut self) {
        let Some(line) = &self.line else { return };
        if self.ignored > 0 {
            self.ignored -= 1;
            return;
        }
        for _ in 0..LOOKS_MAX {
            if line.try_lock_shared().is_ok() {
                let _ = line.unlock();
                self.in_vain = 0;
                return;
            }
            self.crowded = CROWDED;
            std::thread::park_timeout(PAUSE);
        }
        self.in_vain += 1;
        if self.in_vain >= IN_VAIN_MAX {
            (self.in_vain, self.ignored) = (0, IGNORED);
        }
    }
}
