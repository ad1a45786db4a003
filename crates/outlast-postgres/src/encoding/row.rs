//! Reading values from rows of the database.

use std::str::FromStr;
use std::sync::Arc;

use outlast_core::sql::UnreadableColumn;
use outlast_core::{Event, Marks, OpNumber, Parent, RunView, Stuck, StuckReason, Timestamp, TurnRecord};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::encoding::text::unescape_nul;
use crate::schema::holder_columns;

/// Why a row cannot be read.
#[derive(Debug)]
pub(crate) struct InvalidRow(String);

impl std::fmt::Display for InvalidRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<UnreadableColumn> for InvalidRow {
    fn from(error: UnreadableColumn) -> Self {
        Self(error.to_string())
    }
}

/// The error for an invalid value in a column.
pub(crate) fn invalid_column(column: usize, why: impl std::fmt::Display) -> InvalidRow {
    InvalidRow(format!("column {column}: {why}"))
}

/// The value of a column.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, InvalidRow> {
    row.try_get(column).map_err(|error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        invalid_column(column, why)
    })
}

/// An id, a status, or another type that is parsed from text.
pub(crate) fn parsed<T: FromStr<Err: std::fmt::Display>>(row: &Row, column: usize) -> Result<T, InvalidRow> {
    get::<&str>(row, column)?.parse().map_err(|error| invalid_column(column, error))
}

/// As [`parsed`], for a nullable column.
pub(crate) fn maybe_parsed<T: FromStr<Err: std::fmt::Display>>(
    row: &Row,
    column: usize,
) -> Result<Option<T>, InvalidRow> {
    let text = get::<Option<&str>>(row, column)?;
    text.map(|text| text.parse().map_err(|error| invalid_column(column, error))).transpose()
}

/// A number that is never negative.
pub(crate) fn number<T: TryFrom<i64>>(row: &Row, column: usize) -> Result<T, InvalidRow> {
    let value: i64 = get(row, column)?;
    T::try_from(value).map_err(|_| invalid_column(column, format!("{value} is out of range")))
}

/// As [`number`], for a nullable column.
pub(crate) fn maybe_number<T: TryFrom<i64>>(row: &Row, column: usize) -> Result<Option<T>, InvalidRow> {
    let value: Option<i64> = get(row, column)?;
    let in_range =
        |value| T::try_from(value).map_err(|_| invalid_column(column, format!("{value} is out of range")));
    value.map(in_range).transpose()
}

/// A timestamp, stored in microseconds.
pub(crate) fn timestamp(row: &Row, column: usize) -> Result<Timestamp, InvalidRow> {
    get(row, column).map(Timestamp::from_micros)
}

/// As [`timestamp`], for a nullable column.
pub(crate) fn maybe_timestamp(row: &Row, column: usize) -> Result<Option<Timestamp>, InvalidRow> {
    Ok(get::<Option<i64>>(row, column)?.map(Timestamp::from_micros))
}

/// A text that a user chose; NUL is unescaped.
pub(crate) fn text(row: &Row, column: usize) -> Result<String, InvalidRow> {
    Ok(unescape_nul(get(row, column)?).into_owned())
}

/// As [`text`], for a nullable column.
pub(crate) fn maybe_text(row: &Row, column: usize) -> Result<Option<String>, InvalidRow> {
    Ok(get::<Option<&str>>(row, column)?.map(|text| unescape_nul(text).into_owned()))
}

/// A value that is stored as JSON.
pub(crate) fn json<T: serde::de::DeserializeOwned>(row: &Row, column: usize) -> Result<T, InvalidRow> {
    serde_json::from_str(get(row, column)?).map_err(|error| invalid_column(column, error))
}

/// A number as Postgres stores it. Numbers of events and messages never come near the maximum of `i64`.
pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A duration in microseconds.
pub(crate) fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Reads the columns of `run_views.sql`, `run_by_key.sql` and `runs_page.sql`.
pub(crate) fn run_view(row: &Row) -> Result<RunView, InvalidRow> {
    let columns = holder_columns::read(row, 25)?;
    let (names, values): (Vec<&str>, Vec<&str>) = (get(row, 17)?, get(row, 18)?);
    let tags = names.into_iter().zip(values);
    let mut view = RunView::of_columns(parsed(row, 0)?, parsed(row, 4)?, &columns);
    view.workflow = text(row, 1)?.into();
    view.version = number(row, 2)?;
    view.key = maybe_text(row, 3)?;
    view.owner = maybe_parsed(row, 5)?;
    view.created_at = timestamp(row, 6)?;
    view.updated_at = timestamp(row, 7)?;
    view.ended_at = maybe_timestamp(row, 8)?;
    view.wake_at = maybe_timestamp(row, 9)?;
    view.waits = json(row, 10)?;
    view.sent = number(row, 11)?;
    view.consumed = number(row, 12)?;
    view.is_cancel_requested = get(row, 21)?;
    view.format = get::<i32>(row, 22)?.unsigned_abs();
    view.retry_at = maybe_timestamp(row, 23)?;
    view.marks = marks(row, 24)?;
    view.parent = parent(row)?;
    view.queue = text(row, 19)?.into();
    view.priority = get::<i16>(row, 20)?.unsigned_abs() as u8;
    view.tags = tags
        .map(|(name, value)| (unescape_nul(name).into_owned(), unescape_nul(value).into_owned()))
        .collect();
    Ok(view)
}

/// The marks of a run.
pub(crate) fn marks(row: &Row, column: usize) -> Result<Marks, InvalidRow> {
    Ok(Marks::from_bits(get::<i32>(row, column)?.cast_unsigned()))
}

/// Reads why a run is stuck, or was stuck when it was claimed: the columns with reason, message and build, of which the
/// first is `column`.
pub(crate) fn stuck(row: &Row, column: usize) -> Result<Option<Stuck>, InvalidRow> {
    let Some(reason) = get::<Option<&str>>(row, column)?.map(StuckReason::of_stored_name) else {
        return Ok(None);
    };
    Ok(Some(Stuck::new(reason, text(row, column + 1)?).in_build(text(row, column + 2)?)))
}

fn parent(row: &Row) -> Result<Option<Parent>, InvalidRow> {
    let Some(run) = maybe_parsed(row, 13)? else { return Ok(None) };
    let (op, awaits) = (OpNumber(number(row, 14)?), get(row, 15)?);
    Ok(Some(Parent { run, op, root: parsed(row, 16)?, awaits }))
}

/// Reads the columns of `history.sql` and `histories.sql`.
pub(crate) fn turn_record(row: &Row) -> Result<TurnRecord, InvalidRow> {
    let seq = number(row, 1)?;
    // The error names the event itself.
    let events = Event::read_turn(get(row, 4)?, seq).map_err(|error| InvalidRow(error.to_string()))?;
    let build: Arc<str> = text(row, 3)?.into();
    Ok(TurnRecord { id: parsed(row, 0)?, seq, at: timestamp(row, 2)?, build, events })
}
