//! Messages as rows of the table `inbox`.

use std::borrow::Cow;
use std::sync::Arc;

use outlast_core::{
    Event, Failure, Headers, HookAddress, Message, MessageBody, NewMessage, OpNumber, Outcome, Payload,
    RunId, Status, WorldError,
};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Error, Row};

use crate::schema::row::{invalid_column, number, number_or_null, parse_json, parsed, timestamp};

/// The name of a terminate that runs the compensations first.
const COMPENSATING: &str = "compensating";

/// A message, encoded on the caller's thread to relieve the writer.
pub(crate) struct EncodedMessage {
    pub(crate) message: NewMessage,
    pub(crate) run: String,
    pub(crate) id: String,
    pub(crate) columns: MessageColumns,
    pub(crate) headers: Option<String>,
}

/// The body of a message, as columns.
#[derive(Default)]
pub(crate) struct MessageColumns {
    pub(crate) kind: &'static str,
    pub(crate) name: Option<String>,
    pub(crate) op: Option<i64>,
    /// The status of a child that has ended, or the address of a payload that is not plain.
    pub(crate) outcome: Option<Cow<'static, str>>,
    pub(crate) codec: Option<String>,
    pub(crate) body: Option<Value>,
}

impl EncodedMessage {
    pub(crate) fn encode(message: NewMessage) -> Result<Self, WorldError> {
        let columns = MessageColumns::of(&message)?;
        let headers = (!message.headers.is_empty()).then(|| to_json(&message.headers)).transpose()?;
        let (run, id) = (message.run.to_string(), message.id.to_string());
        Ok(Self { message, run, id, columns, headers })
    }
}

impl MessageColumns {
    fn of(message: &NewMessage) -> Result<Self, WorldError> {
        Ok(match &message.body {
            MessageBody::Hook { name, payload, to } => Self {
                name: Some(name.to_string()),
                outcome: to.to_text().map(Cow::Owned),
                ..Self::with_payload("hook", payload)
            },
            MessageBody::Cancel { reason } => Self::with_text("cancel", reason.clone()),
            MessageBody::Terminate { reason } => Self::with_text("terminate", reason.clone()),
            // The same kind, since it ends the run without its code as well. Builds that would not see the name cannot
            // read the format of the message.
            MessageBody::Compensate { reason } => {
                Self { name: Some(COMPENSATING.into()), ..Self::with_text("terminate", reason.clone()) }
            }
            MessageBody::Wake { op } => {
                Self { kind: "wake", op: op.map(|OpNumber(op)| op as i64), ..Self::default() }
            }
            MessageBody::ChildStarted { op, run } => {
                Self { op: Some(op.0 as i64), ..Self::with_text("child_started", run.to_string()) }
            }
            MessageBody::ChildEnded { op, outcome } => {
                let columns = match outcome {
                    Outcome::Completed(output) => Self::with_payload("child_ended", output),
                    Outcome::Failed(failure) | Outcome::Cancelled(failure) => {
                        Self::with_text("child_ended", to_json(failure)?)
                    }
                };
                Self { op: Some(op.0 as i64), outcome: Some(outcome.status().as_str().into()), ..columns }
            }
            MessageBody::Refused { op, failure } => {
                Self { op: Some(op.0 as i64), ..Self::with_text("refused", to_json(failure)?) }
            }
            MessageBody::Attempted { events } => {
                let mut text = String::new();
                Event::write_all(events, &mut text);
                Self::with_text("attempted", text)
            }
            MessageBody::Pause { reason } => Self::with_text("pause", reason.clone()),
            MessageBody::Resume => Self { kind: "resume", ..Self::default() },
            MessageBody::Retry(request) => Self::with_text("retry", to_json(request)?),
            MessageBody::TokenTaken { op } => {
                Self { kind: "token_taken", op: Some(op.0 as i64), ..Self::default() }
            }
            _ => {
                return Err(WorldError::invalid(format!(
                    "message {} has a kind that this build does not know; use a newer build",
                    message.id
                )));
            }
        })
    }

    fn with_text(kind: &'static str, text: String) -> Self {
        Self { kind, body: Some(Value::Text(text)), ..Self::default() }
    }

    fn with_payload(kind: &'static str, payload: &Payload) -> Self {
        let codec = payload.codec().map(str::to_owned);
        Self { kind, codec, body: Some(payload_to_value(payload)), ..Self::default() }
    }
}

/// A payload as a column value. JSON is stored as text, so that a person can read it.
pub(crate) fn payload_to_value(payload: &Payload) -> Value {
    match (payload.codec(), String::from_utf8(payload.bytes().to_vec())) {
        (None, Ok(text)) => Value::Text(text),
        (_, Ok(text)) => Value::Blob(text.into_bytes()),
        (_, Err(error)) => Value::Blob(error.into_bytes()),
    }
}

/// A payload from its columns.
pub(crate) fn payload_from_columns(codec: Option<Arc<str>>, bytes: &[u8]) -> Payload {
    match codec {
        None => Payload::from_json_text(bytes.to_vec()),
        Some(codec) => Payload::coded(codec, bytes.to_vec()),
    }
}

fn to_json(value: &impl serde::Serialize) -> Result<String, WorldError> {
    serde_json::to_string(value).map_err(|error| WorldError::invalid(error.to_string()))
}

/// Reads the columns of `inbox_read.sql`: position, id, time, kind, hook (4), operation (5), status (6), codec (7),
/// body (8) and headers. The kind determines what the body is: a payload, a reason, a run, a failure or events.
pub(crate) fn read_message(row: &Row<'_>) -> Result<Message, Error> {
    let body = match row.get_ref(3)?.as_str()? {
        "hook" => {
            MessageBody::Hook { name: row.get(4)?, payload: read_payload(row)?, to: read_address(row)? }
        }
        "token_taken" => MessageBody::TokenTaken { op: read_op(row)? },
        "cancel" => MessageBody::Cancel { reason: row.get(8)? },
        "terminate" if row.get_ref(4)?.as_str_or_null().ok().flatten() == Some(COMPENSATING) => {
            MessageBody::Compensate { reason: row.get(8)? }
        }
        "terminate" => MessageBody::Terminate { reason: row.get(8)? },
        "wake" => MessageBody::Wake { op: number_or_null(row, 5)?.map(OpNumber) },
        "child_started" => MessageBody::ChildStarted { op: read_op(row)?, run: parsed::<RunId>(row, 8)? },
        "child_ended" => MessageBody::ChildEnded { op: read_op(row)?, outcome: read_outcome(row)? },
        "refused" => MessageBody::Refused { op: read_op(row)?, failure: read_failure(row)? },
        "attempted" => MessageBody::Attempted { events: read_events(row)? },
        "pause" => MessageBody::Pause { reason: row.get(8)? },
        "resume" => MessageBody::Resume,
        "retry" => MessageBody::Retry(Box::new(parse_json(8, row.get_ref(8)?.as_str()?)?)),
        other => return Err(invalid_column(3, format!("unknown message kind `{other}`; run a newer build"))),
    };
    let headers: Headers = match row.get_ref(9)? {
        ValueRef::Null => Headers::new(),
        text => parse_json(9, text.as_str()?)?,
    };
    Ok(Message { position: number(row, 0)?, id: parsed(row, 1)?, at: timestamp(row, 2)?, body, headers })
}

fn read_op(row: &Row<'_>) -> Result<OpNumber, Error> {
    number(row, 5).map(OpNumber)
}

fn read_address(row: &Row<'_>) -> Result<HookAddress, Error> {
    let text = row.get_ref(6)?.as_str_or_null()?;
    HookAddress::of_text(text).map_err(|error| invalid_column(6, error.to_string()))
}

fn read_outcome(row: &Row<'_>) -> Result<Outcome, Error> {
    Ok(match parsed(row, 6)? {
        Status::Completed => Outcome::Completed(read_payload(row)?),
        Status::Failed => Outcome::Failed(read_failure(row)?),
        Status::Cancelled => Outcome::Cancelled(read_failure(row)?),
        other => return Err(invalid_column(6, format!("`{other}` is not a final status"))),
    })
}

fn read_failure(row: &Row<'_>) -> Result<Failure, Error> {
    parse_json(8, row.get_ref(8)?.as_str()?)
}

fn read_events(row: &Row<'_>) -> Result<Vec<Event>, Error> {
    Event::read_all(row.get_ref(8)?.as_str()?).map_err(|error| invalid_column(8, error.to_string()))
}

fn read_payload(row: &Row<'_>) -> Result<Payload, Error> {
    Ok(payload_from_columns(row.get(7)?, row.get_ref(8)?.as_bytes()?))
}
