//! Views: one run, the counts, the workers.

use outlast_core::limits::FLAG_COUNT_MAX;
use outlast_core::refusal::no_run;
use outlast_core::{
    Code, Counts, FlagCounts, MarkCounts, Report, RunId, RunView, WorkerView, complete_counts, count_marks,
};
use rusqlite::{Connection, OptionalExtension};

use crate::connection::error::Refusal;
use crate::schema::row::{json, marks, number, number_or_null, parsed, run_view, timestamp};
use crate::schema::sql;

/// The view of a run.
pub(crate) fn run(connection: &Connection, run: RunId) -> Result<RunView, Refusal> {
    let mut statement = connection.prepare_cached(&sql::RUN_VIEW)?;
    let view = statement.query_row([run.to_string()], run_view).optional()?;
    view.ok_or_else(|| no_run(run).into())
}

/// The number of runs in each status.
pub(crate) fn counts(connection: &Connection) -> Result<Counts, Refusal> {
    let mut statement = connection.prepare_cached(sql::COUNTS)?;
    let rows = statement.query_map([], |row| Ok((parsed(row, 0)?, number(row, 1)?)))?;
    Ok(complete_counts(rows.collect::<Result<Vec<_>, _>>()?))
}

/// The number of runs with each mark.
pub(crate) fn mark_counts(connection: &Connection) -> Result<MarkCounts, Refusal> {
    let mut statement = connection.prepare_cached(sql::MARK_COUNTS)?;
    let rows = statement.query_map([], |row| Ok((marks(row, 0)?, number(row, 1)?)))?;
    Ok(count_marks(rows.collect::<Result<Vec<_>, _>>()?))
}

/// The number of runs with each flag.
pub(crate) fn flag_counts(connection: &Connection) -> Result<FlagCounts, Refusal> {
    let mut statement = connection.prepare_cached(sql::FLAG_COUNTS)?;
    let counts = statement
        .query_row([FLAG_COUNT_MAX as i64], |row| Ok(FlagCounts::new(number(row, 0)?, number(row, 1)?)));
    Ok(counts?)
}

/// The views of these runs. Runs that do not exist are left out.
pub(crate) fn runs_by_id(connection: &Connection, runs: &[RunId]) -> Result<Vec<RunView>, Refusal> {
    let mut statement = connection.prepare_cached(&sql::RUN_VIEW)?;
    let mut views = Vec::with_capacity(runs.len());
    for run in runs {
        views.extend(statement.query_row([run.to_string()], run_view).optional()?);
    }
    Ok(views)
}

/// The number of events in the history of a run.
pub(crate) fn event_count(connection: &Connection, run: RunId) -> Result<u64, Refusal> {
    let mut statement = connection.prepare_cached(sql::RUN_POSITION)?;
    let counts = statement
        .query_row([run.to_string()], |row| Ok((number::<u64>(row, 2)?, number_or_null::<u64>(row, 5)?)))
        .optional()?;
    let (of_row, of_last_turn) = counts.ok_or_else(|| no_run(run))?;
    Ok(of_row.max(of_last_turn.unwrap_or_default()))
}

/// The joined workers.
pub(crate) fn workers(connection: &Connection) -> Result<Vec<WorkerView>, Refusal> {
    let mut statement = connection.prepare_cached(sql::WORKERS)?;
    let rows = statement.query_map([], |row| {
        let code: Vec<(String, u32)> = json(row, 7)?;
        let code = code.into_iter().map(|(workflow, version)| Code { workflow: workflow.into(), version });
        let mut view = WorkerView::of_session(parsed(row, 0)?);
        view.host = row.get(1)?;
        view.pid = number(row, 2)?;
        view.build = row.get(3)?;
        view.joined_at = timestamp(row, 4)?;
        view.beat_at = timestamp(row, 9)?;
        view.expires_at = timestamp(row, 5)?;
        view.held = number(row, 6)?;
        view.code = code.collect();
        view.queues = json(row, 8)?;
        view.report = Report::from_json(row.get_ref(10)?.as_str()?);
        view.version = row.get(11)?;
        view.format = number(row, 12)?;
        Ok(view)
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
