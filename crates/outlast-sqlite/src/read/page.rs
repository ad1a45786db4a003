//! Pages of runs.
//!
//! A page is read from the index that has the shortest list, in order of ids; from several where one
//! cannot answer: each status has a list of its own, and a root is not among its descendants. What no index
//! helps with is looked for among so many runs of the list, and the next page goes on behind them.

mod index_scan;

use std::ops::RangeInclusive;

use outlast_core::limits::{PAGE_LOOKS_MAX, PAGE_RUNS_MAX};
use outlast_core::{ListOrder, Page, QueuedSteps, RunId, RunQuery, RunView};
use rusqlite::{Connection, Error, OptionalExtension};

use self::index_scan::Part;
use crate::connection::error::Refusal;
use crate::read::id_clock_skew as skew;
use crate::schema::row::{run_view, word};
use crate::schema::sql;

/// A page of runs.
pub(crate) fn page(connection: &Connection, query: &RunQuery) -> Result<Page, Refusal> {
    let limit = query.limit.min(PAGE_RUNS_MAX);
    if let Some(key) = &query.key {
        let run = by_key(connection, key)?.filter(|run| query.wants(run));
        return Ok(query.page(run.into_iter().collect(), limit));
    }
    if query.leaves_out_queued_steps() {
        // Most lists have none between their runs, and are then the same without a look at each.
        let all = RunQuery { queued_steps: QueuedSteps::Listed, ..query.clone() };
        let (runs, edge) = find(connection, &all, limit)?;
        if !runs.iter().any(RunView::is_queued_step) {
            return Ok(query.page_until(runs, limit, edge));
        }
    }
    let (runs, edge) = find(connection, query, limit)?;
    Ok(query.page_until(runs, limit, edge))
}

/// The runs of a page and one more if there are more, and the run where the looking ended.
fn find(
    connection: &Connection,
    query: &RunQuery,
    limit: usize,
) -> Result<(Vec<RunView>, Option<RunId>), Error> {
    let Some(mut place) = Place::of(connection, query)? else { return Ok((Vec::new(), None)) };
    let parts = Part::all(query);
    let edge = place.cut(connection, &parts)?;
    let mut runs = Vec::new();
    for part in &parts {
        part.read(connection, query, &place, limit + 1, &mut runs)?;
    }
    if let Some(root) = query.root {
        let root = by_id(connection, root)?;
        runs.extend(root.filter(|run| place.ids.contains(&run.id.bits()) && query.wants(run)));
    }
    runs.sort_by_key(|run| run.id);
    if !place.is_rising {
        runs.reverse();
    }
    // Each part has brought so many; where the looking ended counts only if there are fewer in all.
    runs.truncate(limit + 1);
    Ok((runs, edge))
}

fn by_id(connection: &Connection, run: RunId) -> Result<Option<RunView>, Error> {
    connection.prepare_cached(&sql::RUN_VIEW)?.query_row([run.to_string()], run_view).optional()
}

fn by_key(connection: &Connection, key: &str) -> Result<Option<RunView>, Error> {
    let mut statement = connection.prepare_cached(sql::RUN_BY_KEY)?;
    let id = statement.query_row([key], |row| word::<RunId>(row, 0)).optional()?;
    id.map_or(Ok(None), |id| by_id(connection, id))
}

/// Where a page may have runs, and from which side it is walked.
#[derive(Debug)]
struct Place {
    ids: RangeInclusive<u128>,
    /// Whether it is walked from the lowest id on. A list is walked backwards when only its end is given.
    is_rising: bool,
}

impl Place {
    /// The place of a query; `None` when no run can be there.
    fn of(connection: &Connection, query: &RunQuery) -> Result<Option<Self>, Error> {
        let is_backwards = query.before.is_some() && query.after.is_none();
        let is_rising = (query.order == ListOrder::OldestFirst) != is_backwards;
        let ids = skew::ids_between(connection, query.created_from, query.created_before)?;
        let (mut low, mut high) = ids.into_inner();
        let (above, below) = match query.order {
            ListOrder::OldestFirst => (query.after, query.before),
            ListOrder::NewestFirst => (query.before, query.after),
        };
        if let Some(above) = above {
            let Some(next) = above.bits().checked_add(1) else { return Ok(None) };
            low = low.max(next);
        }
        if let Some(below) = below {
            let Some(last) = below.bits().checked_sub(1) else { return Ok(None) };
            high = high.min(last);
        }
        Ok((low <= high).then_some(Self { ids: low..=high, is_rising }))
    }

    /// Cuts the place where the page stops looking; answers the last run before the cut.
    fn cut(&mut self, connection: &Connection, parts: &[Part]) -> Result<Option<RunId>, Error> {
        let mut nearest: Option<RunId> = None;
        for part in parts.iter().filter(|part| part.needs_looks()) {
            let edge = part.edge(connection, self, PAGE_LOOKS_MAX)?;
            nearest = match (nearest, edge) {
                (Some(one), Some(other)) if self.is_rising => Some(one.min(other)),
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
        }
        if let Some(edge) = nearest {
            let (low, high) = (*self.ids.start(), *self.ids.end());
            self.ids = if self.is_rising { low..=edge.bits() } else { edge.bits()..=high };
        }
        Ok(nearest)
    }
}
