//! Messages as columns.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ColumnValue, PayloadColumns, UnreadableColumn};
use crate::error::WorldError;
use crate::event::{Event, OpNumber, Outcome};
use crate::message::{Headers, HookAddress, MessageBody, NewMessage};
use crate::run::Status;

/// The name of a terminate that runs the compensations first.
const COMPENSATING: &str = "compensating";

/// The content of a message as columns of an inbox. The kind determines which of them have a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageColumns<'a> {
    /// The kind of the message.
    pub kind: Cow<'a, str>,
    /// The name of a hook. Somebody chose it, so it may contain any character.
    pub name: Option<Cow<'a, str>>,
    /// The operation.
    pub op: Option<OpNumber>,
    /// The status of a child that has ended, or the address of a payload that is not plain.
    pub outcome: Option<Cow<'a, str>>,
    /// The codec of a payload.
    pub codec: Option<Cow<'a, str>>,
    /// A payload, a reason, the id of a run, a failure as JSON, or events.
    pub body: Option<ColumnValue<'a>>,
    /// The headers as JSON; `None` if there are none.
    pub headers: Option<Cow<'a, str>>,
}

impl MessageColumns<'static> {
    /// The columns of a message.
    ///
    /// # Errors
    ///
    /// `Invalid` if a value has no JSON form.
    pub fn of(message: &NewMessage) -> Result<Self, WorldError> {
        let headers = (!message.headers.is_empty()).then(|| to_json(&message.headers)).transpose()?;
        Ok(Self { headers: headers.map(Cow::Owned), ..Self::of_body(&message.body)? })
    }

    fn of_body(body: &MessageBody) -> Result<Self, WorldError> {
        Ok(match body {
            MessageBody::Hook { name, payload, to } => Self {
                name: Some(Cow::Owned(name.to_string())),
                outcome: to.to_text().map(Cow::Owned),
                ..Self::of_payload(PayloadColumns::of(payload))
            },
            MessageBody::Cancel { reason } => Self::of_text("cancel", reason.clone()),
            MessageBody::Terminate { reason } => Self::of_text("terminate", reason.clone()),
            // The same kind, since it ends the run without its code as well. Builds that would not see the name cannot
            // read the format of the message.
            MessageBody::Compensate { reason } => {
                Self { name: Some(COMPENSATING.into()), ..Self::of_text("terminate", reason.clone()) }
            }
            MessageBody::Wake { op } => Self { op: *op, ..Self::of_kind("wake") },
            MessageBody::ChildStarted { op, run } => {
                Self { op: Some(*op), ..Self::of_text("child_started", run.to_string()) }
            }
            MessageBody::ChildEnded { op, outcome } => {
                let columns = match outcome {
                    Outcome::Completed(output) => Self::of_payload(PayloadColumns::of(output)),
                    Outcome::Failed(failure) | Outcome::Cancelled(failure) => {
                        Self::of_text("", to_json(failure)?)
                    }
                };
                let outcome = Some(outcome.status().as_str().into());
                Self { kind: "child_ended".into(), op: Some(*op), outcome, ..columns }
            }
            MessageBody::Refused { op, failure } => {
                Self { op: Some(*op), ..Self::of_text("refused", to_json(failure)?) }
            }
            MessageBody::Attempted { events } => {
                let mut text = String::new();
                Event::write_all(events, &mut text);
                Self::of_text("attempted", text)
            }
            MessageBody::Pause { reason } => Self::of_text("pause", reason.clone()),
            MessageBody::Resume => Self::of_kind("resume"),
            MessageBody::Retry(request) => Self::of_text("retry", to_json(request)?),
            MessageBody::TokenTaken { op } => Self { op: Some(*op), ..Self::of_kind("token_taken") },
        })
    }

    fn of_kind(kind: &'static str) -> Self {
        Self { kind: kind.into(), ..Self::default() }
    }

    fn of_text(kind: &'static str, text: String) -> Self {
        Self { body: Some(ColumnValue::Text(text.into())), ..Self::of_kind(kind) }
    }

    /// The columns of a payload for a hook.
    fn of_payload(PayloadColumns { codec, body }: PayloadColumns<'_>) -> Self {
        let body = match body {
            ColumnValue::Text(text) => ColumnValue::Text(text.into_owned().into()),
            ColumnValue::Bytes(bytes) => ColumnValue::Bytes(bytes.into_owned().into()),
        };
        Self {
            codec: codec.map(|codec| codec.into_owned().into()),
            body: Some(body),
            ..Self::of_kind("hook")
        }
    }
}

impl<'a> MessageColumns<'a> {
    /// Whether the body of messages of a kind is a text that somebody chose: it may contain any character, also NUL.
    pub fn is_body_chosen(kind: &str) -> bool {
        matches!(kind, "cancel" | "terminate" | "pause")
    }

    /// The content and the headers of the message that was stored as these columns.
    ///
    /// # Errors
    ///
    /// If this build does not know the kind, or a column does not have the value that messages of this kind have.
    pub fn into_parts(mut self) -> Result<(MessageBody, Headers), UnreadableColumn> {
        let headers = match self.headers.take() {
            None => Headers::new(),
            Some(text) => of_json("headers", &text)?,
        };
        Ok((self.into_body()?, headers))
    }

    fn into_body(mut self) -> Result<MessageBody, UnreadableColumn> {
        Ok(match &*std::mem::take(&mut self.kind) {
            "hook" => MessageBody::Hook {
                name: self.name.take().ok_or_else(|| missing("name"))?.into_owned().into(),
                to: HookAddress::of_text(self.outcome.as_deref())
                    .map_err(|error| UnreadableColumn::new("outcome", error))?,
                payload: self.payload()?.into_payload(),
            },
            "cancel" => MessageBody::Cancel { reason: self.text()?.into_owned() },
            "terminate" if self.name.as_deref() == Some(COMPENSATING) => {
                MessageBody::Compensate { reason: self.text()?.into_owned() }
            }
            "terminate" => MessageBody::Terminate { reason: self.text()?.into_owned() },
            "wake" => MessageBody::Wake { op: self.op },
            "child_started" => {
                MessageBody::ChildStarted { op: self.op()?, run: parse("body", &self.text()?)? }
            }
            "child_ended" => MessageBody::ChildEnded { op: self.op()?, outcome: self.outcome()? },
            "refused" => MessageBody::Refused { op: self.op()?, failure: of_json("body", &self.text()?)? },
            "attempted" => {
                let events = Event::read_all(&self.text()?);
                MessageBody::Attempted {
                    events: events.map_err(|error| UnreadableColumn::new("body", error))?,
                }
            }
            "pause" => MessageBody::Pause { reason: self.text()?.into_owned() },
            "resume" => MessageBody::Resume,
            "retry" => MessageBody::Retry(Box::new(of_json("body", &self.text()?)?)),
            "token_taken" => MessageBody::TokenTaken { op: self.op()? },
            other => {
                let reason = format!("unknown kind of message `{other}`; run a newer build");
                return Err(UnreadableColumn::new("kind", reason));
            }
        })
    }

    fn op(&self) -> Result<OpNumber, UnreadableColumn> {
        self.op.ok_or_else(|| missing("op"))
    }

    fn text(&mut self) -> Result<Cow<'a, str>, UnreadableColumn> {
        self.body.take().ok_or_else(|| missing("body"))?.into_text()
    }

    fn payload(&mut self) -> Result<PayloadColumns<'a>, UnreadableColumn> {
        let body = self.body.take().ok_or_else(|| missing("body"))?;
        Ok(PayloadColumns { codec: self.codec.take(), body })
    }

    /// The outcome of a child.
    fn outcome(&mut self) -> Result<Outcome, UnreadableColumn> {
        let status = self.outcome.take().ok_or_else(|| missing("outcome"))?;
        Ok(match parse("outcome", &status)? {
            Status::Completed => Outcome::Completed(self.payload()?.into_payload()),
            Status::Failed => Outcome::Failed(of_json("body", &self.text()?)?),
            Status::Cancelled => Outcome::Cancelled(of_json("body", &self.text()?)?),
            other => {
                let reason = format!("`{other}` is not the status of a run that has ended");
                return Err(UnreadableColumn::new("outcome", reason));
            }
        })
    }
}

fn missing(column: &'static str) -> UnreadableColumn {
    UnreadableColumn::new(column, "it is missing")
}

fn parse<T: std::str::FromStr<Err: ToString>>(
    column: &'static str,
    text: &str,
) -> Result<T, UnreadableColumn> {
    text.parse().map_err(|error: T::Err| UnreadableColumn::new(column, error))
}

fn of_json<T: DeserializeOwned>(column: &'static str, text: &str) -> Result<T, UnreadableColumn> {
    serde_json::from_str(text).map_err(|error| UnreadableColumn::new(column, error))
}

fn to_json(value: &impl Serialize) -> Result<String, WorldError> {
    serde_json::to_string(value).map_err(|error| WorldError::invalid(error.to_string()))
}

#[cfg(test)]
mod tests;
