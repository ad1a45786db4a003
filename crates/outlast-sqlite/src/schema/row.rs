//! Rows to values and back.

use std::str::FromStr;
use std::sync::Arc;

use outlast_core::{
    Event, FailedBuilds, OpNumber, Parent, Readiness, RunView, Stuck, Tags, Timestamp, TurnRecord,
};
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Error, Row};

use crate::schema::columns;

/// A value that no world wrote at this column.
pub(crate) fn damaged(column: usize, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

/// An id, a status, or whatever else is written as one word.
pub(crate) fn word<T>(row: &Row<'_>, column: usize) -> Result<T, Error>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    row.get_ref(column)?.as_str()?.parse().map_err(|error: T::Err| damaged(column, error))
}

/// The same, where there may be none.
pub(crate) fn maybe_word<T>(row: &Row<'_>, column: usize) -> Result<Option<T>, Error>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    if matches!(row.get_ref(column)?, ValueRef::Null) { Ok(None) } else { word(row, column).map(Some) }
}

/// A number that is never negative.
pub(crate) fn number<T: TryFrom<i64>>(row: &Row<'_>, column: usize) -> Result<T, Error> {
    let value: i64 = row.get(column)?;
    T::try_from(value).map_err(|_| Error::IntegralValueOutOfRange(column, value))
}

/// A number, where there may be none.
pub(crate) fn maybe_number<T: TryFrom<i64>>(row: &Row<'_>, column: usize) -> Result<Option<T>, Error> {
    if matches!(row.get_ref(column)?, ValueRef::Null) { Ok(None) } else { number(row, column).map(Some) }
}

/// A moment.
pub(crate) fn moment(row: &Row<'_>, column: usize) -> Result<Timestamp, Error> {
    row.get(column).map(Timestamp::from_micros)
}

/// A moment, where there may be none.
pub(crate) fn maybe_moment(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>, Error> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_micros))
}

/// A number as SQLite stores it. Numbers of events and messages never come near the end of `i64`.
pub(crate) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The columns of `run_view.sql` and `runs_page.sql`.
pub(crate) fn run_view(row: &Row<'_>) -> Result<RunView, Error> {
    let columns = columns::read(row, 23)?;
    Ok(RunView {
        workflow: row.get(1)?,
        version: number(row, 2)?,
        queue: row.get(17)?,
        priority: number(row, 18)?,
        key: row.get(3)?,
        owner: maybe_word(row, 5)?,
        created_at: moment(row, 6)?,
        updated_at: moment(row, 7)?,
        ended_at: maybe_moment(row, 8)?,
        wake_at: maybe_moment(row, 9)?,
        waits: json(10, row.get_ref(10)?.as_str()?)?,
        sent: number(row, 11)?,
        consumed: number(row, 12)?,
        is_cancel_requested: row.get(20)?,
        format: number(row, 19)?,
        retry_at: maybe_moment(row, 22)?,
        parent: parent(row)?,
        tags: json::<Vec<(String, String)>>(21, row.get_ref(21)?.as_str()?)?.into_iter().collect::<Tags>(),
        ..RunView::of_columns(word(row, 0)?, word(row, 4)?, &columns)
    })
}

/// Why a run is stuck, or was when it was claimed: the columns of reason, message and build.
pub(crate) fn stuck(row: &Row<'_>, column: usize) -> Result<Option<Stuck>, Error> {
    let ValueRef::Text(reason) = row.get_ref(column)? else { return Ok(None) };
    let reason = std::str::from_utf8(reason).unwrap_or_default();
    let reason = json(column, reason)?;
    Ok(Some(Stuck { reason, message: row.get(column + 1)?, build: row.get(column + 2)? }))
}

/// The builds that could not continue a run: the columns of the list and its event number.
pub(crate) fn failed_builds(row: &Row<'_>, column: usize) -> Result<FailedBuilds, Error> {
    let text = row.get_ref(column)?.as_str()?;
    if text.is_empty() {
        return Ok(FailedBuilds::default());
    }
    Ok(FailedBuilds::from_stored(number(row, column + 1)?, text))
}

/// The ready times of which a statement stores one: if all is read, if something is unread, if the run can be ended
/// without its code.
pub(crate) fn ready_times(ready: Readiness, now: Timestamp) -> [Option<i64>; 3] {
    [ready.if_read, ready.if_unread, ready.if_can_end].map(|at| at.moment(now).map(Timestamp::as_micros))
}

fn parent(row: &Row<'_>) -> Result<Option<Parent>, Error> {
    let Some(run) = maybe_word(row, 13)? else { return Ok(None) };
    let (op, awaits) = (OpNumber(number(row, 14)?), row.get(15)?);
    Ok(Some(Parent { run, op, root: word(row, 16)?, awaits }))
}

/// The columns of `history.sql`.
pub(crate) fn turn(row: &Row<'_>) -> Result<TurnRecord, Error> {
    let seq = number(row, 1)?;
    let events = Event::read_turn(row.get_ref(4)?.as_str()?, seq).map_err(|error| damaged(4, error))?;
    let build: Arc<str> = row.get(3)?;
    Ok(TurnRecord { id: word(row, 0)?, seq, at: moment(row, 2)?, build, events })
}

/// A value that is stored as JSON, or as its bare word.
pub(crate) fn json<T: serde::de::DeserializeOwned>(column: usize, text: &str) -> Result<T, Error> {
    // A reason is stored as the bare word, so that it reads well in SQL.
    let quoted;
    let text = if text.starts_with(['[', '{']) {
        text
    } else {
        quoted = format!("\"{text}\"");
        &quoted
    };
    serde_json::from_str(text).map_err(|error| damaged(column, error))
}

/// The reason of a stuck run as its bare word.
pub(crate) fn reason(stuck: &Stuck) -> String {
    let text = serde_json::to_string(&stuck.reason).unwrap_or_default();
    text.trim_matches('"').to_owned()
}
