//! Rows to values and back.

use std::str::FromStr;
use std::sync::Arc;

use outlast_core::{Event, OpNumber, Parent, RunView, Stuck, Timestamp, TurnRecord};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::columns;
use crate::text::plain;

/// Why a row is not one that a world wrote.
#[derive(Debug)]
pub(crate) struct Damaged(String);

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value that no world wrote at this column.
pub(crate) fn damaged(column: usize, why: impl std::fmt::Display) -> Damaged {
    Damaged(format!("column {column}: {why}"))
}

/// A column as it is.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, Damaged> {
    row.try_get(column).map_err(|error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        damaged(column, why)
    })
}

/// An id, a status, or whatever else is written as one word.
pub(crate) fn word<T: FromStr<Err: std::fmt::Display>>(row: &Row, column: usize) -> Result<T, Damaged> {
    get::<&str>(row, column)?.parse().map_err(|error| damaged(column, error))
}

/// The same, where there may be none.
pub(crate) fn maybe_word<T: FromStr<Err: std::fmt::Display>>(
    row: &Row,
    column: usize,
) -> Result<Option<T>, Damaged> {
    let text = get::<Option<&str>>(row, column)?;
    text.map(|text| text.parse().map_err(|error| damaged(column, error))).transpose()
}

/// A number that is never negative.
pub(crate) fn number<T: TryFrom<i64>>(row: &Row, column: usize) -> Result<T, Damaged> {
    let value: i64 = get(row, column)?;
    T::try_from(value).map_err(|_| damaged(column, format!("{value} is out of range")))
}

/// A number, where there may be none.
pub(crate) fn maybe_number<T: TryFrom<i64>>(row: &Row, column: usize) -> Result<Option<T>, Damaged> {
    let value: Option<i64> = get(row, column)?;
    let in_range =
        |value| T::try_from(value).map_err(|_| damaged(column, format!("{value} is out of range")));
    value.map(in_range).transpose()
}

/// A moment.
pub(crate) fn moment(row: &Row, column: usize) -> Result<Timestamp, Damaged> {
    get(row, column).map(Timestamp::from_micros)
}

/// A moment, where there may be none.
pub(crate) fn maybe_moment(row: &Row, column: usize) -> Result<Option<Timestamp>, Damaged> {
    Ok(get::<Option<i64>>(row, column)?.map(Timestamp::from_micros))
}

/// A text that a user chose.
pub(crate) fn text(row: &Row, column: usize) -> Result<String, Damaged> {
    Ok(plain(get(row, column)?).into_owned())
}

/// The same, where there may be none.
pub(crate) fn maybe_text(row: &Row, column: usize) -> Result<Option<String>, Damaged> {
    Ok(get::<Option<&str>>(row, column)?.map(|text| plain(text).into_owned()))
}

/// A value that is stored as JSON.
pub(crate) fn json<T: serde::de::DeserializeOwned>(row: &Row, column: usize) -> Result<T, Damaged> {
    serde_json::from_str(get(row, column)?).map_err(|error| damaged(column, error))
}

/// A number as Postgres stores it. Numbers of events and messages never come near the end of `i64`.
pub(crate) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A duration in microseconds.
pub(crate) fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The columns of `run_view.sql` and `runs_page.sql`.
pub(crate) fn run_view(row: &Row) -> Result<RunView, Damaged> {
    let columns = columns::read(row, 24)?;
    let (names, values): (Vec<&str>, Vec<&str>) = (get(row, 17)?, get(row, 18)?);
    let tags = names.into_iter().zip(values);
    Ok(RunView {
        workflow: text(row, 1)?.into(),
        version: number(row, 2)?,
        key: maybe_text(row, 3)?,
        owner: maybe_word(row, 5)?,
        created_at: moment(row, 6)?,
        updated_at: moment(row, 7)?,
        ended_at: maybe_moment(row, 8)?,
        wake_at: maybe_moment(row, 9)?,
        waits: json(row, 10)?,
        sent: number(row, 11)?,
        consumed: number(row, 12)?,
        is_cancel_requested: get(row, 21)?,
        format: get::<i32>(row, 22)?.unsigned_abs(),
        retry_at: maybe_moment(row, 23)?,
        parent: parent(row)?,
        queue: text(row, 19)?.into(),
        priority: get::<i16>(row, 20)?.unsigned_abs() as u8,
        tags: tags.map(|(name, value)| (plain(name).into_owned(), plain(value).into_owned())).collect(),
        ..RunView::of_columns(word(row, 0)?, word(row, 4)?, &columns)
    })
}

/// Why a run is stuck, or was when it was claimed: the columns of the reason, the message and the build.
pub(crate) fn stuck(row: &Row, column: usize) -> Result<Option<Stuck>, Damaged> {
    let Some(reason) = get::<Option<&str>>(row, column)? else { return Ok(None) };
    let reason = serde_json::from_str(&format!("\"{reason}\"")).map_err(|error| damaged(column, error))?;
    Ok(Some(Stuck { reason, message: text(row, column + 1)?, build: text(row, column + 2)? }))
}

fn parent(row: &Row) -> Result<Option<Parent>, Damaged> {
    let Some(run) = maybe_word(row, 13)? else { return Ok(None) };
    let (op, awaits) = (OpNumber(number(row, 14)?), get(row, 15)?);
    Ok(Some(Parent { run, op, root: word(row, 16)?, awaits }))
}

/// The columns of `history.sql` and `histories.sql`.
pub(crate) fn turn(row: &Row) -> Result<TurnRecord, Damaged> {
    let seq = number(row, 1)?;
    // The error says itself which event it is.
    let events = Event::read_turn(get(row, 4)?, seq).map_err(|error| Damaged(error.to_string()))?;
    let build: Arc<str> = text(row, 3)?.into();
    Ok(TurnRecord { id: word(row, 0)?, seq, at: moment(row, 2)?, build, events })
}

/// The reason of a stuck run as its bare word.
pub(crate) fn reason(stuck: &Stuck) -> String {
    let text = serde_json::to_string(&stuck.reason).unwrap_or_default();
    text.trim_matches('"').to_owned()
}
