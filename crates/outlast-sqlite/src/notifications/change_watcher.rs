//! The change watcher: a thread that notices changes by other processes.
//!
//! Other processes send hints to its [hint socket](crate::notifications::hint_socket). Because a hint may be lost, the
//! thread also polls SQLite's `data_version`, a number in shared memory that changes with every commit by another
//! connection. With a socket it polls rarely, without one every [`SLOW_POLL`], and only while a caller waits for
//! changes.
//!
//! The writer notifies callers of this process directly, without the watcher. With every poll the thread also checks
//! that the file is still at its path, for callers that only wait.

use std::ops::BitOrAssign;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::SLOW_POLL;
use outlast_core::{ChangeSignal, Clock, RecentlyStarted, RunWatchers, Waiters, WorldError};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use crate::connection::file::{ConnectionSettings, open_reader};
use crate::connection::opened_file::OpenedFile;
use crate::connection::thread::OwnedThread;
use crate::notifications::hint_socket::{HintSender, HintSocket, SocketFolders};
use crate::options::HintMode;
use crate::read::readers::in_snapshot;
use crate::read::run_ends::find_ends;

/// The interval between polls when there is a hint socket: a hint may be lost.
const FALLBACK_POLL: Duration = Duration::from_secs(2);

/// If no caller waits for the end of a run, only one of this many timeouts polls: a poll that finds a change costs a
/// claim, and the beats of other processes are changes too.
const POLLS_PER_CLAIM: u32 = 10;

/// The shortest time between two notifications. Hints that arrive in between are combined.
const NOTIFICATION_PAUSE: Duration = Duration::from_millis(1);

/// The number of received batches of hints after which the thread polls although there was no timeout.
const HINTS_BEFORE_POLL: u32 = 1_000;

/// What a commit may have changed for other processes, as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changes(u8);

impl Changes {
    pub(crate) const NONE: Self = Self(0);
    /// A run may have become ready, or a session was taken over.
    pub(crate) const WORK: Self = Self(1);
    /// Runs have ended.
    pub(crate) const ENDS: Self = Self(2);
    /// Streams or published states have changed.
    pub(crate) const STREAMS: Self = Self(4);
    pub(crate) const ALL: Self = Self(7);

    /// The set with these bits; unknown bits are ignored.
    pub(crate) fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOrAssign for Changes {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The handle of the watcher thread.
#[derive(Debug)]
pub(crate) struct ChangeWatcher {
    shared: Arc<WatcherShared>,
    hint_sender: Option<Arc<HintSender>>,
    /// How changes are noticed, for a person.
    description: String,
    _thread: Option<OwnedThread>,
}

/// What the handle and the thread share.
#[derive(Debug, Default)]
struct WatcherShared {
    state: Mutex<WatcherState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WatcherState {
    /// The number of callers that wait for changes.
    listeners: usize,
    /// Whether the thread waits for the first listener.
    is_idle: bool,
    is_closed: bool,
}

/// Whom the watcher and the writer notify of changes.
#[derive(Clone, Debug)]
pub(crate) struct ChangeSubscribers {
    pub(crate) change_signal: Arc<ChangeSignal>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) recently_started: Arc<RecentlyStarted>,
    pub(crate) watchers: Arc<RunWatchers>,
}

impl ChangeSubscribers {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            change_signal: Arc::new(ChangeSignal::new(clock.clone())),
            waiters: Arc::default(),
            recently_started: Arc::default(),
            watchers: Arc::new(RunWatchers::new(clock.clone())),
        }
    }
}

impl ChangeWatcher {
    /// A watcher without a thread, for a virtual clock: real time must not affect it.
    pub(crate) fn disabled() -> Self {
        let description = "not at all, since the clock is virtual".into();
        Self { shared: Arc::default(), hint_sender: None, description, _thread: None }
    }

    /// Starts the thread.
    pub(crate) fn start(
        settings: &ConnectionSettings,
        mode: HintMode,
        opened: Arc<OpenedFile>,
        subscribers: ChangeSubscribers,
    ) -> Result<Self, WorldError> {
        let shared = Arc::new(WatcherShared::default());
        subscribers.recently_started.set_listening(true);
        let file = WatchedFile { opened, connection: open_reader(settings)?, subscribers };
        let (socket, description) = open_socket(&settings.path, mode);
        let hint_sender = match &socket {
            Some(socket) => Some(socket.sender()),
            None => HintSender::without_socket(&settings.path),
        };
        let for_thread = shared.clone();
        let thread = OwnedThread::spawn("outlast-watcher", move || match socket {
            Some(socket) => for_thread.run_with_socket(&file, socket),
            None => for_thread.run_with_poll(&file, mode.poll_interval(SLOW_POLL)),
        })?;
        Ok(Self { shared, hint_sender, description, _thread: Some(thread) })
    }

    /// Registers a caller that waits for changes, until the returned guard is dropped.
    pub(crate) fn listen(&self) -> ListenerGuard<'_> {
        self.shared.add_listener();
        ListenerGuard(&self.shared)
    }

    /// As [`listen`](Self::listen), with a guard that does not borrow the watcher.
    pub(crate) fn listen_owned(&self) -> OwnedListenerGuard {
        self.shared.add_listener();
        OwnedListenerGuard(self.shared.clone())
    }

    /// Sends hints to other processes; `None` if this system has no sockets.
    pub(crate) fn hint_sender(&self) -> Option<Arc<HintSender>> {
        self.hint_sender.clone()
    }

    /// How changes by other processes are noticed, for a person.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }
}

impl Drop for ChangeWatcher {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.changed.notify_one();
        if let Some(hint_sender) = &self.hint_sender {
            hint_sender.wake_owner();
        }
    }
}

/// Opens the hint socket if the mode wants one and it can be created, and describes how changes are noticed.
fn open_socket(path: &Path, mode: HintMode) -> (Option<HintSocket>, String) {
    if mode == HintMode::PollOnly {
        return (None, format!("within {SLOW_POLL:?}, by polling, as the URL requests"));
    }
    let opened = SocketFolders::for_database(path)
        .and_then(|folders| HintSocket::open(folders, mode.poll_interval(FALLBACK_POLL)));
    match opened {
        Ok(socket) => {
            let description = format!("immediately, through the hint socket `{}`", socket.path().display());
            tracing::debug!(file = %path.display(), socket = %socket.path().display(), "opened the hint socket");
            (Some(socket), description)
        }
        Err(error) => {
            tracing::warn!(
                file = %path.display(), %error,
                "no hint socket can be created, so changes by other processes are noticed by polling; \
                 make the folder writable for this user, or use a shorter path"
            );
            (None, format!("within {SLOW_POLL:?}, by polling, since no hint socket can be created ({error})"))
        }
    }
}

/// Represents one caller that waits for changes.
#[derive(Debug)]
pub(crate) struct ListenerGuard<'a>(&'a WatcherShared);

impl Drop for ListenerGuard<'_> {
    fn drop(&mut self) {
        self.0.state.lock().listeners -= 1;
    }
}

/// Represents one caller that waits for changes.
#[derive(Debug)]
pub(crate) struct OwnedListenerGuard(Arc<WatcherShared>);

impl Drop for OwnedListenerGuard {
    fn drop(&mut self) {
        self.0.state.lock().listeners -= 1;
    }
}

/// The watcher's own connection to the file.
struct WatchedFile {
    opened: Arc<OpenedFile>,
    connection: Connection,
    subscribers: ChangeSubscribers,
}

impl WatcherShared {
    fn add_listener(&self) {
        let mut state = self.state.lock();
        state.listeners += 1;
        if state.is_idle {
            self.changed.notify_one();
        }
    }

    /// Receives hints, and polls at the timeouts of the socket, until the world is closed.
    fn run_with_socket(&self, file: &WatchedFile, mut socket: HintSocket) {
        let mut last_version = file.data_version();
        let (mut received_since_poll, mut polls) = (0, 0);
        loop {
            let received = match socket.receive() {
                Ok(received) => received,
                Err(error) => {
                    tracing::warn!(
                        file = %file.opened.path().display(), %error,
                        "the hint socket failed; changes by other processes are noticed by polling from now on"
                    );
                    return self.run_with_poll(file, Some(SLOW_POLL));
                }
            };
            if self.state.lock().is_closed {
                return;
            }
            socket.send_pending();
            let mut changes = received.changes;
            received_since_poll += 1;
            if received.is_timeout || received_since_poll == HINTS_BEFORE_POLL {
                received_since_poll = 0;
                polls += 1;
                socket.refresh();
                if file.is_lost() {
                    return;
                }
                let is_worth_it = polls % POLLS_PER_CLAIM == 0
                    || !file.subscribers.waiters.is_empty()
                    || !file.subscribers.watchers.is_empty();
                if is_worth_it && self.state.lock().listeners > 0 && file.has_changed(&mut last_version) {
                    changes = Changes::ALL;
                }
            }
            if !file.notify(changes) {
                last_version = None;
            }
            if !received.is_timeout {
                // Hints that arrive during this pause are received together.
                std::thread::park_timeout(NOTIFICATION_PAUSE);
            }
        }
    }

    /// Polls until the world is closed; `None` means never.
    fn run_with_poll(&self, file: &WatchedFile, interval: Option<Duration>) {
        let mut last_version = file.data_version();
        while self.wait_for_poll(interval) {
            if file.is_lost() {
                return;
            }
            if file.has_changed(&mut last_version) && !file.notify(Changes::ALL) {
                last_version = None;
            }
        }
    }

    /// Waits until the next poll is due; `false` if the world is closed.
    fn wait_for_poll(&self, interval: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        while (state.listeners == 0 || interval.is_none()) && !state.is_closed {
            state.is_idle = true;
            self.changed.wait(&mut state);
        }
        state.is_idle = false;
        if let Some(interval) = interval.filter(|_| !state.is_closed) {
            self.changed.wait_for(&mut state, interval);
        }
        !state.is_closed
    }
}

impl WatchedFile {
    /// A number that changes when another connection commits; `None` if it cannot be read now.
    fn data_version(&self) -> Option<i64> {
        self.connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok()
    }

    fn has_changed(&self, last_version: &mut Option<i64>) -> bool {
        let version = self.data_version();
        let has_changed = version.is_some() && version != *last_version;
        if has_changed {
            *last_version = version;
        }
        has_changed
    }

    /// Whether the file is not at its path any more. Workers are then woken, so that their next claim reports it.
    fn is_lost(&self) -> bool {
        let is_lost = self.opened.check().is_err();
        if is_lost {
            self.subscribers.change_signal.notify();
            self.subscribers.watchers.notify_all();
        }
        is_lost
    }

    /// Notifies workers and callers. Returns whether that was possible: if the ends of runs cannot be read, the next
    /// poll must try again, even if the file does not change until then.
    fn notify(&self, changes: Changes) -> bool {
        if changes.intersects(Changes::WORK) {
            self.subscribers.change_signal.notify();
        }
        if changes.intersects(Changes::STREAMS) || changes.intersects(Changes::ENDS) {
            self.subscribers.watchers.notify_all();
        }
        !changes.intersects(Changes::ENDS) || self.notify_ends()
    }

    /// Notifies the callers whose runs have ended. Returns false if the ends cannot be read.
    fn notify_ends(&self) -> bool {
        // Before the waiters are read: a run in the cache may be one of those that another process has ended.
        self.subscribers.recently_started.set_listening(true);
        let runs = self.subscribers.waiters.runs();
        if runs.is_empty() {
            return true;
        }
        let found = in_snapshot(&self.connection, |snapshot| Ok(find_ends(snapshot, &runs)?));
        match found.map_err(|refusal| refusal.into_world_error(self.opened.path())) {
            Ok(found) => {
                for (run, ended) in found {
                    if let Some(ended) = ended {
                        self.subscribers.waiters.tell(run, || Some(ended));
                    }
                }
                true
            }
            Err(_) => {
                self.subscribers.change_signal.notify();
                false
            }
        }
    }
}
