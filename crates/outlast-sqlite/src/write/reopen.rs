//! Reopening a run that has ended: its row and the message of the retry, in one transaction.

use outlast_core::refusal::no_run;
use outlast_core::state::{EndedRun, reopened};
use outlast_core::{Reopen, Sent, Status, WorldError};
use rusqlite::{Error, OptionalExtension, Row, ToSql};

use crate::connection::error::Refusal;
use crate::schema::columns;
use crate::schema::row::{marks, number, parsed, to_i64};
use crate::schema::sql;
use crate::write::message::EncodedMessage;
use crate::write::send::{earlier_answer, insert};
use crate::write::tx::Tx;

/// A call of [`World::reopen`](outlast_core::World::reopen), encoded on the caller's thread.
pub(crate) struct EncodedReopen {
    reopen: Reopen,
    message: EncodedMessage,
}

impl EncodedReopen {
    pub(crate) fn encode(reopen: Reopen) -> Result<Self, WorldError> {
        Ok(Self { message: EncodedMessage::encode(reopen.message.clone())?, reopen })
    }
}

/// Reopens a run, and returns the position of the message.
pub(crate) fn reopen(tx: &mut Tx<'_>, encoded: &EncodedReopen) -> Result<Sent, Refusal> {
    let EncodedReopen { reopen, message } = encoded;
    if let Some(sent) = earlier_answer(tx, message)? {
        return Ok(sent);
    }
    let mut statement = tx.connection.prepare_cached(sql::RUN_REOPENABLE)?;
    let found = statement.query_row([&message.run], read).optional()?;
    let (run, position) = found.ok_or_else(|| no_run(reopen.message.run))?;
    drop(statement);
    let columns = reopened(&run, reopen, tx.now)?;
    let sent = Sent { position: position + 1, cancel_was_requested: false, is_repeated: false };
    insert(tx, message, sent)?;
    let (status, position, now) = (Status::Pending, to_i64(sent.position), tx.now.as_micros());
    let format = reopen.message.body.format();
    let numbered: [&dyn ToSql; 5] = [&message.run, &status.as_str(), &now, &position, &format];
    let values = columns::values(&columns);
    tx.execute(&sql::RUN_REOPEN, columns::append_values(&numbered, &values).as_slice())?;
    tx.count_move(run.status, status);
    tx.after_commit.wakes_workers = true;
    Ok(sent)
}

/// Reads the columns of `run_reopenable.sql`.
fn read(row: &Row<'_>) -> Result<(EndedRun, u64), Error> {
    let run = EndedRun {
        status: parsed(row, 0)?,
        marks: marks(row, 1)?,
        events: number(row, 2)?,
        kept: number(row, 3)?,
        continued: number(row, 4)?,
        has_outbox: false,
    };
    Ok((run, number(row, 5)?))
}
