//! Histories and inboxes.

use std::collections::HashMap;

use outlast_core::limits::{HISTORY_TURNS_READ_MAX, INBOX_READ_MAX};
use outlast_core::refusal::{check_histories, no_run};
use outlast_core::{Message, RunId, TurnRecord, WorldError};
use tokio_postgres::Row;

use crate::connection::database::Database;
use crate::encoding::message::read_message;
use crate::encoding::row::{get, number, to_i64, turn_record};
use crate::error::corrupt_error;

/// The number of messages of one run that are read at once.
pub(crate) const INBOX_ROWS_MAX: i64 = INBOX_READ_MAX as i64;

/// The parts of histories that replays need. A history that cannot be read is an error for its run alone.
pub(crate) async fn histories(
    database: &Database,
    runs: &[RunId],
) -> Result<Vec<Result<Vec<TurnRecord>, WorldError>>, WorldError> {
    check_histories(runs.len())?;
    let ids: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let rows = database.call(&database.sql.histories, &[&ids]).await?;
    let mut turns: HashMap<&str, Vec<&Row>> = HashMap::new();
    for row in &rows {
        turns.entry(get(row, 5).map_err(|why| corrupt_error(&database.place, &why))?).or_default().push(row);
    }
    let read = |run: &RunId| {
        let rows = turns.get(run.to_string().as_str()).ok_or_else(|| no_run(*run))?;
        let turns: Result<Vec<_>, _> = rows.iter().map(|row| turn_record(row)).collect();
        turns.map_err(|why| corrupt_error(&database.place, &why))
    };
    Ok(runs.iter().map(read).collect())
}

/// A part of a run's history, from the turn that contains event `from` on.
pub(crate) async fn history(
    database: &Database,
    run: RunId,
    from: u64,
    limit: usize,
) -> Result<Vec<TurnRecord>, WorldError> {
    let limit = limit.min(HISTORY_TURNS_READ_MAX) as i64;
    let rows =
        database.call(&database.sql.history_containing, &[&run.to_string(), &to_i64(from), &limit]).await?;
    let turns: Result<Vec<_>, _> = rows.iter().map(turn_record).collect();
    turns.map_err(|why| corrupt_error(&database.place, &why))
}

/// The number of events in the history of a run; `None` if the run does not exist.
pub(crate) async fn event_count(database: &Database, run: RunId) -> Result<Option<u64>, WorldError> {
    let rows = database.call(&database.sql.event_count, &[&run.to_string()]).await?;
    let count = rows.first().map(|row| number(row, 0)).transpose();
    count.map_err(|why| corrupt_error(&database.place, &why))
}

/// The messages of a run after a position.
pub(crate) async fn inbox(database: &Database, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
    let rows = database
        .call(&database.sql.inboxes, &[&vec![run.to_string()], &vec![to_i64(after)], &INBOX_ROWS_MAX])
        .await?;
    let messages: Result<Vec<_>, _> = rows.iter().map(read_message).collect();
    messages.map_err(|why| corrupt_error(&database.place, &why))
}

/// The number of messages that a run has consumed; `None` if the run does not exist.
pub(crate) async fn consumed(database: &Database, run: RunId) -> Result<Option<u64>, WorldError> {
    let rows = database.call(&database.sql.run_exists, &[&run.to_string()]).await?;
    let consumed = rows.first().map(|row| number(row, 0)).transpose();
    consumed.map_err(|why| corrupt_error(&database.place, &why))
}
