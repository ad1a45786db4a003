//! Views of runs, counts and workers.

use std::collections::HashMap;

use outlast_core::{Code, Counts, Report, RunId, RunView, WorkerView, WorldError, complete_counts};
use tokio_postgres::Row;

use crate::connection::database::Database;
use crate::encoding::row::{InvalidRow, get, json, number, parsed, run_view, text, timestamp};
use crate::error::corrupt_error;

/// Views of runs. Runs that do not exist are left out.
pub(crate) async fn run_views(
    database: &Database,
    runs: &[RunId],
) -> Result<HashMap<RunId, RunView>, WorldError> {
    let ids: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let rows = database.call(&database.sql.run_views, &[&ids]).await?;
    let views = rows.iter().map(|row| run_view(row).map(|view| (view.id, view)));
    views.collect::<Result<_, InvalidRow>>().map_err(|why| corrupt_error(&database.place, &why))
}

/// The number of runs in each status.
pub(crate) async fn counts(database: &Database) -> Result<Counts, WorldError> {
    let rows = database.call(&database.sql.counts, &[]).await?;
    // One statement sums all slots, so no sum is negative.
    let counts = rows.iter().map(|row| Ok((parsed(row, 0)?, get::<i64>(row, 1)?.max(0).unsigned_abs())));
    let counts: Result<Vec<_>, InvalidRow> = counts.collect();
    counts.map(complete_counts).map_err(|why| corrupt_error(&database.place, &why))
}

/// The joined workers.
pub(crate) async fn workers(database: &Database) -> Result<Vec<WorkerView>, WorldError> {
    let rows = database.call(&database.sql.workers, &[]).await?;
    rows.iter().map(worker).collect::<Result<_, _>>().map_err(|why| corrupt_error(&database.place, &why))
}

fn worker(row: &Row) -> Result<WorkerView, InvalidRow> {
    let code: Vec<(String, u32)> = json(row, 7)?;
    let code = code.into_iter().map(|(workflow, version)| Code { workflow: workflow.into(), version });
    let mut view = WorkerView::of_session(parsed(row, 0)?);
    view.host = text(row, 1)?;
    view.pid = number(row, 2)?;
    view.build = text(row, 3)?;
    view.joined_at = timestamp(row, 4)?;
    view.expires_at = timestamp(row, 5)?;
    view.held = number(row, 6)?;
    view.code = code.collect();
    view.queues = json(row, 8)?;
    view.beat_at = timestamp(row, 9)?;
    view.report = Report::from_json(get(row, 10)?);
    view.version = get(row, 11)?;
    Ok(view)
}
