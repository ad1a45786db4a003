//! Looking at runs: one, a page, the counts, the workers.

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::refusal::no_run;
use outlast_core::{Counts, Order, Page, RunId, RunQuery, RunView, Status, WorkerView};
use rusqlite::{Connection, Error, OptionalExtension, params};

use crate::error::Refusal;
use crate::row::{moment, number, run_view, word};
use crate::sql;

/// A run as the outside sees it.
pub(crate) fn run(connection: &Connection, run: RunId) -> Result<RunView, Refusal> {
    let mut statement = connection.prepare_cached(sql::RUN_VIEW)?;
    let view = statement.query_row([run.to_string()], run_view).optional()?;
    view.ok_or_else(|| no_run(run).into())
}

/// A page of runs. Each status is read from its own index, and the lists are merged by id.
pub(crate) fn page(connection: &Connection, query: &RunQuery) -> Result<Page, Refusal> {
    if let Some(key) = &query.key {
        return Ok(Page {
            runs: named(connection, key)?.into_iter().filter(|run| query.wants(run)).collect(),
            next: None,
        });
    }
    let limit = query.limit.min(PAGE_RUNS_MAX);
    let mut runs = Vec::new();
    if query.statuses.is_empty() {
        read_page(connection, query, None, limit, &mut runs)?;
    }
    let mut statuses = query.statuses.clone();
    statuses.sort_unstable();
    statuses.dedup();
    for status in statuses {
        read_page(connection, query, Some(status), limit, &mut runs)?;
    }
    match query.order {
        Order::NewestFirst => runs.sort_by_key(|run| std::cmp::Reverse(run.id)),
        Order::OldestFirst => runs.sort_by_key(|run| run.id),
    }
    let has_more = runs.len() > limit;
    runs.truncate(limit);
    let next = if has_more { runs.last().map(|run| run.id) } else { None };
    Ok(Page { runs, next })
}

/// The run that a key names.
fn named(connection: &Connection, key: &str) -> Result<Option<RunView>, Refusal> {
    let mut statement = connection.prepare_cached(sql::RUN_BY_KEY)?;
    let id = statement.query_row([key], |row| word::<RunId>(row, 0)).optional()?;
    id.map(|id| run(connection, id)).transpose()
}

fn read_page(
    connection: &Connection,
    query: &RunQuery,
    status: Option<Status>,
    limit: usize,
    runs: &mut Vec<RunView>,
) -> Result<(), Error> {
    let (order, behind) = match query.order {
        Order::NewestFirst => ("DESC", "id < ?2"),
        Order::OldestFirst => ("ASC", "id > ?2"),
    };
    let mut filters = vec![
        // An unused parameter is an error in SQLite, so a missing one is a filter that is always true.
        if query.after.is_some() { behind.to_owned() } else { "?2 IS NULL".into() },
        match (&query.workflow, status) {
            (None, _) => "?3 IS NULL".into(),
            (Some(_), None | Some(Status::Completed)) => "workflow = ?3".into(),
            // The plus keeps SQLite from the workflow's index: the status has the shorter list.
            (Some(_), Some(_)) => "+workflow = ?3".into(),
        },
    ];
    if let Some(status) = status {
        filters.push(format!("status = '{status}'"));
        if status != Status::Completed {
            // Repeats the condition of the index, which SQLite does not derive by itself.
            filters.push("status <> 'completed'".into());
        }
    }
    let sql = sql::RUNS_PAGE.replace("{filters}", &filters.join(" AND ")).replace("{order}", order);
    let mut statement = connection.prepare_cached(&sql)?;
    let after = query.after.map(|run| run.to_string());
    let rows = statement.query_map(params![limit as i64 + 1, after, query.workflow.as_deref()], run_view)?;
    for run in rows {
        runs.push(run?);
    }
    Ok(())
}

/// How many runs are in each status.
pub(crate) fn counts(connection: &Connection) -> Result<Counts, Refusal> {
    let mut statement = connection.prepare_cached(sql::COUNTS)?;
    let rows = statement.query_map([], |row| Ok((word(row, 0)?, number(row, 1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The joined workers.
pub(crate) fn workers(connection: &Connection) -> Result<Vec<WorkerView>, Refusal> {
    let mut statement = connection.prepare_cached(sql::WORKERS)?;
    let rows = statement.query_map([], |row| {
        Ok(WorkerView {
            session: word(row, 0)?,
            host: row.get(1)?,
            pid: number(row, 2)?,
            build: row.get(3)?,
            joined_at: moment(row, 4)?,
            expires_at: moment(row, 5)?,
            held: number(row, 6)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
