//! Views of runs, counts and workers.

use std::collections::HashMap;

use outlast_core::limits::{
    FLAG_COUNT_MAX, PAGE_RUNS_MAX, QUEUE_COUNT_MAX, QUEUE_GROUPS_READ_MAX, QUEUE_HELD_READ_MAX,
    QUEUES_LISTED_MAX,
};
use outlast_core::{
    Code, Counts, FailureQuery, FlagCounts, MarkCounts, QueueView, Report, RunId, RunView, Timestamp,
    WorkerView, WorldError, complete_counts, count_marks,
};
use tokio_postgres::Row;

use crate::connection::database::{Database, Parameter};
use crate::encoding::row::{
    InvalidRow, get, json, marks, maybe_timestamp, number, parsed, run_view, text, timestamp,
};
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

/// The number of runs with each mark.
pub(crate) async fn mark_counts(database: &Database) -> Result<MarkCounts, WorldError> {
    let rows = database.call(&database.sql.mark_counts, &[]).await?;
    let counts: Result<Vec<_>, InvalidRow> =
        rows.iter().map(|row| Ok((marks(row, 0)?, number(row, 1)?))).collect();
    counts.map(count_marks).map_err(|why| corrupt_error(&database.place, &why))
}

/// The number of runs with each flag.
pub(crate) async fn flag_counts(database: &Database) -> Result<FlagCounts, WorldError> {
    let rows = database.call(&database.sql.flag_counts, &[&(FLAG_COUNT_MAX as i64)]).await?;
    let counts = rows.first().map(|row| Ok(FlagCounts::new(number(row, 0)?, number(row, 1)?))).transpose();
    let counts = counts.map_err(|why: InvalidRow| corrupt_error(&database.place, &why))?;
    Ok(counts.unwrap_or_default())
}

/// The views of those of the runs that exist, in this order.
pub(crate) async fn runs_by_id(database: &Database, runs: &[RunId]) -> Result<Vec<RunView>, WorldError> {
    let views = run_views(database, runs).await?;
    Ok(runs.iter().filter_map(|run| views.get(run).cloned()).collect())
}

/// Failed runs, those that ended last first.
pub(crate) async fn failures(database: &Database, query: &FailureQuery) -> Result<Vec<RunView>, WorldError> {
    let [(from, from_run), (before, before_run)] = query.bounds();
    let (from_run, before_run) = (from_run.to_string(), before_run.to_string());
    let (from, before) = (from.as_micros(), before.as_micros());
    let limit = query.limit.min(PAGE_RUNS_MAX) as i64;
    let fingerprint = query.fingerprint.map(u64::cast_signed);
    let mut values: Vec<Parameter<'_>> = vec![&from, &from_run, &before, &before_run, &limit];
    let sql = match &fingerprint {
        Some(fingerprint) => {
            values.push(fingerprint);
            &database.sql.failures_by_fingerprint
        }
        None => &database.sql.failures,
    };
    let rows = database.call(sql, &values).await?;
    rows.iter().map(run_view).collect::<Result<_, _>>().map_err(|why| corrupt_error(&database.place, &why))
}

/// The joined workers.
pub(crate) async fn workers(database: &Database) -> Result<Vec<WorkerView>, WorldError> {
    let rows = database.call(&database.sql.workers, &[]).await?;
    rows.iter().map(worker).collect::<Result<_, _>>().map_err(|why| corrupt_error(&database.place, &why))
}

/// The queues by name.
pub(crate) async fn queues(database: &Database, now: Timestamp) -> Result<Vec<QueueView>, WorldError> {
    let limits = [QUEUE_COUNT_MAX, QUEUE_GROUPS_READ_MAX, QUEUE_HELD_READ_MAX, QUEUES_LISTED_MAX];
    let [counted, groups, held, listed] = limits.map(|limit| limit as i64);
    let values: [Parameter<'_>; 5] = [&now.as_micros(), &counted, &groups, &held, &listed];
    let rows = database.call(&database.sql.queues, &values).await?;
    rows.iter().map(queue).collect::<Result<_, _>>().map_err(|why| corrupt_error(&database.place, &why))
}

fn queue(row: &Row) -> Result<QueueView, InvalidRow> {
    let mut view = QueueView::empty(text(row, 0)?);
    view.add_ready(number(row, 1)?, maybe_timestamp(row, 2)?);
    view.add_stuck(number(row, 3)?);
    view.running = number(row, 4)?;
    Ok(view)
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
    view.format = number(row, 12)?;
    Ok(view)
}
