//! Sending messages: the inbox row, the count, and the wake-up, together.

use outlast_core::refusal::{check_send, no_run};
use outlast_core::{Status, WorldError};
use rusqlite::{OptionalExtension, params};

use crate::error::Refusal;
use crate::message::NewLetter;
use crate::row::{number, stored, word};
use crate::sql;
use crate::tx::Tx;

/// Appends a message to a run's inbox, and answers its position.
pub(crate) fn send(tx: &mut Tx<'_>, letter: &NewLetter) -> Result<u64, Refusal> {
    let mut statement = tx.connection.prepare_cached(sql::RUN_RECEIVER)?;
    let receiver = statement.query_row([&letter.run], |row| {
        let is_fresh = number::<u64>(row, 3)? <= 1;
        Ok((word::<Status>(row, 0)?, number::<u64>(row, 1)?, number::<u64>(row, 2)?, is_fresh))
    });
    let Some((status, sent, consumed, is_fresh)) = receiver.optional()? else {
        return Err(no_run(letter.message.run).into());
    };
    let message = &letter.message;
    if let Err(refusal) = check_send(message.run, status, sent - consumed, &message.body) {
        return repeated(tx, letter)?.ok_or(refusal.into());
    }
    let (position, says) = (sent + 1, &letter.says);
    let added = tx.execute(
        sql::INBOX_INSERT,
        params![
            letter.run,
            stored(position),
            letter.id,
            tx.now.as_micros(),
            says.kind,
            says.name,
            says.op,
            says.outcome,
            says.codec,
            says.body,
            letter.headers,
        ],
    )?;
    if added == 0 {
        return repeated(tx, letter)?.ok_or_else(|| {
            WorldError::Unavailable(format!("message {} was neither new nor there", letter.id)).into()
        });
    }
    let needs_no_code = message.body.needs_no_code(is_fresh);
    tx.execute(sql::RUN_SENT, params![letter.run, stored(position), tx.now.as_micros(), needs_no_code])?;
    tx.after.rings = true;
    Ok(position)
}

/// The position of a message that was sent before.
fn repeated(tx: &Tx<'_>, letter: &NewLetter) -> Result<Option<u64>, rusqlite::Error> {
    let mut statement = tx.connection.prepare_cached(sql::INBOX_POSITION)?;
    statement.query_row([&letter.run, &letter.id], |row| number(row, 0)).optional()
}
