//! Sending messages: inserting the row of the inbox, counting it, and waking the run, in one transaction.

use outlast_core::format::FIRST_FORMAT;
use outlast_core::refusal::{Holder, Receiver, check_send, no_run, unreadable_by_holder};
use outlast_core::state::{Awaiting, PauseEffect, marks_after_send, ready_after_send};
use outlast_core::{EndableWithoutCode, Marks, MessageBody, Sent, Status, Timestamp, Wait, WorldError};
use rusqlite::{Error, OptionalExtension, Row, params};

use crate::connection::error::Refusal;
use crate::schema::row::{json, marks, number, parsed, timestamp_or_null, to_i64};
use crate::schema::sql;
use crate::write::message::{EncodedMessage, parameter};
use crate::write::tokens::check_token;
use crate::write::tx::Tx;

/// The state of a run that decides whether it accepts a message.
pub(crate) struct ReceivingRun {
    pub(crate) status: Status,
    sent: u64,
    consumed: u64,
    next_event: u64,
    kept: u64,
    is_cancel_requested: bool,
    endable: EndableWithoutCode,
    is_held: bool,
    wake_at: Option<Timestamp>,
    pub(crate) ready_at: Option<Timestamp>,
    waits: Vec<Wait>,
    pub(crate) marks: Marks,
    deadline: Option<Timestamp>,
}

impl ReceivingRun {
    /// Reads the columns of `run_receiver.sql`.
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, Error> {
        Ok(Self {
            status: parsed(row, 0)?,
            sent: number(row, 1)?,
            consumed: number(row, 2)?,
            next_event: number(row, 3)?,
            kept: number(row, 4)?,
            is_cancel_requested: row.get(5)?,
            endable: EndableWithoutCode { last_terminate: number(row, 6)?, last_cancel: number(row, 7)? },
            is_held: row.get(8)?,
            wake_at: timestamp_or_null(row, 9)?,
            ready_at: timestamp_or_null(row, 10)?,
            waits: json(row, 11)?,
            marks: marks(row, 12)?,
            deadline: timestamp_or_null(row, 13)?,
        })
    }

    fn receiver(&self) -> Receiver<'_> {
        Receiver {
            status: self.status,
            unread: self.sent - self.consumed,
            kept: self.kept,
            waits: &self.waits,
            is_cancel_requested: self.is_cancel_requested,
        }
    }

    /// The marks of the run after this message.
    fn marks_after(&self, body: &MessageBody) -> Marks {
        let is_cancel_requested = self.is_cancel_requested || matches!(body, MessageBody::Cancel { .. });
        marks_after_send(self.marks, body, is_cancel_requested)
    }

    fn awaiting(&self, endable: EndableWithoutCode, marks: Marks) -> Awaiting {
        let begins_at = self.wake_at.filter(|_| self.status == Status::Pending);
        Awaiting {
            status: self.status,
            is_held: self.is_held,
            starts_later: begins_at.is_some(),
            can_end: endable.can_end(self.consumed, self.next_event),
            ready_at: self.ready_at,
            pause: PauseEffect::of(self.marks, marks, self.deadline, begins_at),
        }
    }
}

/// Sends a message of a client. A message that the run's holder cannot read is refused.
pub(crate) fn send_by_client(tx: &mut Tx<'_>, encoded: &EncodedMessage) -> Result<Sent, Refusal> {
    match unreadable_for_holder(tx, encoded)? {
        Some(refusal) => earlier_answer(tx, encoded)?.ok_or(refusal.into()),
        None => match check_token(tx, encoded.message.run, &encoded.message.body) {
            Ok(()) => send(tx, encoded),
            // A message that was sent before keeps its answer, and one to a run that has ended is refused for that.
            Err(Refusal::World(refusal)) => match earlier_answer(tx, encoded)? {
                Some(earlier) => Ok(earlier),
                None => Err(refusal_of_closed(tx, encoded, refusal)?),
            },
            Err(error) => Err(error),
        },
    }
}

/// The refusal of a message to a token that its run does not hold: that of the run, if it has ended or does not exist.
fn refusal_of_closed(tx: &Tx<'_>, encoded: &EncodedMessage, refusal: WorldError) -> Result<Refusal, Refusal> {
    let message = &encoded.message;
    let mut statement = tx.connection.prepare_cached(sql::RUN_RECEIVER)?;
    let found = statement.query_row([&encoded.run], ReceivingRun::read).optional()?;
    let Some(run) = found else { return Ok(no_run(message.run).into()) };
    Ok(check_send(message.run, run.receiver(), &message.body).err().unwrap_or(refusal).into())
}

/// The refusal of a message whose format the run's holder cannot read; `None` if it can.
fn unreadable_for_holder(tx: &Tx<'_>, encoded: &EncodedMessage) -> Result<Option<WorldError>, Error> {
    let message = &encoded.message;
    let format = message.body.format();
    if format == FIRST_FORMAT {
        return Ok(None);
    }
    let mut statement = tx.connection.prepare_cached(sql::RUN_HOLDER)?;
    let refusal = statement.query_row([&encoded.run], |row| {
        let host: String = row.get(0)?;
        let holder = Holder { host: &host, pid: number(row, 1)?, format: number(row, 2)? };
        let is_unreadable = format > holder.format;
        Ok(is_unreadable.then(|| unreadable_by_holder(message.run, &holder, &message.body)))
    });
    Ok(refusal.optional()?.flatten())
}

/// Appends a message to the inbox of a run, and returns its position.
pub(crate) fn send(tx: &mut Tx<'_>, encoded: &EncodedMessage) -> Result<Sent, Refusal> {
    let message = &encoded.message;
    let mut statement = tx.connection.prepare_cached(sql::RUN_RECEIVER)?;
    let found = statement.query_row([&encoded.run], ReceivingRun::read).optional()?;
    let Some(run) = found else { return Err(no_run(message.run).into()) };
    if let Err(refusal) = check_send(message.run, run.receiver(), &message.body) {
        return earlier_answer(tx, encoded)?.ok_or(refusal.into());
    }
    let cancel_was_requested = run.is_cancel_requested;
    let sent = Sent { position: run.sent + 1, cancel_was_requested, is_repeated: false };
    if !insert(tx, encoded, sent)? {
        return earlier_answer(tx, encoded)?.ok_or_else(|| {
            let error = format!("message {} was not inserted, but does not exist; try again", encoded.id);
            WorldError::unavailable(error).into()
        });
    }
    let endable = run.endable.after(&message.body, sent.position);
    let marks = run.marks_after(&message.body);
    let ready_at = ready_after_send(&run.awaiting(endable, marks), tx.now);
    tx.execute(
        sql::RUN_SENT,
        params![
            encoded.run,
            to_i64(sent.position),
            tx.now.as_micros(),
            ready_at.map(Timestamp::as_micros),
            to_i64(endable.last_terminate),
            to_i64(endable.last_cancel),
            matches!(message.body, MessageBody::Cancel { .. }),
            message.body.format(),
            marks.bits(),
        ],
    )?;
    tx.after_commit.wakes_workers = true;
    Ok(sent)
}

/// Inserts the row of the inbox; `false` if the message was already sent.
pub(crate) fn insert(tx: &Tx<'_>, encoded: &EncodedMessage, sent: Sent) -> Result<bool, Error> {
    let columns = &encoded.columns;
    let added = tx.execute(
        sql::INBOX_INSERT,
        params![
            encoded.run,
            to_i64(sent.position),
            encoded.id,
            tx.now.as_micros(),
            columns.kind,
            columns.name,
            columns.op.map(|op| to_i64(op.0)),
            columns.outcome,
            columns.codec,
            columns.body.as_ref().map(parameter),
            columns.headers,
            sent.cancel_was_requested,
        ],
    )?;
    Ok(added > 0)
}

/// The answer to a message that was already sent; `None` if it was not.
pub(crate) fn earlier_answer(tx: &Tx<'_>, encoded: &EncodedMessage) -> Result<Option<Sent>, Error> {
    let mut statement = tx.connection.prepare_cached(sql::INBOX_POSITION)?;
    let sent = statement.query_row([&encoded.run, &encoded.id], |row| {
        Ok(Sent { position: number(row, 0)?, cancel_was_requested: row.get(1)?, is_repeated: true })
    });
    sent.optional()
}
