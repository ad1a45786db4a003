//! Sending messages: the inbox row, the count, and the wake-up, together.

use outlast_core::format::FIRST_FORMAT;
use outlast_core::refusal::{Holder, Receiver, check_send, no_run, unreadable_by_holder};
use outlast_core::state::{Awaiting, ready_after_send};
use outlast_core::{EndableWithoutCode, MessageBody, Sent, Status, Timestamp, Wait, WorldError};
use rusqlite::{Error, OptionalExtension, Row, params};

use crate::connection::error::Refusal;
use crate::schema::row::{json, maybe_moment, number, stored, word};
use crate::schema::sql;
use crate::write::message::NewLetter;
use crate::write::tx::Tx;

/// A run that may be sent a message.
pub(crate) struct Addressee {
    pub(crate) status: Status,
    sent: u64,
    consumed: u64,
    next_event: u64,
    kept: u64,
    is_cancel_requested: bool,
    codeless: EndableWithoutCode,
    is_held: bool,
    has_wake_at: bool,
    pub(crate) ready_at: Option<Timestamp>,
    waits: Vec<Wait>,
}

impl Addressee {
    /// The columns of `run_receiver.sql`.
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, Error> {
        Ok(Self {
            status: word(row, 0)?,
            sent: number(row, 1)?,
            consumed: number(row, 2)?,
            next_event: number(row, 3)?,
            kept: number(row, 4)?,
            is_cancel_requested: row.get(5)?,
            codeless: EndableWithoutCode { last_terminate: number(row, 6)?, last_cancel: number(row, 7)? },
            is_held: row.get(8)?,
            has_wake_at: row.get(9)?,
            ready_at: maybe_moment(row, 10)?,
            waits: json(11, row.get_ref(11)?.as_str()?)?,
        })
    }

    fn receiver(&self) -> Receiver<'_> {
        Receiver {
            status: self.status,
            unread: self.sent - self.consumed,
            kept: self.kept,
            waits: &self.waits,
        }
    }

    fn awaiting(&self, codeless: EndableWithoutCode) -> Awaiting {
        Awaiting {
            status: self.status,
            is_held: self.is_held,
            starts_later: self.status == Status::Pending && self.has_wake_at,
            can_end: codeless.can_end(self.consumed, self.next_event),
            ready_at: self.ready_at,
        }
    }
}

/// Sends a message of a client: not one that the run's holder cannot read.
pub(crate) fn send_by_client(tx: &mut Tx<'_>, letter: &NewLetter) -> Result<Sent, Refusal> {
    match unreadable(tx, letter)? {
        Some(refusal) => repeated(tx, letter)?.ok_or(refusal.into()),
        None => send(tx, letter),
    }
}

/// Why the worker that holds the run cannot be sent the message, if that is so.
fn unreadable(tx: &Tx<'_>, letter: &NewLetter) -> Result<Option<WorldError>, Error> {
    let message = &letter.message;
    let format = message.body.format();
    if format == FIRST_FORMAT {
        return Ok(None);
    }
    let mut statement = tx.connection.prepare_cached(sql::RUN_HOLDER)?;
    let refusal = statement.query_row([&letter.run], |row| {
        let host: String = row.get(0)?;
        let holder = Holder { host: &host, pid: number(row, 1)?, format: number(row, 2)? };
        let cannot = format > holder.format;
        Ok(cannot.then(|| unreadable_by_holder(message.run, &holder, &message.body)))
    });
    Ok(refusal.optional()?.flatten())
}

/// Appends a message to a run's inbox, and answers its position.
pub(crate) fn send(tx: &mut Tx<'_>, letter: &NewLetter) -> Result<Sent, Refusal> {
    let message = &letter.message;
    let mut statement = tx.connection.prepare_cached(sql::RUN_RECEIVER)?;
    let found = statement.query_row([&letter.run], Addressee::read).optional()?;
    let Some(run) = found else { return Err(no_run(message.run).into()) };
    if let Err(refusal) = check_send(message.run, run.receiver(), &message.body) {
        return repeated(tx, letter)?.ok_or(refusal.into());
    }
    let sent = Sent { position: run.sent + 1, cancel_was_requested: run.is_cancel_requested };
    if !insert(tx, letter, sent)? {
        return repeated(tx, letter)?.ok_or_else(|| {
            WorldError::Unavailable(format!("message {} was neither new nor there", letter.id)).into()
        });
    }
    let codeless = run.codeless.after(&message.body, sent.position);
    let ready_at = ready_after_send(&run.awaiting(codeless), tx.now);
    tx.execute(
        sql::RUN_SENT,
        params![
            letter.run,
            stored(sent.position),
            tx.now.as_micros(),
            ready_at.map(Timestamp::as_micros),
            stored(codeless.last_terminate),
            stored(codeless.last_cancel),
            matches!(message.body, MessageBody::Cancel { .. }),
            message.body.format(),
        ],
    )?;
    tx.after.rings = true;
    Ok(sent)
}

/// Inserts the row of the inbox; `false` when the message was sent before.
fn insert(tx: &Tx<'_>, letter: &NewLetter, sent: Sent) -> Result<bool, Error> {
    let says = &letter.says;
    let added = tx.execute(
        sql::INBOX_INSERT,
        params![
            letter.run,
            stored(sent.position),
            letter.id,
            tx.now.as_micros(),
            says.kind,
            says.name,
            says.op,
            says.outcome,
            says.codec,
            says.body,
            letter.headers,
            sent.cancel_was_requested,
        ],
    )?;
    Ok(added > 0)
}

/// What a message was answered with that was sent before.
fn repeated(tx: &Tx<'_>, letter: &NewLetter) -> Result<Option<Sent>, Error> {
    let mut statement = tx.connection.prepare_cached(sql::INBOX_POSITION)?;
    let sent = statement.query_row([&letter.run, &letter.id], |row| {
        Ok(Sent { position: number(row, 0)?, cancel_was_requested: row.get(1)? })
    });
    sent.optional()
}
