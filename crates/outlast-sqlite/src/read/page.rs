//! Pages of runs.
//!
//! A page is read from the index with the fewest entries, in order of ids. Some queries need several scans: each status
//! has its own part of an index, and a root is not among its descendants. Filters that no index supports are evaluated
//! row by row. A page evaluates them for a limited number of rows, and the next page continues after them.

mod index_scan;

use outlast_core::limits::{PAGE_LOOKS_MAX, PAGE_RUNS_MAX};
use outlast_core::paging::IdRange;
use outlast_core::{Page, RunId, RunQuery, RunView};
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
    if let Some(all) = query.without_left_out() {
        let (runs, scan_end) = find(connection, &all, limit)?;
        if !runs.iter().any(|run| query.leaves_out(run)) {
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
    let Some(mut range) = id_range(connection, query)? else { return Ok((Vec::new(), None)) };
    let scans = IndexScan::all(query);
    let scan_end = limit_rows(connection, &mut range, &scans)?;
    let mut runs = Vec::new();
    for scan in &scans {
        scan.read(connection, query, &range, limit + 1, &mut runs)?;
    }
    if let Some(root) = query.root {
        let root = by_id(connection, root)?;
        runs.extend(root.filter(|run| range.ids.contains(&run.id.bits()) && query.wants(run)));
    }
    // Each scan may have returned `limit + 1` runs. The end of the scan matters only if all of them returned fewer.
    range.merge(&mut runs, limit);
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

/// The ids of a query; `None` if there are none.
fn id_range(connection: &Connection, query: &RunQuery) -> Result<Option<IdRange>, Error> {
    let skew = if IdRange::needs_skew(query) { id_clock_skew::stored(connection)? } else { None };
    Ok(IdRange::of(query, skew))
}

/// Shortens the range so that row filters are evaluated for a limited number of rows. Returns the last run of the
/// shortened range, or `None` if the range has fewer rows.
fn limit_rows(
    connection: &Connection,
    range: &mut IdRange,
    scans: &[IndexScan],
) -> Result<Option<RunId>, Error> {
    let mut scan_ends = Vec::new();
    for scan in scans.iter().filter(|scan| scan.has_row_filters()) {
        scan_ends.extend(scan.scan_end(connection, range, PAGE_LOOKS_MAX)?);
    }
    Ok(range.end_at_first(scan_ends))
}
