//! Streams and published state: chunks of steps, and what the turns of workflows write. Core decides where chunks go; this
//! module reads and writes the rows.

use outlast_core::limits::STREAMS_MAX;
use outlast_core::refusal::{attempt_fenced, missing_chunks, session_gone, streams_fenced, too_many_streams};
use outlast_core::stream::{StreamCloser, StreamRow, WriterRow, restarted_pack, write_pack};
use outlast_core::{
    AttemptId, OpNumber, RunId, SessionId, StateWrite, StreamAppend, StreamWrite, StreamWritten,
    WorkflowWrites,
};
use rusqlite::types::Value;
use rusqlite::{Error, OptionalExtension, params};

use crate::connection::error::Refusal;
use crate::read::streams::read_stream_row;
use crate::schema::row::{number, parsed, parsed_or_null, to_i64};
use crate::schema::sql;
use crate::write::message::payload_to_value;
use crate::write::turn::EncodedTurn;
use crate::write::tx::{SessionOwner, Tx};

/// Chunks of a step, encoded on the caller's thread to relieve the writer.
pub(crate) struct EncodedStreamWrite {
    session: SessionId,
    run: String,
    write: StreamWrite,
    pack: String,
}

impl EncodedStreamWrite {
    pub(crate) fn encode(session: SessionId, write: StreamWrite) -> Self {
        Self { session, run: write.run.to_string(), pack: write_pack(&write.chunks), write }
    }
}

/// Who wrote the entries of a row: `op` and `attempt` of a step.
type PackOrigin = Option<(OpNumber, AttemptId)>;

/// Writes chunks of a step. Chunks that the attempt has already written are skipped, so the call can be repeated. It is
/// refused if a newer attempt has written, or if chunks before these are missing.
pub(crate) fn write_chunks(tx: &mut Tx<'_>, new: &EncodedStreamWrite) -> Result<StreamWritten, Refusal> {
    let EncodedStreamWrite { session, run, write, .. } = new;
    check_holder(tx, *session, write.run, run)?;
    if write.attempt.session() != *session {
        return Err(attempt_fenced(write.run, write.attempt).into());
    }
    let writers = writers(tx, run, write.op)?;
    if writers.iter().any(|(_, writer)| writer.is_newer_than(write.attempt)) {
        return Err(attempt_fenced(write.run, write.attempt).into());
    }
    let of_stream = writers.iter().find(|(stream, _)| **stream == *write.stream).map(|(_, writer)| *writer);
    let next = of_stream.filter(|writer| writer.attempt == write.attempt).map_or(0, |writer| writer.next);
    if write.first > next {
        return Err(missing_chunks(&write.stream, write.first, next).into());
    }
    if stream_row(tx, run, &write.stream)?.is_none() && !has_room(tx, run)? {
        return Err(too_many_streams(write.run).into());
    }
    // The first write of an attempt restarts every stream to which an older attempt has written.
    for (stream, writer) in writers {
        if writer.attempt != write.attempt {
            restart(tx, new, &stream, writer)?;
        }
    }
    append_chunks(tx, new, next)
}

/// Refuses a write of a session that has ended or does not hold the run.
fn check_holder(tx: &mut Tx<'_>, session: SessionId, run: RunId, id: &str) -> Result<(), Refusal> {
    match tx.session_owner(session)? {
        SessionOwner::Ended => return Err(session_gone(session).into()),
        SessionOwner::ThisProcess if tx.cached_lease(run, session).is_some() => return Ok(()),
        _ => {}
    }
    let mut statement = tx.connection.prepare_cached(sql::RUN_OWNER)?;
    let owner = statement.query_row([id], |row| parsed_or_null::<SessionId>(row, 0)).optional()?.flatten();
    if owner == Some(session) { Ok(()) } else { Err(streams_fenced(run).into()) }
}

/// The streams to which an operation has written.
fn writers(tx: &Tx<'_>, run: &str, op: OpNumber) -> Result<Vec<(String, WriterRow)>, Error> {
    let mut statement = tx.connection.prepare_cached(sql::STREAM_WRITERS)?;
    let rows = statement.query_map(params![run, to_i64(op.0)], |row| {
        let writer = WriterRow { attempt: parsed(row, 1)?, from: number(row, 2)?, next: number(row, 3)? };
        Ok((row.get(0)?, writer))
    })?;
    rows.collect()
}

fn put_writer(
    tx: &Tx<'_>,
    run: &str,
    op: OpNumber,
    stream: &str,
    writer: &WriterRow,
) -> Result<usize, Error> {
    let WriterRow { attempt, from, next } = writer;
    let values = params![run, to_i64(op.0), stream, attempt.to_string(), to_i64(*from), to_i64(*next)];
    tx.execute(sql::STREAM_WRITER_PUT, values)
}

/// The row of a stream, if it exists.
fn stream_row(tx: &Tx<'_>, run: &str, stream: &str) -> Result<Option<StreamRow>, Error> {
    let mut statement = tx.connection.prepare_cached(sql::STREAM_READ)?;
    statement.query_row([run, stream], |row| read_stream_row(row).map(|(_, row)| row)).optional()
}

/// Whether a run may have another stream.
fn has_room(tx: &Tx<'_>, run: &str) -> Result<bool, Error> {
    let mut statement = tx.connection.prepare_cached(sql::STREAMS_COUNT)?;
    Ok(statement.query_row([run], |row| number::<u64>(row, 0))? < STREAMS_MAX)
}

/// The row of a new stream. Chunks of a deleted run with the same id, which nobody can read any more, are deleted.
fn new_stream(tx: &Tx<'_>, run: &str, stream: &str) -> Result<StreamRow, Error> {
    tx.execute(sql::CHUNKS_TRIM, params![run, stream, i64::MAX])?;
    Ok(StreamRow::default())
}

/// Stores the row of a stream, and deletes entries that it does not keep any more.
fn put_stream(tx: &Tx<'_>, run: &str, stream: &str, before: u64, row: &StreamRow) -> Result<(), Error> {
    let closed_by = row.closed_by.map(|closer| match closer {
        StreamCloser::Workflow => "workflow".to_owned(),
        StreamCloser::Step(op) => op.0.to_string(),
    });
    tx.execute(
        sql::STREAM_PUT,
        params![
            run,
            stream,
            to_i64(row.first),
            to_i64(row.end),
            closed_by,
            row.keep_last.map(to_i64),
            to_i64(row.dropped),
            to_i64(row.late),
            row.turn.map(|turn| turn.to_string()),
        ],
    )?;
    if row.first > before {
        tx.execute(sql::CHUNKS_TRIM, params![run, stream, to_i64(row.first)])?;
    }
    Ok(())
}

/// Stores consecutive entries of a stream.
fn put_pack(
    tx: &Tx<'_>,
    run: &str,
    stream: &str,
    (first, count): (u64, u64),
    origin: PackOrigin,
    pack: &str,
) -> Result<usize, Error> {
    let (op, attempt) = (origin.map(|(op, _)| to_i64(op.0)), origin.map(|(_, attempt)| attempt.to_string()));
    let (next, at) = (to_i64(first + count), tx.now.as_micros());
    tx.execute(sql::CHUNKS_INSERT, params![run, stream, to_i64(first), next, at, op, attempt, pack])
}

/// Appends the entry `restarted` to a stream to which an older attempt has written.
fn restart(tx: &Tx<'_>, new: &EncodedStreamWrite, stream: &str, mut writer: WriterRow) -> Result<(), Error> {
    let EncodedStreamWrite { run, write, .. } = new;
    let Some(mut row) = stream_row(tx, run, stream)? else { return Ok(()) };
    let before = row.first;
    let restart = row.restart(write.op, &mut writer, write.attempt);
    let origin = Some((write.op, write.attempt));
    put_pack(tx, run, stream, (restart.index, 1), origin, &restarted_pack(restart.from))?;
    put_writer(tx, run, write.op, stream, &writer)?;
    put_stream(tx, run, stream, before, &row)
}

/// Appends the chunks of a write. The attempt has written `next` chunks to the stream before, which may include some of
/// these.
fn append_chunks(tx: &mut Tx<'_>, new: &EncodedStreamWrite, next: u64) -> Result<StreamWritten, Refusal> {
    let EncodedStreamWrite { run, write, pack, .. } = new;
    let StreamWrite { stream, op, attempt, chunks, .. } = write;
    let mut row = match stream_row(tx, run, stream)? {
        Some(row) => row,
        None => new_stream(tx, run, stream)?,
    };
    let known = usize::try_from(next - write.first).unwrap_or(usize::MAX).min(chunks.len());
    let count = (chunks.len() - known) as u64;
    let writers = writers(tx, run, *op)?.into_iter().find(|(name, _)| **name == **stream);
    let mut writer =
        writers.map_or(WriterRow { attempt: *attempt, from: row.end, next: 0 }, |(_, writer)| writer);
    writer.next += count;
    let before = row.first;
    let closer = write.closes.then_some(StreamCloser::Step(*op));
    let placement = row.append(count, write.keep_last, closer);
    if let Some(index) = placement.index {
        let suffix;
        let pack = if known == 0 {
            pack
        } else {
            suffix = write_pack(&chunks[known..]);
            &suffix
        };
        put_pack(tx, run, stream, (index, count), Some((*op, *attempt)), pack)?;
    }
    put_writer(tx, run, *op, stream, &writer)?;
    put_stream(tx, run, stream, before, &row)?;
    tx.after_commit.written_runs.push(write.run);
    Ok(StreamWritten { is_closed: placement.is_closed, dropped: placement.dropped })
}

/// What a turn writes to the streams and the state of its run, encoded on the caller's thread.
pub(crate) struct EncodedWrites {
    streams: Vec<(StreamAppend, String)>,
    state: Option<StateWrite>,
}

impl EncodedWrites {
    /// `None` if the turn writes nothing.
    pub(crate) fn encode(writes: &WorkflowWrites) -> Option<Self> {
        if writes.is_empty() {
            return None;
        }
        let streams = writes.streams.iter().map(|append| (append.clone(), write_pack(&append.chunks)));
        Some(Self { streams: streams.collect(), state: writes.state.clone() })
    }
}

/// Writes what a turn writes to the streams and the state of its run.
pub(crate) fn apply_writes(tx: &mut Tx<'_>, turn: &EncodedTurn, writes: &EncodedWrites) -> Result<(), Error> {
    for (append, pack) in &writes.streams {
        append_of_turn(tx, turn, append, pack)?;
    }
    if let Some(StateWrite { payload, dropped }) = &writes.state {
        let codec = payload.as_ref().and_then(|payload| payload.codec());
        let body = payload.as_ref().map_or(Value::Null, payload_to_value);
        let at = tx.now.as_micros();
        tx.execute(sql::STATE_PUT, params![turn.run, turn.id, at, to_i64(*dropped), codec, body])?;
    }
    tx.after_commit.written_runs.push(turn.terms.run);
    Ok(())
}

/// Appends the chunks of a turn to a stream. Does nothing if the turn has appended them before, or if the run has too
/// many streams.
fn append_of_turn(tx: &Tx<'_>, turn: &EncodedTurn, append: &StreamAppend, pack: &str) -> Result<(), Error> {
    let (run, stream) = (&turn.run, &append.stream);
    let mut row = match stream_row(tx, run, stream)? {
        Some(row) => row,
        None if has_room(tx, run)? => new_stream(tx, run, stream)?,
        None => return Ok(()),
    };
    if row.turn.replace(turn.terms.id) == Some(turn.terms.id) {
        return Ok(());
    }
    let (before, count) = (row.first, append.chunks.len() as u64);
    let placement = row.append(count, append.keep_last, append.closes.then_some(StreamCloser::Workflow));
    row.dropped += append.dropped;
    row.late += append.late;
    if let Some(index) = placement.index {
        put_pack(tx, run, stream, (index, count), None, pack)?;
    }
    put_stream(tx, run, stream, before, &row)
}
