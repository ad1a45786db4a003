//! Pages of runs.
//!
//! A page is read from the index that has the shortest list, in order of ids; from several where one
//! cannot answer: each status has a list of its own, and a root is not among its descendants. What no index
//! helps with is looked for among so many runs of the list, and the next page goes on behind them.

mod part;

use std::ops::RangeInclusive;

use outlast_core::limits::{PAGE_LOOKS_MAX, PAGE_RUNS_MAX};
use outlast_core::{ListOrder, Page, QueuedSteps, RunId, RunQuery, RunView, WorldError};
use tokio_postgres::Row;

use self::part::Part;
use crate::error::corrupt;
use crate::row::{Damaged, get, run_view};
use crate::skew;
use crate::store::Store;
use crate::text::stored;

/// A page of runs.
pub(crate) async fn page(store: &Store, query: &RunQuery) -> Result<Page, WorldError> {
    let limit = query.limit.min(PAGE_RUNS_MAX);
    if let Some(key) = &query.key {
        let rows = store.call(&store.sql.run_by_key, &[&stored(key).into_owned()]).await?;
        let run = views(store, &rows)?.into_iter().filter(|run| query.wants(run));
        return Ok(query.page(run.collect(), limit));
    }
    if query.leaves_out_queued_steps() {
        // Most lists have none between their runs, and are then the same without a look at each.
        let all = RunQuery { queued_steps: QueuedSteps::Listed, ..query.clone() };
        let (runs, edge) = find(store, &all, limit).await?;
        if !runs.iter().any(RunView::is_queued_step) {
            return Ok(query.page_until(runs, limit, edge));
        }
    }
    let (runs, edge) = find(store, query, limit).await?;
    Ok(query.page_until(runs, limit, edge))
}

/// The runs of a page and one more if there are more, and the run where the looking ended.
async fn find(
    store: &Store,
    query: &RunQuery,
    limit: usize,
) -> Result<(Vec<RunView>, Option<RunId>), WorldError> {
    let Some(mut place) = Place::of(store, query).await? else { return Ok((Vec::new(), None)) };
    let parts = Part::all(query, &store.sql.schema);
    let edge = place.cut(store, &parts).await?;
    let mut runs = Part::read_all(&parts, store, query, &place, limit + 1).await?;
    if let Some(root) = query.root {
        let rows = store.call(&store.sql.run_views, &[&vec![root.to_string()]]).await?;
        let root = views(store, &rows)?.into_iter();
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

fn views(store: &Store, rows: &[Row]) -> Result<Vec<RunView>, WorldError> {
    rows.iter().map(run_view).collect::<Result<_, _>>().map_err(|why| corrupt(&store.place, &why))
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
    async fn of(store: &Store, query: &RunQuery) -> Result<Option<Self>, WorldError> {
        let is_backwards = query.before.is_some() && query.after.is_none();
        let is_rising = (query.order == ListOrder::OldestFirst) != is_backwards;
        let skew = if query.created_from.is_some() || query.created_before.is_some() {
            let rows = store.call(&store.sql.skew, &[]).await?;
            let skew = rows.first().map(|row| Ok((get(row, 0)?, get(row, 1)?))).transpose();
            skew.map_err(|why: Damaged| corrupt(&store.place, &why))?
        } else {
            None
        };
        let (mut low, mut high) =
            skew::ids_between(skew, query.created_from, query.created_before).into_inner();
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
    async fn cut(&mut self, store: &Store, parts: &[Part]) -> Result<Option<RunId>, WorldError> {
        let mut nearest: Option<RunId> = None;
        for part in parts.iter().filter(|part| part.needs_looks()) {
            let edge = part.edge(store, self, PAGE_LOOKS_MAX).await?;
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
