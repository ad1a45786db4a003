//! Waits for commits of callers' own transactions (`start_within`, `send_within`). The writer does not make these
//! commits, so it cannot notify anyone of them.

use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use outlast_core::{Backoff, ChangeSignal, MessageId, RunId};
use parking_lot::Mutex;
use rusqlite::Connection;

use crate::connection::file::{ConnectionSettings, open_reader};
use crate::connection::thread::pause_before_retry;
use crate::notifications::change_watcher::Changes;
use crate::notifications::hint_socket::HintSender;
use crate::schema::sql;

/// The number of polls for one commit, which take 20 to 30 seconds. The slow poll of the change watcher finds the
/// commit of a transaction that is open for longer.
const POLLS_MAX: u32 = 600;

/// The pauses between polls.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));

/// A row that becomes visible when the transaction of a caller commits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AwaitedWrite {
    /// A run.
    Run(RunId),
    /// A message to a run.
    Message(RunId, MessageId),
}

impl AwaitedWrite {
    /// Whether the transaction has committed.
    fn is_visible(self, connection: &Connection) -> Result<bool, rusqlite::Error> {
        match self {
            Self::Run(run) => connection.prepare_cached(sql::RUN_EXISTS)?.exists([run.to_string()]),
            Self::Message(run, message) => {
                connection.prepare_cached(sql::INBOX_POSITION)?.exists([run.to_string(), message.to_string()])
            }
        }
    }
}

/// Polls for awaited commits, and notifies workers of them. Its thread runs only while there is something to wait for.
#[derive(Clone, Debug)]
pub(crate) struct TxWatcher {
    settings: ConnectionSettings,
    change_signal: Arc<ChangeSignal>,
    hint_sender: Option<Arc<HintSender>>,
    state: Arc<Mutex<TxWatcherState>>,
}

#[derive(Debug, Default)]
struct TxWatcherState {
    /// The awaited writes, each with the number of polls for it so far.
    awaited: Vec<(AwaitedWrite, u32)>,
    is_running: bool,
    is_closed: bool,
}

impl TxWatcher {
    pub(crate) fn new(
        settings: ConnectionSettings,
        change_signal: Arc<ChangeSignal>,
        hint_sender: Option<Arc<HintSender>>,
    ) -> Self {
        Self { settings, change_signal, hint_sender, state: Arc::default() }
    }

    /// Polls for the write from now on. If no thread can be started, the slow poll of the change watcher finds it
    /// later.
    pub(crate) fn watch(&self, write: AwaitedWrite) {
        let mut state = self.state.lock();
        state.awaited.push((write, 0));
        if state.is_running || state.is_closed {
            return;
        }
        let watcher = self.clone();
        let thread = Builder::new().name("outlast-txwatch".into()).spawn(move || watcher.run());
        match thread {
            Ok(_) => state.is_running = true,
            Err(error) => {
                tracing::warn!(%error, "no thread can be started; the commit is noticed later, by the slow poll");
            }
        }
    }

    /// Makes the thread end.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    fn run(&self) {
        let Ok(connection) = open_reader(&self.settings) else {
            self.state.lock().is_running = false;
            return;
        };
        let mut backoff = BACKOFF;
        while self.poll_once(&connection) {
            pause_before_retry(&mut backoff);
        }
    }

    /// Notifies workers of the writes that are visible now, and returns whether others are still awaited. If a row
    /// cannot be read, the next poll tries again.
    fn poll_once(&self, connection: &Connection) -> bool {
        // The lock is not held during the reads: callers take it to add writes, and these come after the read ones.
        let awaited: Vec<AwaitedWrite> = self.state.lock().awaited.iter().map(|(write, _)| *write).collect();
        let visible: Vec<bool> =
            awaited.iter().map(|write| write.is_visible(connection).unwrap_or(false)).collect();
        if visible.contains(&true) {
            self.change_signal.notify();
            if let Some(hint_sender) = &self.hint_sender {
                hint_sender.send(Changes::WORK);
            }
        }
        let mut state = self.state.lock();
        let mut visible = visible.into_iter();
        state.awaited.retain_mut(|(_, polls)| match visible.next() {
            Some(true) => false,
            Some(false) => {
                *polls += 1;
                *polls < POLLS_MAX
            }
            None => true,
        });
        state.is_running = !state.awaited.is_empty() && !state.is_closed;
        state.is_running
    }
}
