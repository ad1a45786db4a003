//! Queries: views, lists, histories.

use std::ops::Bound;

use outlast_core::limits::{
    FLAG_COUNT_MAX, HISTORY_TURNS_READ_MAX, PAGE_RUNS_MAX, QUEUE_HELD_READ_MAX, QUEUES_LISTED_MAX,
};
use outlast_core::{
    Ended, FailureQuery, FlagCounts, FlagFilter, ListOrder, MarkCounts, Outcome, Page, QueueView, RunId,
    RunQuery, RunView, Timestamp, TurnRecord, WorldError, count_marks,
};

use crate::state::State;

impl State {
    pub(crate) fn view(&self, run: RunId) -> Result<RunView, WorldError> {
        Ok(self.get(run)?.view(run))
    }

    pub(crate) fn mark_counts(&self) -> MarkCounts {
        count_marks(self.runs.values().map(|run| (run.marks, 1)))
    }

    pub(crate) fn queues(&self, now: Timestamp) -> Vec<QueueView> {
        let mut queues = self.ready.counts(now);
        let mut add = |id: RunId, add: &dyn Fn(&mut QueueView)| {
            if let Some(run) = self.runs.get(&id) {
                add(queues.entry(run.queue.clone()).or_insert_with(|| QueueView::empty(run.queue.clone())));
            }
        };
        for (at, run) in self.ready.ready_without_code(now) {
            add(run, &|queue| queue.add_ready(1, Some(at)));
        }
        let held = self.sessions.values().flat_map(|session| &session.held);
        for run in held.take(QUEUE_HELD_READ_MAX) {
            add(*run, &|queue| queue.running += 1);
        }
        queues.into_values().take(QUEUES_LISTED_MAX).collect()
    }

    pub(crate) fn flag_counts(&self) -> FlagCounts {
        let count = |flag| {
            let views = self.order.iter().filter_map(|run| self.view(*run).ok());
            views.filter(|run| run.has_flag(flag)).take(FLAG_COUNT_MAX).count() as u64
        };
        FlagCounts::new(count(FlagFilter::Retrying), count(FlagFilter::Cancelling))
    }

    pub(crate) fn failures(&self, query: &FailureQuery) -> Vec<RunView> {
        let views = self.order.iter().filter_map(|run| self.view(*run).ok());
        let mut failed: Vec<RunView> = views.filter(|run| query.wants(run)).collect();
        failed.sort_by_key(|run| std::cmp::Reverse((run.ended_at, run.id)));
        failed.truncate(query.limit.min(PAGE_RUNS_MAX));
        failed
    }

    pub(crate) fn page(&self, query: &RunQuery) -> Page {
        let ids: Box<dyn Iterator<Item = &RunId>> = match &query.key {
            Some(key) => Box::new(self.keys.get(key).into_iter()),
            None => self.ids_in_order(query),
        };
        let limit = query.limit.min(PAGE_RUNS_MAX);
        let wanted = ids.filter_map(|id| self.view(*id).ok()).filter(|run| query.wants(run));
        // One more than requested shows whether this is the last page.
        query.page(wanted.take(limit + 1).collect(), limit)
    }

    /// The runs between the query's cursors, beginning with the first one of its page.
    fn ids_in_order<'a>(&'a self, query: &RunQuery) -> Box<dyn Iterator<Item = &'a RunId> + 'a> {
        let is_backwards = query.before.is_some() && query.after.is_none();
        let (low, high, is_ascending) = match query.order {
            ListOrder::OldestFirst => (query.after, query.before, !is_backwards),
            ListOrder::NewestFirst => (query.before, query.after, is_backwards),
        };
        if matches!((low, high), (Some(low), Some(high)) if low >= high) {
            return Box::new(std::iter::empty());
        }
        let bound = |run: Option<RunId>| run.map_or(Bound::Unbounded, Bound::Excluded);
        let between = self.order.range((bound(low), bound(high)));
        if is_ascending { Box::new(between) } else { Box::new(between.rev()) }
    }

    pub(crate) fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        let history = &self.get(run)?.history;
        let begin = history.partition_point(|turn| turn.seq + turn.events.len() as u64 <= from);
        let limit = limit.min(HISTORY_TURNS_READ_MAX);
        Ok(history[begin..].iter().take(limit).cloned().collect())
    }

    pub(crate) fn replayed_history(&self, run: RunId) -> Result<Vec<TurnRecord>, WorldError> {
        Ok(self.get(run)?.replayed_history().to_vec())
    }

    /// How the run ended, if it has.
    pub(crate) fn ended(&self, run: RunId) -> Result<Option<Ended>, WorldError> {
        // The last event of a run that was reopened is its earlier end, until a worker has continued it.
        let run_row = self.get(run).map(|row| Some(row).filter(|row| row.status.is_final()))?;
        let last = run_row.and_then(|row| row.history.last()?.events.last());
        Ok(last.and_then(Outcome::of_final).map(|outcome| Ended { run, outcome }))
    }
}
