//! Pruning: deleting runs that ended long ago.

use std::ops::Bound;

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::{Pruned, RunId, Timestamp};

use crate::state::State;

impl State {
    pub(crate) fn prune(&mut self, before: Timestamp, after: Option<RunId>, limit: usize) -> Pruned {
        let limit = limit.min(PRUNE_RUNS_MAX);
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let candidates: Vec<RunId> =
            self.order.range((start, Bound::Unbounded)).take(limit).copied().collect();
        let next = candidates.last().filter(|_| candidates.len() == limit).copied();
        let deleted = candidates.into_iter().filter(|run| self.delete_if_ended_before(*run, before));
        Pruned { runs: deleted.count() as u64, next }
    }

    /// Deletes a run if it ended before the given time. Returns whether it was deleted.
    fn delete_if_ended_before(&mut self, id: RunId, before: Timestamp) -> bool {
        let has_ended = self.runs.get(&id).filter(|run| run.ended_at.is_some_and(|at| at < before));
        // The queued outbox entries of a run need its row.
        let has_ended = has_ended.filter(|_| !self.outboxes.has_entries_of(id));
        let Some(run) = has_ended else { return false };
        if let Some(count) = self.counts.get_mut(&run.status) {
            *count -= 1;
        }
        if let Some(key) = &run.key {
            self.keys.remove(&key.text);
        }
        self.order.remove(&id);
        self.runs.remove(&id);
        true
    }
}
