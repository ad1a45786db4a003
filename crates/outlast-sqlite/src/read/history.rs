//! Histories and inboxes.

use std::path::Path;

use outlast_core::limits::INBOX_READ_MAX;
use outlast_core::refusal::no_run;
use outlast_core::{Message, RunId, TurnRecord, WorldError};
use rusqlite::{Connection, Error, OptionalExtension, params};

use crate::connection::error::{Refusal, from_sqlite};
use crate::schema::row::{number, number_or_null, to_i64, turn_record};
use crate::schema::sql;
use crate::write::message::read_message;

/// The messages of a run after a position.
pub(crate) fn inbox(connection: &Connection, run: RunId, after: u64) -> Result<Vec<Message>, Error> {
    let mut statement = connection.prepare_cached(sql::INBOX_READ)?;
    let params = params![run.to_string(), to_i64(after), INBOX_READ_MAX as i64];
    statement.query_map(params, read_message)?.collect()
}

/// At most `limit` turns of a run's history, beginning with event `from`.
pub(crate) fn history(
    connection: &Connection,
    run: RunId,
    from: u64,
    limit: i64,
) -> Result<Vec<TurnRecord>, Error> {
    let mut statement = connection.prepare_cached(sql::HISTORY)?;
    statement.query_map(params![run.to_string(), to_i64(from), limit], turn_record)?.collect()
}

/// At most `limit` turns of a run's history, beginning with the turn that contains event `from`.
pub(crate) fn history_containing(
    connection: &Connection,
    run: RunId,
    from: u64,
    limit: i64,
) -> Result<Vec<TurnRecord>, Error> {
    let mut statement = connection.prepare_cached(sql::TURN_WITH_EVENT)?;
    let params = params![run.to_string(), to_i64(from)];
    let first: Option<u64> = statement.query_row(params, |row| number_or_null(row, 0))?;
    let mut turns = history(connection, run, first.unwrap_or(from), limit)?;
    // If the history ends before `from`, the last turn was read, which does not contain that event.
    turns.retain(|turn| turn.seq + turn.events.len() as u64 > from);
    Ok(turns)
}

/// The part of a run's history that a replay needs. If this build cannot read it, the inner result is an error, so that
/// a query for several runs continues.
pub(crate) fn replayed_history(
    connection: &Connection,
    run: RunId,
    path: &Path,
) -> Result<Result<Vec<TurnRecord>, WorldError>, Refusal> {
    let mut statement = connection.prepare_cached(sql::RUN_EXISTS)?;
    let from: Option<u64> = statement.query_row([run.to_string()], |row| number(row, 1)).optional()?;
    let Some(from) = from else { return Ok(Err(no_run(run))) };
    match history(connection, run, from, i64::MAX) {
        Ok(history) => Ok(Ok(history)),
        Err(error) if error.sqlite_error_code().is_none() => Ok(Err(from_sqlite(&error, path))),
        Err(error) => Err(error.into()),
    }
}

/// The number of messages that a run has consumed; `None` if the run does not exist.
pub(crate) fn consumed(connection: &Connection, run: RunId) -> Result<Option<u64>, Error> {
    let mut statement = connection.prepare_cached(sql::RUN_EXISTS)?;
    statement.query_row([run.to_string()], |row| number(row, 0)).optional()
}
