//! Messages, payloads and replies: written as parameters, and read from rows.

use std::borrow::Cow;

use outlast_core::format::FIRST_FORMAT;
use outlast_core::limits::{HOOK_BUFFER_MAX, INBOX_MESSAGES_MAX};
use outlast_core::sql::{ColumnValue, MessageColumns, PayloadColumns, ReplyColumns};
use outlast_core::{Message, NewMessage, OpNumber, Payload, Reply, WorldError};
use tokio_postgres::Row;

use crate::encoding::json_rows::JsonRows;
use crate::encoding::row::{
    InvalidRow, get, invalid_column, maybe_number, number, parsed, timestamp, to_i64,
};
use crate::encoding::text::{escape_nul, unescape_nul};

/// The limits of an inbox: the number of unread messages, and the number of unread and kept ones, at which it is full.
pub(crate) fn limits() -> Vec<i64> {
    vec![to_i64(INBOX_MESSAGES_MAX), to_i64(HOOK_BUFFER_MAX as u64)]
}

/// Messages to send, as parameters: small fields as JSON, and the bodies in arrays of their own.
#[derive(Debug, Default)]
pub(crate) struct NewMessages {
    pub(crate) rows: JsonRows,
    pub(crate) bodies: Vec<Option<String>>,
    pub(crate) raws: Vec<Option<Vec<u8>>>,
}

impl NewMessages {
    /// Adds messages. `turn` is the number of the sending turn in its batch, if a turn sends them.
    pub(crate) fn add(&mut self, messages: &[NewMessage], turn: Option<i64>) -> Result<(), WorldError> {
        let columns: Result<Vec<_>, _> = messages.iter().map(MessageColumns::of).collect();
        for (message, columns) in messages.iter().zip(columns?) {
            self.rows.begin_row();
            self.rows.word("run", message.run);
            self.rows.word("id", message.id);
            self.rows.word("kind", &columns.kind);
            let format = message.body.format();
            if format > FIRST_FORMAT {
                self.rows.number("format", i64::from(format));
            }
            if let Some(turn) = turn {
                self.rows.number("turn_nth", turn);
            }
            self.add_optional_fields(columns);
        }
        Ok(())
    }

    fn add_optional_fields(&mut self, columns: MessageColumns<'_>) {
        let MessageColumns { kind, name, op, outcome, codec, body, headers } = columns;
        for (column, text) in [("name", name), ("outcome", outcome), ("codec", codec)] {
            if let Some(text) = text {
                self.rows.plain_text(column, &escape_nul(&text));
            }
        }
        if let Some(op) = op {
            self.rows.unsigned("op", op.0);
        }
        if let Some(headers) = headers {
            self.rows.plain_text("headers", &headers);
        }
        let (body, raw) = body.map_or((None, None), split_value);
        let is_chosen = MessageColumns::is_body_chosen(&kind);
        self.bodies.push(body.map(|body| if is_chosen { escape_nul(&body).into_owned() } else { body }));
        self.raws.push(raw);
    }
}

/// A value as two columns: one for texts, the other for bytes.
fn split_value(value: ColumnValue<'_>) -> (Option<String>, Option<Vec<u8>>) {
    match value {
        ColumnValue::Text(text) => (Some(text.into_owned()), None),
        ColumnValue::Bytes(bytes) => (None, Some(bytes.into_owned())),
    }
}

/// Reads a value from its two columns, of which the first is `column`; `None` if both are NULL.
fn read_value(row: &Row, column: usize) -> Result<Option<ColumnValue<'_>>, InvalidRow> {
    Ok(match get::<Option<&[u8]>>(row, column + 1)? {
        Some(bytes) => Some(ColumnValue::Bytes(bytes.into())),
        None => get::<Option<&str>>(row, column)?.map(|text| ColumnValue::Text(text.into())),
    })
}

/// A payload as columns.
#[derive(Debug)]
pub(crate) struct StoredPayload {
    pub(crate) codec: Option<String>,
    pub(crate) body: Option<String>,
    pub(crate) raw: Option<Vec<u8>>,
}

impl StoredPayload {
    pub(crate) fn of(payload: &Payload) -> Self {
        let PayloadColumns { codec, body } = PayloadColumns::of(payload);
        let (body, raw) = split_value(body);
        Self { codec: codec.map(|codec| escape_nul(&codec).into_owned()), body, raw }
    }

    /// Reads a payload from the columns `codec`, `body` and `raw`, of which the first is `column`.
    pub(crate) fn read(row: &Row, column: usize) -> Result<Payload, InvalidRow> {
        let codec = chosen_text(row, column)?;
        let body = read_value(row, column + 1)?.ok_or_else(|| invalid_column(column + 1, "it is NULL"))?;
        Ok(PayloadColumns { codec, body }.into_payload())
    }
}

/// A reply as columns.
pub(crate) struct EncodedReply {
    pub(crate) outcome: String,
    pub(crate) payload: StoredPayload,
}

impl EncodedReply {
    pub(crate) fn of(reply: &Reply) -> Self {
        let ReplyColumns { outcome, codec, body } = ReplyColumns::of(reply);
        let codec = codec.map(|codec| escape_nul(&codec).into_owned());
        let (body, raw) = match (reply, body) {
            // As bytes, because Postgres stores no NUL in texts.
            (Reply::Rejected(reason), _) => (None, Some(reason.clone().into_bytes())),
            (_, body) => body.map_or((None, None), split_value),
        };
        Self { outcome: outcome.into_owned(), payload: StoredPayload { codec, body, raw } }
    }

    /// Reads a reply from the columns `codec`, `body` and `raw`, of which the first is `column`.
    pub(crate) fn read(row: &Row, outcome: &str, column: usize) -> Result<Reply, InvalidRow> {
        let (codec, body) = (chosen_text(row, column)?, read_value(row, column + 1)?);
        let columns = ReplyColumns { outcome: outcome.into(), codec, body };
        Ok(columns.into_reply()?)
    }
}

/// A value as JSON text.
pub(crate) fn json_text(value: &impl serde::Serialize) -> Result<String, WorldError> {
    serde_json::to_string(value).map_err(|error| WorldError::invalid(error.to_string()))
}

/// Reads the columns of `inboxes.sql` and `unread.sql`.
pub(crate) fn read_message(row: &Row) -> Result<Message, InvalidRow> {
    let kind: &str = get(row, 3)?;
    let mut body = read_value(row, 8)?;
    if let Some(ColumnValue::Text(text)) = &mut body
        && MessageColumns::is_body_chosen(kind)
    {
        *text = unescape_nul(text).into_owned().into();
    }
    let columns = MessageColumns {
        kind: kind.into(),
        name: chosen_text(row, 4)?,
        op: maybe_number(row, 5)?.map(OpNumber),
        outcome: chosen_text(row, 6)?,
        codec: chosen_text(row, 7)?,
        body,
        headers: get::<Option<&str>>(row, 10)?.map(Into::into),
    };
    let (body, headers) = columns.into_parts()?;
    Ok(Message { position: number(row, 0)?, id: parsed(row, 1)?, at: timestamp(row, 2)?, body, headers })
}

/// A text that somebody chose; NUL is unescaped.
fn chosen_text(row: &Row, column: usize) -> Result<Option<Cow<'_, str>>, InvalidRow> {
    Ok(get::<Option<&str>>(row, column)?.map(unescape_nul))
}
