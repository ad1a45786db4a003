//! Messages as rows of the inbox, and back.

use outlast_core::format::FIRST_FORMAT;
use outlast_core::limits::{HOOK_BUFFER_MAX, INBOX_MESSAGES_MAX};
use outlast_core::{
    Event, Failure, Headers, Message, MessageBody, NewMessage, OpNumber, Outcome, Payload, RunId, Status,
    WorldError,
};
use tokio_postgres::Row;

use crate::fields::Rows;
use crate::row::{Damaged, damaged, get, json, maybe_number, maybe_text, moment, number, stored, text, word};
use crate::store::Values;
use crate::text::stored as stored_text;

/// How many unread messages a run has, and how many unread and kept ones, when it takes no more.
pub(crate) fn limits() -> Vec<i64> {
    vec![stored(INBOX_MESSAGES_MAX), stored(HOOK_BUFFER_MAX as u64)]
}

/// Messages to send: small fields, and what they say beside them.
#[derive(Debug, Default)]
pub(crate) struct NewMessages {
    pub(crate) rows: Rows,
    pub(crate) bodies: Vec<Option<String>>,
    pub(crate) raws: Vec<Option<Vec<u8>>>,
}

/// What a message says, as columns.
#[derive(Default)]
struct Columns {
    kind: &'static str,
    name: Option<String>,
    op: Option<i64>,
    outcome: Option<&'static str>,
    codec: Option<String>,
    body: Option<String>,
    raw: Option<Vec<u8>>,
}

impl NewMessages {
    /// Adds messages of the turn with this number in its batch, if one sends them.
    pub(crate) fn add(&mut self, messages: &[NewMessage], turn: Option<i64>) -> Result<(), WorldError> {
        let columns: Result<Vec<_>, _> = messages.iter().map(Columns::of).collect();
        for (message, columns) in messages.iter().zip(columns?) {
            self.rows.begin();
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
            self.rest(message, columns)?;
        }
        Ok(())
    }

    fn rest(&mut self, message: &NewMessage, columns: Columns) -> Result<(), WorldError> {
        if let Some(name) = &columns.name {
            self.rows.json_text("name", name);
        }
        if let Some(op) = columns.op {
            self.rows.number("op", op);
        }
        if let Some(outcome) = columns.outcome {
            self.rows.word("outcome", outcome);
        }
        if let Some(codec) = &columns.codec {
            self.rows.json_text("codec", codec);
        }
        if !message.headers.is_empty() {
            self.rows.json_text("headers", &json_text(&message.headers)?);
        }
        self.bodies.push(columns.body);
        self.raws.push(columns.raw);
        Ok(())
    }
}

/// One value of a statement's parameters.
pub(crate) type Values1<'a> = &'a (dyn tokio_postgres::types::ToSql + Sync);

const _: fn(&[Values1<'_>]) = |values| {
    let _: Values<'_> = values;
};

impl Columns {
    fn of(message: &NewMessage) -> Result<Self, WorldError> {
        Ok(match &message.body {
            MessageBody::Hook { name, payload } => {
                Self { name: Some(stored_text(name).into_owned()), ..Self::payload("hook", payload) }
            }
            MessageBody::Cancel { reason } => Self::text("cancel", stored_text(reason).into_owned()),
            MessageBody::Terminate { reason } => Self::text("terminate", stored_text(reason).into_owned()),
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
                Self { op: Some(op.0 as i64), outcome: Some(outcome.status().as_str()), ..columns }
            }
            MessageBody::Refused { op, failure } => {
                Self { op: Some(op.0 as i64), ..Self::text("refused", json_text(failure)?) }
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
        Self { kind, body: Some(text), ..Self::default() }
    }

    fn payload(kind: &'static str, payload: &Payload) -> Self {
        let StoredPayload { codec, body, raw } = StoredPayload::of(payload);
        Self { kind, codec, body, raw, ..Self::default() }
    }
}

/// A payload as columns: as text where it is JSON, so that a person can read it.
#[derive(Debug)]
pub(crate) struct StoredPayload {
    pub(crate) codec: Option<String>,
    pub(crate) body: Option<String>,
    pub(crate) raw: Option<Vec<u8>>,
}

impl StoredPayload {
    pub(crate) fn of(payload: &Payload) -> Self {
        let codec = payload.codec().map(|codec| stored_text(codec).into_owned());
        match (&codec, std::str::from_utf8(payload.bytes())) {
            (None, Ok(text)) if !text.contains('\0') => {
                Self { codec, body: Some(text.to_owned()), raw: None }
            }
            _ => Self { codec, body: None, raw: Some(payload.bytes().to_vec()) },
        }
    }

    /// The payload of the columns `codec`, `body` and `raw`, which begin at this one.
    pub(crate) fn read(row: &Row, column: usize) -> Result<Payload, Damaged> {
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

pub(crate) fn json_text(value: &impl serde::Serialize) -> Result<String, WorldError> {
    serde_json::to_string(value).map_err(|error| WorldError::Invalid(error.to_string()))
}

/// The columns of `inboxes.sql` and `unread.sql`.
pub(crate) fn message(row: &Row) -> Result<Message, Damaged> {
    let body = match get::<&str>(row, 3)? {
        "hook" => MessageBody::Hook { name: text(row, 4)?.into(), payload: payload(row)? },
        "cancel" => MessageBody::Cancel { reason: text(row, 8)? },
        "terminate" => MessageBody::Terminate { reason: text(row, 8)? },
        "wake" => MessageBody::Wake { op: maybe_number(row, 5)?.map(OpNumber) },
        "child_started" => MessageBody::ChildStarted { op: op(row)?, run: word::<RunId>(row, 8)? },
        "child_ended" => MessageBody::ChildEnded { op: op(row)?, outcome: outcome(row)? },
        "refused" => MessageBody::Refused { op: op(row)?, failure: json::<Failure>(row, 8)? },
        "attempted" => MessageBody::Attempted { events: events(row)? },
        other => return Err(damaged(3, format!("unknown message kind `{other}`; run a newer build"))),
    };
    let headers = match get::<Option<&str>>(row, 10)? {
        None => Headers::new(),
        Some(_) => json(row, 10)?,
    };
    Ok(Message { position: number(row, 0)?, id: word(row, 1)?, at: moment(row, 2)?, body, headers })
}

fn op(row: &Row) -> Result<OpNumber, Damaged> {
    number(row, 5).map(OpNumber)
}

fn outcome(row: &Row) -> Result<Outcome, Damaged> {
    Ok(match word(row, 6)? {
        Status::Completed => Outcome::Completed(payload(row)?),
        Status::Failed => Outcome::Failed(json(row, 8)?),
        Status::Cancelled => Outcome::Cancelled(json(row, 8)?),
        other => return Err(damaged(6, format!("`{other}` is not how a run ends"))),
    })
}

fn events(row: &Row) -> Result<Vec<Event>, Damaged> {
    Event::read_all(get::<&str>(row, 8)?).map_err(|error| damaged(8, error))
}

fn payload(row: &Row) -> Result<Payload, Damaged> {
    StoredPayload::read(row, 7)
}
