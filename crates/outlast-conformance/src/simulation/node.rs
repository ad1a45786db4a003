//! Nodes: the processes of a simulation. They are frozen, disconnected and killed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::SessionId;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::signal::Signal;

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessState {
    Alive,
    /// Stopped, as by SIGSTOP: it continues later.
    Frozen,
    /// Killed. Its calls are never answered, and it makes no more calls.
    Dead,
}

/// A process of the simulation.
pub(super) struct Node {
    pub(super) name: String,
    life: Signal<ProcessState>,
    state: Mutex<NodeState>,
}

#[derive(Default)]
struct NodeState {
    sessions: Vec<SessionId>,
    /// The time until which every call fails.
    disconnected_until: Option<Instant>,
    /// Whether a fault has happened that may cost it a session.
    may_lose_session: bool,
}

impl Node {
    pub(super) fn new(name: String) -> Arc<Self> {
        Arc::new(Self { name, life: Signal::new(ProcessState::Alive), state: Mutex::default() })
    }

    /// Waits until the process runs; for ever, if it was killed.
    pub(super) async fn wait_until_running(&self) {
        if self.life.get() != ProcessState::Alive {
            self.life.is(|life| life == ProcessState::Alive).await;
        }
    }

    /// Completes when the process is killed.
    pub(super) async fn killed(&self) {
        self.life.is(|life| life == ProcessState::Dead).await;
    }

    pub(super) fn is_dead(&self) -> bool {
        self.life.get() == ProcessState::Dead
    }

    pub(super) fn kill(&self) {
        self.allow_session_loss();
        self.life.set(ProcessState::Dead);
    }

    pub(super) fn freeze(&self) {
        self.allow_session_loss();
        if self.life.get() == ProcessState::Alive {
            self.life.set(ProcessState::Frozen);
        }
    }

    pub(super) fn thaw(&self) {
        if self.life.get() == ProcessState::Frozen {
            self.life.set(ProcessState::Alive);
        }
    }

    /// Makes every call fail for a time.
    pub(super) fn disconnect(&self, time: Duration) {
        self.allow_session_loss();
        self.state.lock().disconnected_until = Some(Instant::now() + time);
    }

    /// Ends a disconnect.
    pub(super) fn reconnect(&self) {
        self.state.lock().disconnected_until = None;
    }

    pub(super) fn is_disconnected(&self) -> bool {
        self.state.lock().disconnected_until.is_some_and(|until| until > Instant::now())
    }

    /// From now on, a lost session of this node is no violation.
    pub(super) fn allow_session_loss(&self) {
        self.state.lock().may_lose_session = true;
    }

    pub(super) fn may_lose_session(&self) -> bool {
        self.state.lock().may_lose_session
    }

    pub(super) fn joined(&self, session: SessionId) {
        self.state.lock().sessions.push(session);
    }

    /// All sessions that it has opened.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.state.lock().sessions.clone()
    }

    pub(super) fn had_session(&self, session: SessionId) -> bool {
        self.state.lock().sessions.contains(&session)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({}, {:?})", self.name, self.life.get())
    }
}
