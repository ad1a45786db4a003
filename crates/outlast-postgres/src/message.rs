//! Messages as rows of the inbox, and back.

use outlast_core::limits::INBOX_MESSAGES_MAX;
use outlast_core::{
    Event, Failure, Headers, Message, MessageBody, NewMessage, OpNumber, Outcome, Payload, RunId, Status,
    WorldError,
};
use tokio_postgres::Row;

use crate::row::{Damaged, damaged, get, json, maybe_number, maybe_text, moment, number, stored, text, word};
use crate::store::Values;
use crate::text::stored as stored_text;

/// Messages, column by column.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    pub(crate) runs: Vec<String>,
    ids: Vec<String>,
    kinds: Vec<&'static str>,
    names: Vec<Option<String>>,
    ops: Vec<Option<i64>>,
    outcomes: Vec<Option<&'static str>>,
    codecs: Vec<Option<String>>,
    bodies: Vec<Option<String>>,
    raws: Vec<Option<Vec<u8>>>,
    headers: Vec<Option<String>>,
    limits: Vec<i64>,
    codeless: Vec<&'static str>,
}

/// What a message says, as columns.
#[derive(Default)]
struct Says {
    kind: &'static str,
    name: Option<String>,
    op: Option<i64>,
    outcome: Option<&'static str>,
    codec: Option<String>,
    body: Option<String>,
    raw: Option<Vec<u8>>,
}

impl Letters {
    /// Writes messages out.
    pub(crate) fn encode(messages: &[NewMessage]) -> Result<Self, WorldError> {
        let mut letters = Self::default();
        messages.iter().try_for_each(|message| letters.add(message))?;
        Ok(letters)
    }

    /// Adds others.
    pub(crate) fn extend(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.ids.extend(other.ids);
        self.kinds.extend(other.kinds);
        self.names.extend(other.names);
        self.ops.extend(other.ops);
        self.outcomes.extend(other.outcomes);
        self.codecs.extend(other.codecs);
        self.bodies.extend(other.bodies);
        self.raws.extend(other.raws);
        self.headers.extend(other.headers);
        self.limits.extend(other.limits);
        self.codeless.extend(other.codeless);
    }

    /// How many bytes their bodies have.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.bodies.iter().flatten().map(String::len);
        texts.chain(self.raws.iter().flatten().map(Vec::len)).sum()
    }

    fn add(&mut self, message: &NewMessage) -> Result<(), WorldError> {
        let says = Says::of(message)?;
        let headers = (!message.headers.is_empty()).then(|| json_text(&message.headers)).transpose()?;
        self.runs.push(message.run.to_string());
        self.ids.push(message.id.to_string());
        self.kinds.push(says.kind);
        self.names.push(says.name);
        self.ops.push(says.op.map(i64::from));
        self.outcomes.push(says.outcome);
        self.codecs.push(says.codec);
        self.bodies.push(says.body);
        self.raws.push(says.raw);
        self.headers.push(headers);
        let is_exempt = message.body.is_exempt_from_limit();
        self.limits.push(if is_exempt { i64::MAX } else { stored(INBOX_MESSAGES_MAX) });
        self.codeless.push(match (message.body.needs_no_code(true), message.body.needs_no_code(false)) {
            (_, true) => "always",
            (true, false) => "fresh",
            (false, false) => "never",
        });
        Ok(())
    }

    /// The parameters that stand for messages, in the order of the functions.
    pub(crate) fn values(&self) -> [Values1<'_>; 12] {
        [
            &self.runs,
            &self.ids,
            &self.kinds,
            &self.names,
            &self.ops,
            &self.outcomes,
            &self.codecs,
            &self.bodies,
            &self.raws,
            &self.headers,
            &self.limits,
            &self.codeless,
        ]
    }
}

/// One value of a statement's parameters.
pub(crate) type Values1<'a> = &'a (dyn tokio_postgres::types::ToSql + Sync);

const _: fn(&[Values1<'_>]) = |values| {
    let _: Values<'_> = values;
};

impl Says {
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
                let says = match outcome {
                    Outcome::Completed(output) => Self::payload("child_ended", output),
                    Outcome::Failed(failure) | Outcome::Cancelled(failure) => {
                        Self::text("child_ended", json_text(failure)?)
                    }
                };
                Self { op: Some(op.0 as i64), outcome: Some(outcome.status().as_str()), ..says }
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
        let codec = payload.codec().map(|codec| stored_text(codec).into_owned());
        // JSON as text, so that a person can read it.
        match (&codec, std::str::from_utf8(payload.bytes())) {
            (None, Ok(text)) if !text.contains('\0') => Self::text(kind, text.to_owned()),
            _ => Self { kind, codec, raw: Some(payload.bytes().to_vec()), ..Self::default() },
        }
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
    let bytes = match get::<Option<&[u8]>>(row, 9)? {
        Some(raw) => raw.to_vec(),
        None => get::<&str>(row, 8)?.as_bytes().to_vec(),
    };
    Ok(match maybe_text(row, 7)? {
        None => Payload::from_json_text(bytes),
        Some(codec) => Payload::coded(codec, bytes),
    })
}
