//! Pages of runs.
//!
//! A page is read from the index with the fewest entries, in order of ids. Some queries need several scans: each status
//! has its own part of an index, and a root is not among its descendants. Filters that no index supports are evaluated
//! row by row. A page evaluates them for a limited number of rows, and the next page continues after them.

mod index_scan;

use std::ops::RangeInclusive;

use outlast_core::limits::{PAGE_LOOKS_MAX, PAGE_RUNS_MAX};
use outlast_core::{ListOrder, Page, QueuedSteps, RunId, RunQuery, RunView};
use rusqlite::{Connection, Error, OptionalExtension};

use self::index_scan::IndexScan;
use crate::connection::error::Refusal;
use crate::read::id_clock_skew;
use crate::schema::row::{parsed, run_view};
use crate::schema::sql;

/// A page of runs.
pub(crate) fn page(connection: &Connection, query: &RunQuery) -> Result<Page, Refusal> {
    let limit = query.limit.min(PAGE_RUNS_MAX);
    if let Some(key) = &query.key {
        let run = by_key(connection, key)?.filter(|run| query.wants(run));
        return Ok(query.page(run.into_iter().collect(), limit));
    }
    if query.leaves_out_queued_steps() {
        // Most pages contain no queued steps. Reading one without that filter does not have to evaluate it row by row.
        let all = RunQuery { queued_steps: QueuedSteps::Listed, ..query.clone() };
        let (runs, scan_end) = find(connection, &all, limit)?;
        if !runs.iter().any(RunView::is_queued_step) {
            return Ok(query.page_until(runs, limit, scan_end));
        }
    }
    let (runs, scan_end) = find(connection, query, limit)?;
    Ok(query.page_until(runs, limit, scan_end))
}

/// The runs of a page, plus one if there are more; and the last run that was scanned, if the scan stopped at its limit.
fn find(
    connection: &Connection,
    query: &RunQuery,
    limit: usize,
) -> Result<(Vec<RunView>, Option<RunId>), Error> {
    let Some(mut range) = ScanRange::of(connection, query)? else { return Ok((Vec::new(), None)) };
    let scans = IndexScan::all(query);
    let scan_end = range.limit_rows(connection, &scans)?;
    let mut runs = Vec::new();
    for scan in &scans {
        scan.read(connection, query, &range, limit + 1, &mut runs)?;
    }
    if let Some(root) = query.root {
        let root = by_id(connection, root)?;
        runs.extend(root.filter(|run| range.ids.contains(&run.id.bits()) && query.wants(run)));
    }
    runs.sort_by_key(|run| run.id);
    if !range.is_ascending {
        runs.reverse();
    }
    // Each scan may have returned `limit + 1` runs. The end of the scan matters only if all of them returned fewer.
    runs.truncate(limit + 1);
    Ok((runs, scan_end))
}

fn by_id(connection: &Connection, run: RunId) -> Result<Option<RunView>, Error> {
    connection.prepare_cached(&sql::RUN_VIEW)?.query_row([run.to_string()], run_view).optional()
}

fn by_key(connection: &Connection, key: &str) -> Result<Option<RunView>, Error> {
    let mut statement = connection.prepare_cached(sql::RUN_BY_KEY)?;
    let id = statement.query_row([key], |row| parsed::<RunId>(row, 0)).optional()?;
    id.map_or(Ok(None), |id| by_id(connection, id))
}

/// The range of ids that a page scans, and the direction of the scan.
#[derive(Debug)]
struct ScanRange {
    ids: RangeInclusive<u128>,
    /// Whether the scan begins at the lowest id. A list is scanned backwards if the query gives only its end.
    is_ascending: bool,
}

impl ScanRange {
    /// The range of a query; `None` if it is empty.
    fn of(connection: &Connection, query: &RunQuery) -> Result<Option<Self>, Error> {
        let is_backwards = query.before.is_some() && query.after.is_none();
        let is_ascending = (query.order == ListOrder::OldestFirst) != is_backwards;
        let ids = id_clock_skew::ids_between(connection, query.created_from, query.created_before)?;
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
        Ok((low <= high).then_some(Self { ids: low..=high, is_ascending }))
    }

    /// Shortens the range so that row filters are evaluated for a limited number of rows. Returns the last run of the
    /// shortened range, or `None` if the range has fewer rows.
    fn limit_rows(&mut self, connection: &Connection, scans: &[IndexScan]) -> Result<Option<RunId>, Error> {
        let mut nearest: Option<RunId> = None;
        for scan in scans.iter().filter(|scan| scan.has_row_filters()) {
            let scan_end = scan.scan_end(connection, self, PAGE_LOOKS_MAX)?;
            nearest = match (nearest, scan_end) {
                (Some(one), Some(other)) if self.is_ascending => Some(one.min(other)),
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
        }
        if let Some(scan_end) = nearest {
            let (low, high) = (*self.ids.start(), *self.ids.end());
            self.ids = if self.is_ascending { low..=scan_end.bits() } else { scan_end.bits()..=high };
        }
        Ok(nearest)
    }
}
