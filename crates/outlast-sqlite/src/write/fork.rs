//! Forks: a run with the turns of another one, in one transaction.

use outlast_core::refusal::{no_run, not_forkable};
use outlast_core::{Event, Fork, RowChange, Started, WorldError};
use rusqlite::{OptionalExtension, params};

use crate::connection::error::Refusal;
use crate::schema::row::{number, to_i64};
use crate::schema::sql;
use crate::write::message::EncodedMessage;
use crate::write::send::send;
use crate::write::start::{InsertOutcome, insert};
use crate::write::tx::Tx;

/// A call of [`World::fork`](outlast_core::World::fork), encoded on the caller's thread.
pub(crate) struct EncodedFork {
    fork: Fork,
    /// The events of the rewritten turns.
    events: Vec<String>,
    messages: Vec<EncodedMessage>,
}

impl EncodedFork {
    pub(crate) fn encode(fork: Fork) -> Result<Self, WorldError> {
        let encode = |events: &[Event]| {
            let mut text = String::new();
            Event::write_all(events, &mut text);
            text
        };
        let events = fork.rewritten.iter().map(|turn| encode(&turn.events)).collect();
        let messages = fork.messages.iter().cloned().map(EncodedMessage::encode);
        Ok(Self { events, messages: messages.collect::<Result<_, _>>()?, fork })
    }
}

/// Starts the fork: inserts its row, copies the turns before the cut from the other run (except those that were rewritten,
/// which are inserted), and sends its messages. Everything that can be refused is checked before the first change.
pub(crate) fn fork(tx: &mut Tx<'_>, encoded: &EncodedFork) -> Result<Started, Refusal> {
    let EncodedFork { fork, events, messages } = encoded;
    let (id, other) = (fork.start.run.to_string(), fork.origin.of.to_string());
    let started = Started { run: fork.start.run, is_new: true };
    if tx.connection.prepare_cached(sql::RUN_EXISTS)?.exists([&id])? {
        return Ok(started);
    }
    let row = fork.row(tx.now)?;
    let format: Option<u32> =
        tx.connection.prepare_cached(sql::RUN_FORMAT)?.query_row([&other], |row| row.get(0)).optional()?;
    let format = row.format.max(format.ok_or_else(|| no_run(fork.origin.of))?);
    let ranges: Vec<_> = fork.ranges.iter().map(|range| (*range.start(), *range.end())).collect();
    let ranges = serde_json::to_string(&ranges).unwrap_or_default();
    let mut turns_count = tx.connection.prepare_cached(sql::TURNS_COUNT)?;
    let copied: u64 = turns_count.query_row(params![other, ranges], |row| number(row, 0))?;
    drop(turns_count);
    // Turns were deleted since the fork was planned.
    if copied != fork.copied {
        return Err(not_forkable(fork.origin.of).into());
    }
    let row = RowChange { format, ..row };
    if !matches!(insert(tx, &fork.start, &row, "[]")?, InsertOutcome::Inserted) {
        return Ok(started);
    }
    tx.execute(sql::TURNS_COPY, params![other, id, ranges])?;
    for (turn, events) in fork.rewritten.iter().zip(events) {
        let (seq, turn_id, at) = (to_i64(turn.seq), turn.id.to_string(), turn.at.as_micros());
        tx.execute(sql::TURN_INSERT, params![id, seq, turn_id, at, &*turn.build, events])?;
    }
    for message in messages {
        send(tx, message)?;
    }
    tx.after_commit.wakes_workers = true;
    Ok(started)
}
