//! The state behind the lock: runs, keys, sessions, and the lines of those that are ready.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use outlast_core::refusal::no_run;
use outlast_core::{Counts, Ended, RunId, RunMap, SessionId, Status, Timestamp, WorldError};

use crate::deadlines::Deadlines;
use crate::outbox::Outboxes;
use crate::ready_queues::Ready;
use crate::run::Run;
use crate::session::Session;

#[derive(Debug, Default)]
pub(crate) struct State {
    // Looked up on every turn.
    pub(crate) runs: RunMap<Box<Run>>,
    // The same runs in order, for lists.
    pub(crate) order: BTreeSet<RunId>,
    pub(crate) keys: HashMap<String, RunId>,
    pub(crate) counts: Counts,
    pub(crate) ready: Ready,
    // The deadlines of runs that nobody holds.
    pub(crate) deadlines: Deadlines,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    // The lowest rules that every joined session knows; `None` when none is joined.
    pub(crate) rules: Option<u32>,
    pub(crate) outboxes: Outboxes,
    // By how much the limit of payloads that nobody has taken is lower than usual.
    pub(crate) hook_room_withheld: u64,
}

/// What a change leaves to be told once the lock is free.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Something may have become ready.
    pub(crate) ring: bool,
    /// These runs have ended.
    pub(crate) ended: Vec<Ended>,
}

impl State {
    pub(crate) fn get(&self, run: RunId) -> Result<&Run, WorldError> {
        self.runs.get(&run).map(Box::as_ref).ok_or_else(|| no_run(run))
    }

    /// Gives the run a status, and keeps the counts true.
    pub(crate) fn set_status(&mut self, id: RunId, status: Status) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let before = std::mem::replace(&mut run.status, status);
        if before == status {
            return;
        }
        if let Some(count) = self.counts.get_mut(&before) {
            *count -= 1;
        }
        *self.counts.entry(status).or_default() += 1;
    }

    /// Puts a run that nobody holds into the line where it belongs, ready at `at`; `None` takes it out.
    pub(crate) fn line_up(
        &mut self,
        id: RunId,
        at: Option<Timestamp>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if let Some(place) = run.place.take() {
            self.ready.remove(&place, id);
        }
        if let Some(deadline) = run.columns.deadline {
            effects.ring |= self.deadlines.insert(deadline, id, now);
        }
        let Some(at) = at else { return };
        // A session that is gone has no future to offer.
        run.preferred = run.preferred.filter(|session| self.sessions.contains_key(session));
        let place = run.place_at(at);
        // Those who wait know the first moment of each line, so only an earlier one is news.
        effects.ring |= self.ready.insert(&place, id, now);
        run.place = Some(place);
    }

    /// Takes the run from its session, if one holds it.
    pub(crate) fn let_go(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if let Some(session) = run.owner.take().and_then(|owner| self.sessions.get_mut(&owner)) {
            session.held.remove(&id);
            session.unread.remove(&id);
        }
    }
}
