//! Pruning: what ended long ago is forgotten, a part at a time.

use std::ops::Bound;

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::{Pruned, RunId, Timestamp};

use crate::state::State;

impl State {
    pub(crate) fn prune(&mut self, before: Timestamp, after: Option<RunId>, limit: usize) -> Pruned {
        let limit = limit.min(PRUNE_RUNS_MAX);
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let looked_at: Vec<RunId> =
            self.order.range((behind, Bound::Unbounded)).take(limit).copied().collect();
        let next = looked_at.last().filter(|_| looked_at.len() == limit).copied();
        let forgotten = looked_at.into_iter().filter(|run| self.forget(*run, before));
        Pruned { runs: forgotten.count() as u64, next }
    }

    /// Forgets a run that ended before a moment; tells whether it did.
    fn forget(&mut self, id: RunId, before: Timestamp) -> bool {
        let has_ended = self.runs.get(&id).filter(|run| run.ended_at.is_some_and(|at| at < before));
        // What a run has still to do to others is found by its row.
        let has_ended = has_ended.filter(|_| !self.outboxes.has(id));
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
