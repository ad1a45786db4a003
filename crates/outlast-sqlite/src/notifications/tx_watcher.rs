//! Commits that callers are about to make by themselves: nobody else would ring for them.

use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use outlast_core::{ChangeSignal, MessageId, RunId};
use parking_lot::Mutex;
use rusqlite::Connection;

use crate::connection::file::{Opening, open_reader};
use crate::notifications::change_watcher::Changes;
use crate::notifications::hint_socket::Ringer;
use crate::schema::sql;

/// How often a commit is looked for, which takes some 30 seconds. A transaction that is open for longer is
/// found by the slow poll.
const LOOKS_MAX: u32 = 600;

/// The pauses between looks, from the first to the last.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// What a transaction of the caller's will have written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// A run.
    Run(RunId),
    /// A message to a run.
    Message(RunId, MessageId),
}

impl Expected {
    /// Whether it is there.
    fn is_there(self, connection: &Connection) -> Result<bool, rusqlite::Error> {
        match self {
            Self::Run(run) => connection.prepare_cached(sql::RUN_EXISTS)?.exists([run.to_string()]),
            Self::Message(run, message) => {
                connection.prepare_cached(sql::INBOX_POSITION)?.exists([run.to_string(), message.to_string()])
            }
        }
    }
}

/// Looks for expected commits, and rings when one is there. A thread does so as long as there is one to
/// look for.
#[derive(Clone, Debug)]
pub(crate) struct Expectations {
    opening: Opening,
    change_signal: Arc<ChangeSignal>,
    ringer: Option<Arc<Ringer>>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// With how often each was looked for.
    expected: Vec<(Expected, u32)>,
    is_looking: bool,
    is_closed: bool,
}

impl Expectations {
    pub(crate) fn new(
        opening: Opening,
        change_signal: Arc<ChangeSignal>,
        ringer: Option<Arc<Ringer>>,
    ) -> Self {
        Self { opening, change_signal, ringer, state: Arc::default() }
    }

    /// Looks for it from now on. Without a thread to look, the slow poll finds it later.
    pub(crate) fn expect(&self, expected: Expected) {
        let mut state = self.state.lock();
        state.expected.push((expected, 0));
        if state.is_looking || state.is_closed {
            return;
        }
        let looks = self.clone();
        let thread = Builder::new().name("outlast-expected".into()).spawn(move || looks.look());
        match thread {
            Ok(_) => state.is_looking = true,
            Err(error) => tracing::warn!(%error, "no thread can be started; the slow poll finds the commit"),
        }
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    fn look(&self) {
        let Ok(connection) = open_reader(&self.opening) else {
            self.state.lock().is_looking = false;
            return;
        };
        let mut pause = PAUSE_MIN;
        while self.look_once(&connection) {
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Rings for what is there, and answers whether there is more to look for. What cannot be read now is
    /// looked for again.
    fn look_once(&self, connection: &Connection) -> bool {
        let mut state = self.state.lock();
        let before = state.expected.len();
        state.expected.retain(|(expected, _)| !expected.is_there(connection).unwrap_or(false));
        if state.expected.len() < before {
            self.change_signal.notify();
            if let Some(ringer) = &self.ringer {
                ringer.ring(Changes::WORK);
            }
        }
        state.expected.iter_mut().for_each(|(_, looks)| *looks += 1);
        state.expected.retain(|(_, looks)| *looks < LOOKS_MAX);
        state.is_looking = !state.expected.is_empty() && !state.is_closed;
        state.is_looking
    }
}
