//! Looking: views, lists, histories.

use std::ops::Bound;

use outlast_core::limits::{HISTORY_TURNS_READ_MAX, PAGE_RUNS_MAX};
use outlast_core::{Ended, Order, Outcome, Page, RunId, RunQuery, RunView, TurnRecord, WorldError};

use crate::state::State;

impl State {
    pub(crate) fn view(&self, run: RunId) -> Result<RunView, WorldError> {
        Ok(self.get(run)?.view(run))
    }

    pub(crate) fn page(&self, query: &RunQuery) -> Page {
        if let Some(key) = &query.key {
            let named = self.keys.get(key).and_then(|run| self.view(*run).ok());
            return Page { runs: named.into_iter().filter(|run| query.wants(run)).collect(), next: None };
        }
        let behind = query.after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids: Box<dyn Iterator<Item = &RunId>> = match query.order {
            Order::OldestFirst => Box::new(self.order.range((behind, Bound::Unbounded))),
            Order::NewestFirst => Box::new(self.order.range((Bound::Unbounded, behind)).rev()),
        };
        let limit = query.limit.min(PAGE_RUNS_MAX);
        let views = ids.filter_map(|&id| Some((id, self.runs.get(&id)?))).filter(|(_, run)| {
            (query.statuses.is_empty() || query.statuses.contains(&run.status))
                && query.workflow.as_ref().is_none_or(|workflow| run.code.workflow == *workflow)
        });
        // One more than asked for tells whether this is the last page.
        let mut runs: Vec<RunView> = views.take(limit + 1).map(|(id, run)| run.view(id)).collect();
        let has_more = runs.len() > limit;
        runs.truncate(limit);
        let next = runs.last().filter(|_| has_more).map(|last| last.id);
        Page { runs, next }
    }

    pub(crate) fn history(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<TurnRecord>, WorldError> {
        let history = &self.get(run)?.history;
        let begin = history.partition_point(|turn| turn.seq < from);
        let limit = limit.min(HISTORY_TURNS_READ_MAX);
        Ok(history[begin..].iter().take(limit).cloned().collect())
    }

    /// How the run ended, if it has.
    pub(crate) fn ended(&self, run: RunId) -> Result<Option<Ended>, WorldError> {
        let last = self.get(run)?.history.last().and_then(|turn| turn.events.last());
        Ok(last.and_then(Outcome::of_final).map(|outcome| Ended { run, outcome }))
    }
}
