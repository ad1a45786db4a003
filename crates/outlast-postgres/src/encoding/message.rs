//! Messages: written as parameters, and read from rows of the inbox.

use std::borrow::Cow;

use outlast_core::format::FIRST_FORMAT;
use outlast_core::limits::{HOOK_BUFFER_MAX, INBOX_MESSAGES_MAX};
use outlast_core::{
    Event, Failure, Headers, HookAddress, Message, MessageBody, NewMessage, OpNumber, Outcome, Payload,
    RunId, Status, WorldError,
};
use tokio_postgres::Row;

use crate::encoding::json_rows::JsonRows;
use crate::encoding::row::{
    InvalidRow, get, invalid_column, json, maybe_number, maybe_text, number, parsed, text, timestamp, to_i64,
};
use crate::encoding::text::escape_nul;

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

/// The content of a message, as columns.
#[derive(Default)]
struct MessageColumns {
    kind: &'static str,
    name: Option<String>,
    op: Option<i64>,
    /// The status of a child that has ended, or the address of a payload that is not plain.
    outcome: Option<Cow<'static, str>>,
    codec: Option<String>,
    body: Option<String>,
    raw: Option<Vec<u8>>,
}

impl NewMessages {
    /// Adds messages. `turn` is the number of the sending turn in its batch, if a turn sends them.
    pub(crate) fn add(&mut self, messages: &[NewMessage], turn: Option<i64>) -> Result<(), WorldError> {
        let columns: Result<Vec<_>, _> = messages.iter().map(MessageColumns::of).collect();
        for (message, columns) in messages.iter().zip(columns?) {
            self.rows.begin_row();
            self.rows.word("run", message.run);
            self.rows.word("id", message.id);
            self.rows.word("kind", columns.kind);
            let format = message.body.format();
            if format > FIRST_FORMAT {
                self.rows.number("format", i64::from(format));
            }
            if let Some(turn) = turn {
                self.rows.number("turn_nth", turn);
            }
            self.add_optional_fields(message, columns)?;
        }
        Ok(())
    }

    fn add_optional_fields(
        &mut self,
        message: &NewMessage,
        columns: MessageColumns,
    ) -> Result<(), WorldError> {
        if let Some(name) = &columns.name {
            self.rows.plain_text("name", name);
        }
        if let Some(op) = columns.op {
            self.rows.number("op", op);
        }
        if let Some(outcome) = &columns.outcome {
            self.rows.plain_text("outcome", outcome);
        }
        if let Some(codec) = &columns.codec {
            self.rows.plain_text("codec", codec);
        }
        if !message.headers.is_empty() {
            self.rows.plain_text("headers", &json_text(&message.headers)?);
        }
        self.bodies.push(columns.body);
        self.raws.push(columns.raw);
        Ok(())
    }
}

/// The name of a terminate that runs the compensations first.
const COMPENSATING: &str = "compensating";

impl MessageColumns {
    fn of(message: &NewMessage) -> Result<Self, WorldError> {
        Ok(match &message.body {
            MessageBody::Hook { name, payload, to } => Self {
                name: Some(escape_nul(name).into_owned()),
                outcome: to.to_text().map(|text| Cow::Owned(escape_nul(&text).into_owned())),
                ..Self::payload("hook", payload)
            },
            MessageBody::Cancel { reason } => Self::text("cancel", escape_nul(reason).into_owned()),
            MessageBody::Terminate { reason } => Self::text("terminate", escape_nul(reason).into_owned()),
            // The same kind, since it ends the run without its code as well. Builds that would not see the name cannot
            // read the format of the message.
            MessageBody::Compensate { reason } => Self {
                name: Some(COMPENSATING.into()),
                ..Self::text("terminate", escape_nul(reason).into_owned())
            },
            MessageBody::Wake { op } => {
                Self { kind: "wake", op: op.map(|OpNumber(op)| op as i64), ..Self::default() }
            }
            MessageBody::ChildStarted { op, run } => {
                Self { op: Some(op.0 as i64), ..Self::text("child_started", run.to_string()) }
            }
            MessageBody::ChildEnded { op, outcome } => {
                let columns = match outcome {
                    Outcome::Completed(output) => Self::payload("child_ended", output),
                    Outcome::Failed(failure) | Outcome::Cancelled(failure) => {
                        Self::text("child_ended", json_text(failure)?)
                    }
                };
                Self { op: Some(op.0 as i64), outcome: Some(outcome.status().as_str().into()), ..columns }
            }
            MessageBody::Refused { op, failure } => {
                Self { op: Some(op.0 as i64), ..Self::text("refused", json_text(failure)?) }
            }
            MessageBody::Attempted { events } => {
                let mut text = String::new();
                Event::write_all(events, &mut text);
                Self::text("attempted", text)
            }
            MessageBody::Pause { reason } => Self::text("pause", escape_nul(reason).into_owned()),
            MessageBody::Resume => Self { kind: "resume", ..Self::default() },
            MessageBody::Retry(request) => Self::text("retry", json_text(request)?),
            MessageBody::TokenTaken { op } => {
                Self { kind: "token_taken", op: Some(op.0 as i64), ..Self::default() }
            }
            _ => {
                return Err(WorldError::invalid(format!(
                    "message {} has a kind that this world does not know; use a newer version of `outlast-postgres`",
                    message.id
                )));
            }
        })
    }

    fn text(kind: &'static str, text: String) -> Self {
        Self { kind, body: Some(text), ..Self::default() }
    }

    fn payload(kind: &'static str, payload: &Payload) -> Self {
        let StoredPayload { codec, body, raw } = StoredPayload::of(payload);
        Self { kind, codec, body, raw, ..Self::default() }
    }
}

/// A payload as columns: as text if it is JSON, so that people can read it.
#[derive(Debug)]
pub(crate) struct StoredPayload {
    pub(crate) codec: Option<String>,
    pub(crate) body: Option<String>,
    pub(crate) raw: Option<Vec<u8>>,
}

impl StoredPayload {
    pub(crate) fn of(payload: &Payload) -> Self {
        let codec = payload.codec().map(|codec| escape_nul(codec).into_owned());
        match (&codec, std::str::from_utf8(payload.bytes())) {
            (None, Ok(text)) if !text.contains('\0') => {
                Self { codec, body: Some(text.to_owned()), raw: None }
            }
            _ => Self { codec, body: None, raw: Some(payload.bytes().to_vec()) },
        }
    }

    /// Reads a payload from the columns `codec`, `body` and `raw`, of which the first is `column`.
    pub(crate) fn read(row: &Row, column: usize) -> Result<Payload, InvalidRow> {
        let bytes = match get::<Option<&[u8]>>(row, column + 2)? {
            Some(raw) => raw.to_vec(),
            None => get::<&str>(row, column + 1)?.as_bytes().to_vec(),
        };
        Ok(match maybe_text(row, column)? {
            None => Payload::from_json_text(bytes),
            Some(codec) => Payload::coded(codec, bytes),
        })
    }
}

/// A value as JSON text.
pub(crate) fn json_text(value: &impl serde::Serialize) -> Result<String, WorldError> {
    serde_json::to_string(value).map_err(|error| WorldError::invalid(error.to_string()))
}

/// Reads the columns of `inboxes.sql` and `unread.sql`.
pub(crate) fn read_message(row: &Row) -> Result<Message, InvalidRow> {
    let body = match get::<&str>(row, 3)? {
        "hook" => {
            let to = HookAddress::of_text(maybe_text(row, 6)?.as_deref());
            let to = to.map_err(|error| invalid_column(6, error.to_string()))?;
            MessageBody::Hook { name: text(row, 4)?.into(), payload: payload(row)?, to }
        }
        "token_taken" => MessageBody::TokenTaken { op: op(row)? },
        "cancel" => MessageBody::Cancel { reason: text(row, 8)? },
        "terminate" if get::<Option<&str>>(row, 4)? == Some(COMPENSATING) => {
            MessageBody::Compensate { reason: text(row, 8)? }
        }
        "terminate" => MessageBody::Terminate { reason: text(row, 8)? },
        "wake" => MessageBody::Wake { op: maybe_number(row, 5)?.map(OpNumber) },
        "child_started" => MessageBody::ChildStarted { op: op(row)?, run: parsed::<RunId>(row, 8)? },
        "child_ended" => MessageBody::ChildEnded { op: op(row)?, outcome: outcome(row)? },
        "refused" => MessageBody::Refused { op: op(row)?, failure: json::<Failure>(row, 8)? },
        "attempted" => MessageBody::Attempted { events: events(row)? },
        "pause" => MessageBody::Pause { reason: text(row, 8)? },
        "resume" => MessageBody::Resume,
        "retry" => MessageBody::Retry(Box::new(json(row, 8)?)),
        other => return Err(invalid_column(3, format!("unknown message kind `{other}`; run a newer build"))),
    };
    let headers = match get::<Option<&str>>(row, 10)? {
        None => Headers::new(),
        Some(_) => json(row, 10)?,
    };
    Ok(Message { position: number(row, 0)?, id: parsed(row, 1)?, at: timestamp(row, 2)?, body, headers })
}

fn op(row: &Row) -> Result<OpNumber, InvalidRow> {
    number(row, 5).map(OpNumber)
}

fn outcome(row: &Row) -> Result<Outcome, InvalidRow> {
    Ok(match parsed(row, 6)? {
        Status::Completed => Outcome::Completed(payload(row)?),
        Status::Failed => Outcome::Failed(json(row, 8)?),
        Status::Cancelled => Outcome::Cancelled(json(row, 8)?),
        other => return Err(invalid_column(6, format!("`{other}` is not the status of an ended run"))),
    })
}

fn events(row: &Row) -> Result<Vec<Event>, InvalidRow> {
    Event::read_all(get::<&str>(row, 8)?).map_err(|error| invalid_column(8, error))
}

fn payload(row: &Row) -> Result<Payload, InvalidRow> {
    StoredPayload::read(row, 7)
}
