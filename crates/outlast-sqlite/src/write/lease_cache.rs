//! What the writer knows of held runs without asking the file.
//!
//! A turn that goes on holding its run is one insert, because what it must be checked against is here.
//! The knowledge is exact as long as the session's row is there, which every transaction looks at: a
//! run is taken from a session only by deleting that row. Should another process act for a session of
//! ours, it says so in the row, and we forget. After a rollback everything is forgotten.

use std::collections::HashMap;

use outlast_core::{Position, RunId, RunMap, SessionId, TurnId};

/// A held run as of its last turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
    pub(crate) next_seq: u64,
    pub(crate) consumed: u64,
}

impl Holding {
    /// Where the run is. How many messages it was sent is not known here, but at least what it consumed.
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

/// The held runs of the sessions that were joined here.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    runs: RunMap<Holding>,
    strangers: HashMap<SessionId, i64>,
}

impl Holdings {
    pub(crate) fn get(&self, run: RunId, session: SessionId) -> Option<Holding> {
        self.runs.get(&run).filter(|holding| holding.session == session).copied()
    }

    pub(crate) fn put(&mut self, run: RunId, holding: Holding) {
        self.runs.insert(run, holding);
    }

    pub(crate) fn remove(&mut self, run: RunId) {
        self.runs.remove(&run);
    }

    /// Forgets the session's runs when a stranger has changed some since we last looked.
    pub(crate) fn compare_strangers(&mut self, session: SessionId, strangers: i64) {
        let before = self.strangers.insert(session, strangers);
        if before.is_some_and(|before| before != strangers) {
            self.forget(session);
        }
    }

    /// Forgets the session and its runs.
    pub(crate) fn end(&mut self, session: SessionId) {
        self.strangers.remove(&session);
        self.forget(session);
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    fn forget(&mut self, session: SessionId) {
        self.runs.retain(|_, holding| holding.session != session);
    }
}
