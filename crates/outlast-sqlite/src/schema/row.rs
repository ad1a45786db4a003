//! The conversion of column values.

use std::str::FromStr;
use std::sync::Arc;

use outlast_core::{
    Event, FailedBuilds, Marks, OpNumber, Parent, Readiness, RunView, Stuck, StuckReason, Tags, Timestamp,
    TurnRecord,
};
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Error, Row};

use crate::schema::columns;

/// The error of a column whose value no world has written.
pub(crate) fn invalid_column(
    column: usize,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

/// A text that is parsed: an id or a status.
pub(crate) fn parsed<T>(row: &Row<'_>, column: usize) -> Result<T, Error>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    row.get_ref(column)?.as_str()?.parse().map_err(|error: T::Err| invalid_column(column, error))
}

/// A text that is parsed, or NULL.
pub(crate) fn parsed_or_null<T>(row: &Row<'_>, column: usize) -> Result<Option<T>, Error>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    if matches!(row.get_ref(column)?, ValueRef::Null) { Ok(None) } else { parsed(row, column).map(Some) }
}

/// A text, or NULL.
pub(crate) fn text_or_null<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>, Error> {
    Ok(row.get_ref(column)?.as_str_or_null()?)
}

/// A number that is not negative.
pub(crate) fn number<T: TryFrom<i64>>(row: &Row<'_>, column: usize) -> Result<T, Error> {
    let value: i64 = row.get(column)?;
    T::try_from(value).map_err(|_| Error::IntegralValueOutOfRange(column, value))
}

/// A number that is not negative, or NULL.
pub(crate) fn number_or_null<T: TryFrom<i64>>(row: &Row<'_>, column: usize) -> Result<Option<T>, Error> {
    if matches!(row.get_ref(column)?, ValueRef::Null) { Ok(None) } else { number(row, column).map(Some) }
}

/// A time in microseconds since 1970.
pub(crate) fn timestamp(row: &Row<'_>, column: usize) -> Result<Timestamp, Error> {
    row.get(column).map(Timestamp::from_micros)
}

/// A time in microseconds since 1970, or NULL.
pub(crate) fn timestamp_or_null(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>, Error> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_micros))
}

/// A number in the type that SQLite stores. Numbers of events and messages are far below the limit of `i64`.
pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads the columns of `run_view.sql` and `runs_page.sql`.
pub(crate) fn run_view(row: &Row<'_>) -> Result<RunView, Error> {
    let columns = columns::read(row, 24)?;
    let mut view = RunView::of_columns(parsed(row, 0)?, parsed(row, 4)?, &columns);
    view.workflow = row.get(1)?;
    view.version = number(row, 2)?;
    view.queue = row.get(17)?;
    view.priority = number(row, 18)?;
    view.key = row.get(3)?;
    view.owner = parsed_or_null(row, 5)?;
    view.created_at = timestamp(row, 6)?;
    view.updated_at = timestamp(row, 7)?;
    view.ended_at = timestamp_or_null(row, 8)?;
    view.wake_at = timestamp_or_null(row, 9)?;
    view.waits = json(row, 10)?;
    view.sent = number(row, 11)?;
    view.consumed = number(row, 12)?;
    view.is_cancel_requested = row.get(20)?;
    view.format = number(row, 19)?;
    view.retry_at = timestamp_or_null(row, 22)?;
    view.marks = marks(row, 23)?;
    view.parent = parent(row)?;
    view.tags = json::<Vec<(String, String)>>(row, 21)?.into_iter().collect::<Tags>();
    Ok(view)
}

/// The marks of a run.
pub(crate) fn marks(row: &Row<'_>, column: usize) -> Result<Marks, Error> {
    number(row, column).map(Marks::from_bits)
}

/// Why a run is stuck, or was stuck when it was claimed. Reads three columns: the reason, the message and the build.
pub(crate) fn stuck(row: &Row<'_>, column: usize) -> Result<Option<Stuck>, Error> {
    let Some(reason) = text_or_null(row, column)?.map(StuckReason::of_stored_name) else { return Ok(None) };
    Ok(Some(
        Stuck::new(reason, row.get::<_, String>(column + 1)?).in_build(row.get::<_, String>(column + 2)?),
    ))
}

/// The builds that could not continue a run. Reads two columns: the list and its event number.
pub(crate) fn failed_builds(row: &Row<'_>, column: usize) -> Result<FailedBuilds, Error> {
    let text = row.get_ref(column)?.as_str()?;
    if text.is_empty() {
        return Ok(FailedBuilds::default());
    }
    Ok(FailedBuilds::from_stored(number(row, column + 1)?, text))
}

/// The ready times from which a statement chooses one: if all messages are read, if some are unread, if the run can be
/// ended without its code, and if it is paused.
pub(crate) fn ready_times(ready: Readiness, now: Timestamp) -> [Option<i64>; 4] {
    [ready.if_read, ready.if_unread, ready.if_can_end, ready.if_paused]
        .map(|at| at.moment(now).map(Timestamp::as_micros))
}

fn parent(row: &Row<'_>) -> Result<Option<Parent>, Error> {
    let Some(run) = parsed_or_null(row, 13)? else { return Ok(None) };
    let (op, awaits) = (OpNumber(number(row, 14)?), row.get(15)?);
    Ok(Some(Parent { run, op, root: parsed(row, 16)?, awaits }))
}

/// Reads the columns of `history.sql`.
pub(crate) fn turn_record(row: &Row<'_>) -> Result<TurnRecord, Error> {
    let seq = number(row, 1)?;
    let events =
        Event::read_turn(row.get_ref(4)?.as_str()?, seq).map_err(|error| invalid_column(4, error))?;
    let build: Arc<str> = row.get(3)?;
    Ok(TurnRecord { id: parsed(row, 0)?, seq, at: timestamp(row, 2)?, build, events })
}

/// A value that is stored as JSON.
pub(crate) fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T, Error> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|error| invalid_column(column, error))
}
