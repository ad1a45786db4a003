//! Nodes: the processes of a simulation. They are frozen, cut off and killed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::SessionId;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::signal::Signal;

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Alive,
    /// Stopped, as by SIGSTOP: it goes on later and does not know how much later.
    Frozen,
    /// Killed. Its calls are never answered, and what it was about to do does not happen.
    Dead,
}

/// A process of the simulation.
pub(super) struct Node {
    pub(super) name: String,
    life: Signal<Life>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sessions: Vec<SessionId>,
    /// Until when no call gets through.
    cut_off_until: Option<Instant>,
    /// Whether something happened for which it may lose a session.
    is_excused: bool,
}

impl Node {
    pub(super) fn new(name: String) -> Arc<Self> {
        Arc::new(Self { name, life: Signal::new(Life::Alive), state: Mutex::default() })
    }

    /// Goes on when the process runs; never, when it was killed.
    pub(super) async fn pass(&self) {
        if self.life.get() != Life::Alive {
            self.life.is(|life| life == Life::Alive).await;
        }
    }

    /// Completes when the process is killed.
    pub(super) async fn died(&self) {
        self.life.is(|life| life == Life::Dead).await;
    }

    pub(super) fn is_dead(&self) -> bool {
        self.life.get() == Life::Dead
    }

    pub(super) fn kill(&self) {
        self.excuse();
        self.life.set(Life::Dead);
    }

    pub(super) fn freeze(&self) {
        self.excuse();
        if self.life.get() == Life::Alive {
            self.life.set(Life::Frozen);
        }
    }

    pub(super) fn thaw(&self) {
        if self.life.get() == Life::Frozen {
            self.life.set(Life::Alive);
        }
    }

    /// Lets no call through for a time.
    pub(super) fn cut_off(&self, time: Duration) {
        self.excuse();
        self.state.lock().cut_off_until = Some(Instant::now() + time);
    }

    /// Lets calls through again.
    pub(super) fn reconnect(&self) {
        self.state.lock().cut_off_until = None;
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.state.lock().cut_off_until.is_some_and(|until| until > Instant::now())
    }

    /// From now on nobody wonders when it loses a session.
    pub(super) fn excuse(&self) {
        self.state.lock().is_excused = true;
    }

    pub(super) fn is_excused(&self) -> bool {
        self.state.lock().is_excused
    }

    pub(super) fn joined(&self, session: SessionId) {
        self.state.lock().sessions.push(session);
    }

    /// The sessions that it ever had.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.state.lock().sessions.clone()
    }

    pub(super) fn has_had(&self, session: SessionId) -> bool {
        self.state.lock().sessions.contains(&session)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({}, {:?})", self.name, self.life.get())
    }
}
