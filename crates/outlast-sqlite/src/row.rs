//! Rows to values and back.

use std::str::FromStr;
use std::sync::Arc;

use outlast_core::{
    Event, Headers, Message, MessageBody, Payload, RunView, Stuck, StuckReason, Timestamp, TurnRecord,
};
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Error, Row};

/// A value that no world wrote at this column.
fn damaged(column: usize, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
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
    let stuck = match row.get_ref(14)? {
        ValueRef::Null => None,
        reason => Some(Stuck {
            reason: json::<StuckReason>(14, reason.as_str()?)?,
            message: row.get(15)?,
            build: row.get(16)?,
        }),
    };
    Ok(RunView {
        id: word(row, 0)?,
        workflow: row.get(1)?,
        version: number(row, 2)?,
        key: row.get(3)?,
        status: word(row, 4)?,
        owner: maybe_word(row, 5)?,
        created_at: moment(row, 6)?,
        updated_at: moment(row, 7)?,
        ended_at: maybe_moment(row, 8)?,
        wake_at: maybe_moment(row, 9)?,
        waits: json(10, row.get_ref(10)?.as_str()?)?,
        sent: number(row, 11)?,
        consumed: number(row, 12)?,
        crashes: number(row, 13)?,
        stuck,
    })
}

/// The columns of `history.sql`.
pub(crate) fn turn(row: &Row<'_>) -> Result<TurnRecord, Error> {
    let events = Event::read_all(row.get_ref(4)?.as_str()?).map_err(|error| damaged(4, error))?;
    let build: Arc<str> = row.get(3)?;
    Ok(TurnRecord { id: word(row, 0)?, seq: number(row, 1)?, at: moment(row, 2)?, build, events })
}

/// The columns of `inbox_read.sql`.
pub(crate) fn message(row: &Row<'_>) -> Result<Message, Error> {
    let body = match row.get_ref(3)?.as_str()? {
        "hook" => MessageBody::Hook { name: row.get(4)?, payload: payload(row)? },
        "cancel" => MessageBody::Cancel { reason: row.get(6)? },
        other => return Err(damaged(3, format!("unknown message kind `{other}`; run a newer build"))),
    };
    let headers: Headers = match row.get_ref(7)? {
        ValueRef::Null => Headers::new(),
        text => json(7, text.as_str()?)?,
    };
    Ok(Message { position: number(row, 0)?, id: word(row, 1)?, at: moment(row, 2)?, body, headers })
}

fn payload(row: &Row<'_>) -> Result<Payload, Error> {
    let codec: Option<Arc<str>> = row.get(5)?;
    let bytes = row.get_ref(6)?.as_bytes()?.to_vec();
    Ok(match codec {
        None => Payload::from_json_text(bytes),
        Some(codec) => Payload::coded(codec, bytes),
    })
}

fn json<T: serde::de::DeserializeOwned>(column: usize, text: &str) -> Result<T, Error> {
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
