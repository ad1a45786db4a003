//! One exchange between client and server.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Toward;

/// An exchange that is watched, and perhaps cut.
#[derive(Clone, Debug)]
pub struct Exchange {
    shared: Arc<SharedExchange>,
}

#[derive(Debug)]
struct SharedExchange {
    pattern: Vec<u8>,
    cut: Option<(Toward, u64)>,
    state: Mutex<ExchangeState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ExchangeState {
    to_server: u64,
    to_client: u64,
    is_cut: bool,
    is_over: bool,
}

impl Exchange {
    pub(super) fn new(pattern: &[u8], cut: Option<(Toward, u64)>) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(SharedExchange { pattern: pattern.to_vec(), cut, state, changed }) }
    }

    /// The number of bytes in one direction since the exchange began, including later bytes of its connection.
    pub fn bytes(&self, toward: Toward) -> u64 {
        let state = self.state();
        match toward {
            Toward::Server => state.to_server,
            Toward::Client => state.to_client,
        }
    }

    /// Whether the connection was cut at the requested byte.
    pub fn is_cut(&self) -> bool {
        self.state().is_cut
    }

    /// Waits until the connection was cut and the server has closed it too: the server has then executed everything it
    /// had received. Returns whether that happened in time.
    pub fn is_over_within(&self, timeout: Duration) -> bool {
        let waited = self.shared.changed.wait_timeout_while(self.state(), timeout, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Whether this data begins the exchange.
    pub(super) fn begins_with(&self, data: &[u8]) -> bool {
        let pattern = &self.shared.pattern;
        pattern.is_empty() || data.windows(pattern.len()).any(|window| window == pattern)
    }

    /// How many of these bytes may pass, and whether the connection is cut after them.
    pub(super) fn allow(&self, toward: Toward, bytes: usize) -> (usize, bool) {
        let mut state = self.state();
        // The call that reached the limit cuts the connection, after the bytes before it were sent.
        if state.is_cut {
            return (0, false);
        }
        let passed = match toward {
            Toward::Server => &mut state.to_server,
            Toward::Client => &mut state.to_client,
        };
        let allowed = match self.shared.cut {
            Some((way, limit)) if way == toward => limit.saturating_sub(*passed).min(bytes as u64),
            _ => bytes as u64,
        };
        *passed += allowed;
        // At the limit, not after it: there may be no further byte.
        let is_cut = self.shared.cut.is_some_and(|(way, limit)| way == toward && *passed >= limit);
        state.is_cut = is_cut;
        (allowed as usize, is_cut)
    }

    /// The server has closed the connection.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.is_over = state.is_cut;
        self.shared.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, ExchangeState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
