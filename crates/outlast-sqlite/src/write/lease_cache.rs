//! The writer's cache of the runs that sessions of this process hold.
//!
//! A turn after which its session still holds the run needs only one insert, because the writer checks the turn against
//! this cache and reads no row.
//!
//! **Why the cache is exact.** A run is taken from a session only by deleting the row of the session, and every
//! transaction reads that row. If another process changes runs of the session, it increases the number of *foreign
//! writes* in that row, and this process then discards the runs of the session. A rollback discards all runs.

use std::collections::HashMap;

use outlast_core::{Position, RunId, RunMap, SessionId, TurnId};

/// A held run after its last turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedLease {
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
    pub(crate) next_seq: u64,
    pub(crate) consumed: u64,
}

impl CachedLease {
    /// The position of the run. The number of messages sent to it is not cached; at least the consumed ones were sent.
    pub(crate) fn position(&self) -> Position {
        Position {
            owner: Some(self.session),
            turn: self.turn,
            next_event: self.next_seq,
            consumed: self.consumed,
            sent: self.consumed,
        }
    }
}

/// The held runs of the sessions that this process joined.
#[derive(Debug, Default)]
pub(crate) struct LeaseCache {
    runs: RunMap<CachedLease>,
    /// The number of foreign writes that was last read from the row of each session.
    foreign_writes: HashMap<SessionId, i64>,
}

impl LeaseCache {
    pub(crate) fn get(&self, run: RunId, session: SessionId) -> Option<CachedLease> {
        self.runs.get(&run).filter(|lease| lease.session == session).copied()
    }

    pub(crate) fn put(&mut self, run: RunId, lease: CachedLease) {
        self.runs.insert(run, lease);
    }

    pub(crate) fn remove(&mut self, run: RunId) {
        self.runs.remove(&run);
    }

    /// Discards the runs of the session if its number of foreign writes has changed.
    pub(crate) fn check_foreign_writes(&mut self, session: SessionId, foreign_writes: i64) {
        let before = self.foreign_writes.insert(session, foreign_writes);
        if before.is_some_and(|before| before != foreign_writes) {
            self.discard_runs(session);
        }
    }

    /// Discards a session that has ended, and its runs.
    pub(crate) fn remove_session(&mut self, session: SessionId) {
        self.foreign_writes.remove(&session);
        self.discard_runs(session);
    }

    /// Discards all runs.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    fn discard_runs(&mut self, session: SessionId) {
        self.runs.retain(|_, lease| lease.session != session);
    }
}
