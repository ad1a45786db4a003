//! Pages of runs.
//!
//! A page is read from the most selective index, in the order of ids. Several index scans are needed if the query names
//! several statuses. A root is not in the index of its descendants and is read separately.
//!
//! Filters that no index supports are applied to the rows. Since they may match rarely, a page examines a limited
//! number of runs; the next page continues after the last one that was examined.

mod index_scan;

use outlast_core::limits::{PAGE_LOOKS_MAX, PAGE_RUNS_MAX};
use outlast_core::paging::IdRange;
use outlast_core::{Page, RunId, RunQuery, RunView, WorldError};
use tokio_postgres::Row;

use self::index_scan::IndexScan;
use crate::connection::database::Database;
use crate::encoding::row::{InvalidRow, get, run_view};
use crate::encoding::text::escape_nul;
use crate::error::corrupt_error;

/// A page of runs.
pub(crate) async fn page(database: &Database, query: &RunQuery) -> Result<Page, WorldError> {
    let limit = query.limit.min(PAGE_RUNS_MAX);
    if let Some(key) = &query.key {
        let rows = database.call(&database.sql.run_by_key, &[&escape_nul(key).into_owned()]).await?;
        let run = read_views(database, &rows)?.into_iter().filter(|run| query.wants(run));
        return Ok(query.page(run.collect(), limit));
    }
    if let Some(all) = query.without_left_out() {
        let (runs, last_examined) = read_range(database, &all, limit).await?;
        if !runs.iter().any(|run| query.leaves_out(run)) {
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
    let Some(mut range) = id_range(database, query).await? else { return Ok((Vec::new(), None)) };
    let scans = IndexScan::all(query, &database.sql.schema);
    let last_examined = limit_to_examined(database, &mut range, &scans).await?;
    let mut runs = IndexScan::read_all(&scans, database, query, &range, limit + 1).await?;
    if let Some(root) = query.root {
        let rows = database.call(&database.sql.run_views, &[&vec![root.to_string()]]).await?;
        let root = read_views(database, &rows)?.into_iter();
        runs.extend(root.filter(|run| range.ids.contains(&run.id.bits()) && query.wants(run)));
    }
    // Each scan may return `limit + 1` runs. `page_until` uses the last examined run only if there are fewer in total.
    range.merge(&mut runs, limit);
    Ok((runs, last_examined))
}

fn read_views(database: &Database, rows: &[Row]) -> Result<Vec<RunView>, WorldError> {
    rows.iter().map(run_view).collect::<Result<_, _>>().map_err(|why| corrupt_error(&database.place, &why))
}

/// The ids of a query; `None` if there are none.
async fn id_range(database: &Database, query: &RunQuery) -> Result<Option<IdRange>, WorldError> {
    if !IdRange::needs_skew(query) {
        return Ok(IdRange::of(query, None));
    }
    let rows = database.call(&database.sql.skew, &[]).await?;
    let skew = rows.first().map(|row| Ok(get(row, 0)?..=get(row, 1)?)).transpose();
    let skew = skew.map_err(|why: InvalidRow| corrupt_error(&database.place, &why))?;
    Ok(IdRange::of(query, skew))
}

/// Limits the range to the runs that the page may examine. Returns the last of them, if there are more.
async fn limit_to_examined(
    database: &Database,
    range: &mut IdRange,
    scans: &[IndexScan],
) -> Result<Option<RunId>, WorldError> {
    let mut scan_ends = Vec::new();
    for scan in scans.iter().filter(|scan| scan.has_row_filters()) {
        scan_ends.extend(scan.last_examined(database, range, PAGE_LOOKS_MAX).await?);
    }
    Ok(range.end_at_first(scan_ends))
}
