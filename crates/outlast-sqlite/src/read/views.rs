//! Views: one run, the counts, the workers.

use outlast_core::refusal::no_run;
use outlast_core::{Code, Counts, Report, RunId, RunView, WorkerView, complete_counts};
use rusqlite::{Connection, OptionalExtension};

use crate::connection::error::Refusal;
use crate::schema::row::{number, parse_json, parsed, run_view, timestamp};
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

/// The joined workers.
pub(crate) fn workers(connection: &Connection) -> Result<Vec<WorkerView>, Refusal> {
    let mut statement = connection.prepare_cached(sql::WORKERS)?;
    let rows = statement.query_map([], |row| {
        let code: Vec<(String, u32)> = parse_json(7, row.get_ref(7)?.as_str()?)?;
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
        view.queues = parse_json(8, row.get_ref(8)?.as_str()?)?;
        view.report = Report::from_json(row.get_ref(10)?.as_str()?);
        view.version = row.get(11)?;
        Ok(view)
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
