//! Messages and payloads as values of columns.

use std::borrow::Cow;

use outlast_core::sql::{ColumnValue, MessageColumns, PayloadColumns};
use outlast_core::{Message, NewMessage, OpNumber, Payload, WorldError};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Error, Row};

use crate::schema::row::{invalid_column, number, number_or_null, parsed, text_or_null, timestamp};

/// A message, encoded on the caller's thread to relieve the writer.
pub(crate) struct EncodedMessage {
    pub(crate) message: NewMessage,
    pub(crate) run: String,
    pub(crate) id: String,
    pub(crate) columns: MessageColumns<'static>,
}

impl EncodedMessage {
    pub(crate) fn encode(message: NewMessage) -> Result<Self, WorldError> {
        let columns = MessageColumns::of(&message)?;
        let (run, id) = (message.run.to_string(), message.id.to_string());
        Ok(Self { message, run, id, columns })
    }
}

/// A payload as a value; its codec is in a column of its own.
pub(crate) fn payload_to_value(payload: &Payload) -> Value {
    to_value(PayloadColumns::of(payload).body)
}

fn to_value(column: ColumnValue<'_>) -> Value {
    match column {
        ColumnValue::Text(text) => Value::Text(text.into_owned()),
        ColumnValue::Bytes(bytes) => Value::Blob(bytes.into_owned()),
    }
}

/// A text or bytes as the parameter of a statement.
pub(crate) fn parameter<'v>(column: &'v ColumnValue<'_>) -> ToSqlOutput<'v> {
    ToSqlOutput::Borrowed(match column {
        ColumnValue::Text(text) => ValueRef::Text(text.as_bytes()),
        ColumnValue::Bytes(bytes) => ValueRef::Blob(bytes),
    })
}

/// Reads a text or bytes; `None` if the value is NULL.
pub(crate) fn read_value<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<ColumnValue<'r>>, Error> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        ValueRef::Text(text) => Some(match std::str::from_utf8(text) {
            Ok(text) => ColumnValue::Text(text.into()),
            Err(_) => ColumnValue::Bytes(text.into()),
        }),
        other => Some(ColumnValue::Bytes(other.as_blob()?.into())),
    })
}

/// Reads a payload from two columns: its codec, and its body. `None` if the body is NULL.
pub(crate) fn read_payload(row: &Row<'_>, codec: usize, body: usize) -> Result<Option<Payload>, Error> {
    let Some(body) = read_value(row, body)? else { return Ok(None) };
    let codec = text_or_null(row, codec)?.map(Cow::Borrowed);
    Ok(Some(PayloadColumns { codec, body }.into_payload()))
}

/// Reads the columns of `inbox_read.sql`.
pub(crate) fn read_message(row: &Row<'_>) -> Result<Message, Error> {
    let text = |column| Ok::<_, Error>(text_or_null(row, column)?.map(Cow::Borrowed));
    let columns = MessageColumns {
        kind: row.get_ref(3)?.as_str()?.into(),
        name: text(4)?,
        op: number_or_null(row, 5)?.map(OpNumber),
        outcome: text(6)?,
        codec: text(7)?,
        body: read_value(row, 8)?,
        headers: text(9)?,
    };
    let (body, headers) = columns.into_parts().map_err(|error| invalid_column(3, error))?;
    Ok(Message { position: number(row, 0)?, id: parsed(row, 1)?, at: timestamp(row, 2)?, body, headers })
}
