//! Sending messages: the inbox row, the count, and the wake-up, together.

use outlast_core::refusal::{check_send, no_run};
use outlast_core::{MessageBody, NewMessage, Status, WorldError};
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params};

use crate::error::Refusal;
use crate::row::{number, stored, word};
use crate::sql;
use crate::tx::Tx;

/// A message, written out by the caller so that the writer does not have to.
pub(crate) struct NewLetter {
    message: NewMessage,
    run: String,
    id: String,
    kind: &'static str,
    name: Option<String>,
    codec: Option<String>,
    body: Value,
    headers: Option<String>,
}

impl NewLetter {
    pub(crate) fn encode(message: NewMessage) -> Result<Self, WorldError> {
        let (kind, name, codec, body) = match &message.body {
            MessageBody::Hook { name, payload } => {
                let bytes = payload.bytes().to_vec();
                // JSON as text, so that a person can read it.
                let body = match (payload.codec(), String::from_utf8(bytes)) {
                    (None, Ok(text)) => Value::Text(text),
                    (_, Ok(text)) => Value::Blob(text.into_bytes()),
                    (_, Err(error)) => Value::Blob(error.into_bytes()),
                };
                ("hook", Some(name.to_string()), payload.codec().map(str::to_owned), body)
            }
            MessageBody::Cancel { reason } => ("cancel", None, None, Value::Text(reason.clone())),
            _ => {
                return Err(WorldError::Invalid(format!(
                    "message {} is of a kind that this world does not know; use a newer one",
                    message.id
                )));
            }
        };
        let headers = (!message.headers.is_empty()).then(|| serde_json::to_string(&message.headers));
        let headers = headers.transpose().map_err(|error| WorldError::Invalid(error.to_string()))?;
        let (run, id) = (message.run.to_string(), message.id.to_string());
        Ok(Self { message, run, id, kind, name, codec, body, headers })
    }
}

/// Appends a message to a run's inbox, and answers its position.
pub(crate) fn send(tx: &mut Tx<'_>, letter: &NewLetter) -> Result<u64, Refusal> {
    let mut statement = tx.connection.prepare_cached(sql::RUN_RECEIVER)?;
    let receiver = statement.query_row([&letter.run], |row| {
        Ok((word::<Status>(row, 0)?, number::<u64>(row, 1)?, number::<u64>(row, 2)?))
    });
    let Some((status, sent, consumed)) = receiver.optional()? else {
        return Err(no_run(letter.message.run).into());
    };
    let message = &letter.message;
    if let Err(refusal) = check_send(message.run, status, sent - consumed, &message.body) {
        return repeated(tx, letter)?.ok_or(refusal.into());
    }
    let position = sent + 1;
    let added = tx.execute(
        sql::INBOX_INSERT,
        params![
            letter.run,
            stored(position),
            letter.id,
            tx.now.as_micros(),
            letter.kind,
            letter.name,
            letter.codec,
            letter.body,
            letter.headers,
        ],
    )?;
    if added == 0 {
        return repeated(tx, letter)?.ok_or_else(|| {
            WorldError::Unavailable(format!("message {} was neither new nor there", letter.id)).into()
        });
    }
    let needs_no_code = letter.message.body.needs_no_code();
    tx.execute(sql::RUN_SENT, params![letter.run, stored(position), tx.now.as_micros(), needs_no_code])?;
    tx.after.rings = true;
    Ok(position)
}

/// The position of a message that was sent before.
fn repeated(tx: &Tx<'_>, letter: &NewLetter) -> Result<Option<u64>, rusqlite::Error> {
    let mut statement = tx.connection.prepare_cached(sql::INBOX_POSITION)?;
    statement.query_row([&letter.run, &letter.id], |row| number(row, 0)).optional()
}
