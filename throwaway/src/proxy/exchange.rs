//! What is known of one exchange between client and server.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Toward;

/// One exchange that is watched, and perhaps cut.
#[derive(Clone, Debug)]
pub struct Exchange {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    mark: Vec<u8>,
    cut: Option<(Toward, u64)>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    to_server: u64,
    to_client: u64,
    is_cut: bool,
    is_over: bool,
}

impl Exchange {
    pub(super) fn new(mark: &[u8], cut: Option<(Toward, u64)>) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { mark: mark.to_vec(), cut, state, changed }) }
    }

    /// The bytes that went one way since the exchange began. What its connection does afterwards counts too.
    pub fn bytes(&self, toward: Toward) -> u64 {
        let state = self.state();
        match toward {
            Toward::Server => state.to_server,
            Toward::Client => state.to_client,
        }
    }

    /// Whether the connection was cut at the byte that was asked for.
    pub fn is_cut(&self) -> bool {
        self.state().is_cut
    }

    /// Waits until the connection was cut and the server has let go of it too: whatever it made of what
    /// it had heard, it has made by then. Answers whether that came to pass in time.
    pub fn is_over_within(&self, patience: Duration) -> bool {
        let waited = self.shared.changed.wait_timeout_while(self.state(), patience, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Whether this piece of data begins the exchange.
    pub(super) fn begins_with(&self, piece: &[u8]) -> bool {
        let mark = &self.shared.mark;
        mark.is_empty() || piece.windows(mark.len()).any(|window| window == mark)
    }

    /// How many of these bytes may go on, and whether the connection is cut after them.
    pub(super) fn allow(&self, toward: Toward, bytes: usize) -> (usize, bool) {
        let mut state = self.state();
        // Whoever came to the limit cuts the connection, once the bytes before it are gone.
        if state.is_cut {
            return (0, false);
        }
        let gone = match toward {
            Toward::Server => &mut state.to_server,
            Toward::Client => &mut state.to_client,
        };
        let allowed = match self.shared.cut {
            Some((way, limit)) if way == toward => limit.saturating_sub(*gone).min(bytes as u64),
            _ => bytes as u64,
        };
        *gone += allowed;
        // At the limit, not past it: no further byte may ever come.
        let is_cut = self.shared.cut.is_some_and(|(way, limit)| way == toward && *gone >= limit);
        state.is_cut = is_cut;
        (allowed as usize, is_cut)
    }

    /// The server has let go of the connection.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.is_over = state.is_cut;
        self.shared.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
