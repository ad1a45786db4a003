//! Pages of runs.
//!
//! A page is read from the most selective index, in the order of ids. Several index scans are needed if the query names
//! several statuses. A root is not in the index of its descendants and is read separately.
//!
//! Filters that no index supports are applied to the rows. Since they may match rarely, a page examines a limited
//! number of runs; the next page continues after the last one that was examined.

mod index_scan;

use std::ops::RangeInclusive;

use outlast_core::limits::{PAGE_LOOKS_MAX, PAGE_RUNS_MAX};
use outlast_core::{ListOrder, Page, QueuedSteps, RunId, RunQuery, RunView, WorldError};
use tokio_postgres::Row;

use self::index_scan::IndexScan;
use crate::connection::database::Database;
use crate::encoding::row::{InvalidRow, get, run_view};
use crate::encoding::text::escape_nul;
use crate::error::corrupt_error;
use crate::read::id_clock_skew;

/// A page of runs.
pub(crate) async fn page(database: &Database, query: &RunQuery) -> Result<Page, WorldError> {
    let limit = query.limit.min(PAGE_RUNS_MAX);
    if let Some(key) = &query.key {
        let rows = database.call(&database.sql.run_by_key, &[&escape_nul(key).into_owned()]).await?;
        let run = read_views(database, &rows)?.into_iter().filter(|run| query.wants(run));
        return Ok(query.page(run.collect(), limit));
    }
    if query.leaves_out_queued_steps() {
        // Most pages contain no queued steps: read the page without a row filter first, which examines fewer runs.
        let all = RunQuery { queued_steps: QueuedSteps::Listed, ..query.clone() };
        let (runs, last_examined) = read_range(database, &all, limit).await?;
        if !runs.iter().any(RunView::is_queued_step) {
            return Ok(query.page_until(runs, limit, last_examined));
        }
    }
    let (runs, last_examined) = read_range(database, query, limit).await?;
    Ok(query.page_until(runs, limit, last_examined))
}

/// The runs of a page, one more if there are more, and the last run that was examined if the page ends because of that
/// limit.
async fn read_range(
    database: &Database,
    query: &RunQuery,
    limit: usize,
) -> Result<(Vec<RunView>, Option<RunId>), WorldError> {
    let Some(mut range) = IdRange::of(database, query).await? else { return Ok((Vec::new(), None)) };
    let scans = IndexScan::all(query, &database.sql.schema);
    let last_examined = range.limit_to_examined(database, &scans).await?;
    let mut runs = IndexScan::read_all(&scans, database, query, &range, limit + 1).await?;
    if let Some(root) = query.root {
        let rows = database.call(&database.sql.run_views, &[&vec![root.to_string()]]).await?;
        let root = read_views(database, &rows)?.into_iter();
        runs.extend(root.filter(|run| range.ids.contains(&run.id.bits()) && query.wants(run)));
    }
    runs.sort_by_key(|run| run.id);
    if !range.is_ascending {
        runs.reverse();
    }
    // Each scan may return `limit + 1` runs. `page_until` uses the last examined run only if there are fewer in total.
    runs.truncate(limit + 1);
    Ok((runs, last_examined))
}

fn read_views(database: &Database, rows: &[Row]) -> Result<Vec<RunView>, WorldError> {
    rows.iter().map(run_view).collect::<Result<_, _>>().map_err(|why| corrupt_error(&database.place, &why))
}

/// The ids that a page may contain, and the direction in which they are read.
#[derive(Debug)]
struct IdRange {
    ids: RangeInclusive<u128>,
    /// Whether they are read from the lowest id on. A list is read backwards if only its end is given.
    is_ascending: bool,
}

impl IdRange {
    /// The range of a query; `None` if it is empty.
    async fn of(database: &Database, query: &RunQuery) -> Result<Option<Self>, WorldError> {
        let is_backwards = query.before.is_some() && query.after.is_none();
        let is_ascending = (query.order == ListOrder::OldestFirst) != is_backwards;
        let skew = if query.created_from.is_some() || query.created_before.is_some() {
            let rows = database.call(&database.sql.skew, &[]).await?;
            let skew = rows.first().map(|row| Ok((get(row, 0)?, get(row, 1)?))).transpose();
            skew.map_err(|why: InvalidRow| corrupt_error(&database.place, &why))?
        } else {
            None
        };
        let (mut low, mut high) =
            id_clock_skew::ids_between(skew, query.created_from, query.created_before).into_inner();
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
        Ok((low <= high).then_some(Self { ids: low..=high, is_ascending }))
    }

    /// Limits the range to the runs that the page may examine. Returns the last of them, if there are more.
    async fn limit_to_examined(
        &mut self,
        database: &Database,
        scans: &[IndexScan],
    ) -> Result<Option<RunId>, WorldError> {
        let mut nearest: Option<RunId> = None;
        for scan in scans.iter().filter(|scan| scan.has_row_filters()) {
            let last_examined = scan.last_examined(database, self, PAGE_LOOKS_MAX).await?;
            nearest = match (nearest, last_examined) {
                (Some(one), Some(other)) if self.is_ascending => Some(one.min(other)),
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
        }
        // The page ends where the first of its scans reaches its limit.
        if let Some(last_examined) = nearest {
            let (low, high) = (*self.ids.start(), *self.ids.end());
            self.ids =
                if self.is_ascending { low..=last_examined.bits() } else { last_examined.bits()..=high };
        }
        Ok(nearest)
    }
}
