//! The state behind the lock: runs, keys, sessions, and the queues of ready runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use outlast_core::refusal::no_run;
use outlast_core::{
    Counts, Ended, Marks, QuarantineChange, RunId, RunMap, SessionId, Status, Timestamp, WorldError,
};

use crate::deadlines::Deadlines;
use crate::outbox::Outboxes;
use crate::ready_queues::ReadyQueues;
use crate::records::Records;
use crate::run::Run;
use crate::session::Session;
use crate::tokens::{Replies, Tokens};

/// All data of the world.
#[derive(Debug, Default)]
pub(crate) struct State {
    // A hash map, because every turn looks up its run.
    pub(crate) runs: RunMap<Box<Run>>,
    // The ids of all runs in order, for lists.
    pub(crate) order: BTreeSet<RunId>,
    pub(crate) keys: HashMap<String, RunId>,
    pub(crate) counts: Counts,
    pub(crate) ready: ReadyQueues,
    // The deadlines of runs that no session holds.
    pub(crate) deadlines: Deadlines,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    // The lowest rules that all joined sessions support; `None` if no session is joined.
    pub(crate) rules: Option<u32>,
    pub(crate) outboxes: Outboxes,
    pub(crate) tokens: Tokens,
    pub(crate) replies: Replies,
    pub(crate) records: Records,
    // By how much a test has reduced the limit of payloads that no hook has taken.
    pub(crate) hook_limit_reduction: u64,
}

/// The notifications to send after a change, when the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    /// Whether a run may have become ready, so that waiting workers must be woken.
    pub(crate) wakes_workers: bool,
    /// Runs that have ended.
    pub(crate) ended: Vec<Ended>,
    /// Runs whose streams or state have changed.
    pub(crate) written: Vec<RunId>,
}

impl State {
    pub(crate) fn get(&self, run: RunId) -> Result<&Run, WorldError> {
        self.runs.get(&run).map(Box::as_ref).ok_or_else(|| no_run(run))
    }

    /// Sets the status of a run, and updates the counts.
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

    /// Sets when a run that no session holds is ready; `None` removes it from the ready queues. Also registers its
    /// deadline.
    pub(crate) fn set_ready_at(
        &mut self,
        id: RunId,
        at: Option<Timestamp>,
        now: Timestamp,
        notifications: &mut Notifications,
    ) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if let Some(entry) = run.ready_entry.take() {
            self.ready.remove(&entry, id);
        }
        if let Some(deadline) = run.columns.deadline {
            notifications.wakes_workers |= self.deadlines.insert(deadline, id, now);
        }
        let Some(at) = at else { return };
        // A session that has ended cannot be preferred any more.
        run.preferred = run.preferred.filter(|session| self.sessions.contains_key(session));
        let entry = run.ready_entry_at(at);
        // Waiting workers know when the next run of each group is due, so only an earlier one must wake them.
        notifications.wakes_workers |= self.ready.insert(&entry, id, now);
        run.ready_entry = Some(entry);
    }

    /// Deletes the turns in the range, except those kept.
    pub(crate) fn delete_turns(&mut self, id: RunId, range: &Range<u64>, kept: &[u64]) {
        if let Some(run) = self.runs.get_mut(&id) {
            run.history.retain(|turn| !range.contains(&turn.seq) || kept.contains(&turn.seq));
        }
    }

    /// Puts a run into quarantine or releases it, and returns the marks that it had before.
    pub(crate) fn quarantine(&mut self, id: RunId, change: QuarantineChange) -> Result<Marks, WorldError> {
        let run = self.runs.get_mut(&id).ok_or_else(|| no_run(id))?;
        let before = run.marks;
        run.marks = match change {
            QuarantineChange::Begin => before.with(Marks::QUARANTINED),
            QuarantineChange::End => before.without(Marks::QUARANTINED),
        };
        Ok(before)
    }

    /// Removes the run from the session that holds it, if any.
    pub(crate) fn remove_from_session(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if let Some(session) = run.owner.take().and_then(|owner| self.sessions.get_mut(&owner)) {
            session.held.remove(&id);
            session.unread.remove(&id);
        }
    }
}
