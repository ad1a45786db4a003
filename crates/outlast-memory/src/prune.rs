//! Deleting runs: those that ended long ago, or one that has ended.

use std::ops::Bound;

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::refusal::not_deletable;
use outlast_core::{Pruned, RunId, Timestamp, WorldError};

use crate::state::State;

impl State {
    pub(crate) fn prune(
        &mut self,
        before: Timestamp,
        after: Option<RunId>,
        limit: usize,
        now: Timestamp,
    ) -> Pruned {
        self.prune_tokens(now);
        let limit = limit.min(PRUNE_RUNS_MAX);
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let candidates: Vec<RunId> =
            self.order.range((start, Bound::Unbounded)).take(limit).copied().collect();
        let next = candidates.last().filter(|_| candidates.len() == limit).copied();
        let deleted = candidates.into_iter().filter(|run| self.delete_if_ended_before(*run, before));
        Pruned { runs: deleted.count() as u64, next }
    }

    /// Deletes a run that has ended.
    pub(crate) fn delete(&mut self, id: RunId) -> Result<(), WorldError> {
        let run = self.get(id)?;
        let (status, marks) = (run.status, run.marks);
        if self.delete_if_ended_before(id, Timestamp::NEVER) {
            Ok(())
        } else {
            Err(not_deletable(id, status, marks))
        }
    }

    /// Deletes a run if it ended before the given time and is not in quarantine. Returns whether it was deleted.
    fn delete_if_ended_before(&mut self, id: RunId, before: Timestamp) -> bool {
        let has_ended = self.runs.get(&id).filter(|run| run.ended_at.is_some_and(|at| at < before));
        // The queued outbox entries of a run need its row.
        let has_entries = self.outboxes.has_entries_of(id);
        let Some(run) = has_ended.filter(|run| !run.marks.is_quarantined() && !has_entries) else {
            return false;
        };
        if let Some(count) = self.counts.get_mut(&run.status) {
            *count -= 1;
        }
        if let Some(key) = &run.key {
            self.keys.remove(&key.text);
        }
        let ended_at = run.ended_at.unwrap_or(before);
        self.order.remove(&id);
        self.runs.remove(&id);
        self.forget_tokens(id, ended_at);
        true
    }
}
