//! Messages as rows of the inbox, and back.

use std::sync::Arc;

use outlast_core::{
    Event, Failure, Headers, Message, MessageBody, NewMessage, OpNumber, Outcome, Payload, RunId, Status,
    WorldError,
};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Error, Row};

use crate::schema::row::{damaged, json, maybe_number, moment, number, word};

/// A message, written out by the caller so that the writer does not have to.
pub(crate) struct NewLetter {
    pub(crate) message: NewMessage,
    pub(crate) run: String,
    pub(crate) id: String,
    pub(crate) says: Says,
    pub(crate) headers: Option<String>,
}

/// What a message says, as columns.
#[derive(Default)]
pub(crate) struct Says {
    pub(crate) kind: &'static str,
    pub(crate) name: Option<String>,
    pub(crate) op: Option<i64>,
    pub(crate) outcome: Option<&'static str>,
    pub(crate) codec: Option<String>,
    pub(crate) body: Option<Value>,
}

impl NewLetter {
    pub(crate) fn encode(message: NewMessage) -> Result<Self, WorldError> {
        let says = Says::of(&message)?;
        let headers = (!message.headers.is_empty()).then(|| text(&message.headers)).transpose()?;
        let (run, id) = (message.run.to_string(), message.id.to_string());
        Ok(Self { message, run, id, says, headers })
    }
}

impl Says {
    fn of(message: &NewMessage) -> Result<Self, WorldError> {
        Ok(match &message.body {
            MessageBody::Hook { name, payload } => {
                Self { name: Some(name.to_string()), ..Self::payload("hook", payload) }
            }
            MessageBody::Cancel { reason } => Self::text("cancel", reason.clone()),
            MessageBody::Terminate { reason } => Self::text("terminate", reason.clone()),
            MessageBody::Wake { op } => {
                Self { kind: "wake", op: op.map(|OpNumber(op)| op as i64), ..Self::default() }
            }
            MessageBody::ChildStarted { op, run } => {
                Self { op: Some(op.0 as i64), ..Self::text("child_started", run.to_string()) }
            }
            MessageBody::ChildEnded { op, outcome } => {
                let says = match outcome {
                    Outcome::Completed(output) => Self::payload("child_ended", output),
                    Outcome::Failed(failure) | Outcome::Cancelled(failure) => {
                        Self::text("child_ended", text(failure)?)
                    }
                };
                Self { op: Some(op.0 as i64), outcome: Some(outcome.status().as_str()), ..says }
            }
            MessageBody::Refused { op, failure } => {
                Self { op: Some(op.0 as i64), ..Self::text("refused", text(failure)?) }
            }
            MessageBody::Attempted { events } => {
                let mut text = String::new();
                Event::write_all(events, &mut text);
                Self::text("attempted", text)
            }
            _ => {
                return Err(WorldError::Invalid(format!(
                    "message {} is of a kind that this world does not know; use a newer one",
                    message.id
                )));
            }
        })
    }

    fn text(kind: &'static str, text: String) -> Self {
        Self { kind, body: Some(Value::Text(text)), ..Self::default() }
    }

    fn payload(kind: &'static str, payload: &Payload) -> Self {
        let codec = payload.codec().map(str::to_owned);
        Self { kind, codec, body: Some(body_of(payload)), ..Self::default() }
    }
}

/// A payload as a column: JSON as text, so that a person can read it.
pub(crate) fn body_of(payload: &Payload) -> Value {
    match (payload.codec(), String::from_utf8(payload.bytes().to_vec())) {
        (None, Ok(text)) => Value::Text(text),
        (_, Ok(text)) => Value::Blob(text.into_bytes()),
        (_, Err(error)) => Value::Blob(error.into_bytes()),
    }
}

/// A payload of its columns.
pub(crate) fn payload_of(codec: Option<Arc<str>>, bytes: &[u8]) -> Payload {
    match codec {
        None => Payload::from_json_text(bytes.to_vec()),
        Some(codec) => Payload::coded(codec, bytes.to_vec()),
    }
}

fn text(value: &impl serde::Serialize) -> Result<String, WorldError> {
    serde_json::to_string(value).map_err(|error| WorldError::Invalid(error.to_string()))
}

/// The columns of `inbox_read.sql`.
pub(crate) fn message(row: &Row<'_>) -> Result<Message, Error> {
    let body = match row.get_ref(3)?.as_str()? {
        "hook" => MessageBody::Hook { name: row.get(4)?, payload: payload(row)? },
        "cancel" => MessageBody::Cancel { reason: row.get(8)? },
        "terminate" => MessageBody::Terminate { reason: row.get(8)? },
        "wake" => MessageBody::Wake { op: maybe_number(row, 5)?.map(OpNumber) },
        "child_started" => MessageBody::ChildStarted { op: op(row)?, run: word::<RunId>(row, 8)? },
        "child_ended" => MessageBody::ChildEnded { op: op(row)?, outcome: outcome(row)? },
        "refused" => MessageBody::Refused { op: op(row)?, failure: failure(row)? },
        "attempted" => MessageBody::Attempted { events: events(row)? },
        other => return Err(damaged(3, format!("unknown message kind `{other}`; run a newer build"))),
    };
    let headers: Headers = match row.get_ref(9)? {
        ValueRef::Null => Headers::new(),
        text => json(9, text.as_str()?)?,
    };
    Ok(Message { position: number(row, 0)?, id: word(row, 1)?, at: moment(row, 2)?, body, headers })
}

fn op(row: &Row<'_>) -> Result<OpNumber, Error> {
    number(row, 5).map(OpNumber)
}

fn outcome(row: &Row<'_>) -> Result<Outcome, Error> {
    Ok(match word(row, 6)? {
        Status::Completed => Outcome::Completed(payload(row)?),
        Status::Failed => Outcome::Failed(failure(row)?),
        Status::Cancelled => Outcome::Cancelled(failure(row)?),
        other => return Err(damaged(6, format!("`{other}` is not how a run ends"))),
    })
}

fn failure(row: &Row<'_>) -> Result<Failure, Error> {
    json(8, row.get_ref(8)?.as_str()?)
}

fn events(row: &Row<'_>) -> Result<Vec<Event>, Error> {
    Event::read_all(row.get_ref(8)?.as_str()?).map_err(|error| damaged(8, error.to_string()))
}

fn payload(row: &Row<'_>) -> Result<Payload, Error> {
    Ok(payload_of(row.get(7)?, row.get_ref(8)?.as_bytes()?))
}
