//! Streams and published state.

use std::sync::Arc;

use outlast_core::limits::{CHUNKS_READ_MAX, PACKS_READ_MAX};
use outlast_core::refusal::no_run;
use outlast_core::stream::{Pack, StreamCloser, StreamRow, entries_of_pack, first_read};
use outlast_core::{ChunkOrigin, OpNumber, PublishedState, RunId, StateView, StreamPage, StreamView, TurnId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, OptionalExtension, Row, params};

use crate::connection::error::Refusal;
use crate::schema::row::{invalid_column, number, number_or_null, parsed, parsed_or_null, timestamp, to_i64};
use crate::schema::sql;
use crate::write::message::read_payload;

/// Reads the columns of `stream_read.sql` and `streams.sql`.
pub(crate) fn read_stream_row(row: &Row<'_>) -> Result<(Arc<str>, StreamRow), Error> {
    let closed_by = match row.get_ref(3)? {
        ValueRef::Null => None,
        text if text.as_str()? == "workflow" => Some(StreamCloser::Workflow),
        _ => Some(StreamCloser::Step(OpNumber(parsed::<u64>(row, 3)?))),
    };
    let stream = StreamRow {
        first: number(row, 1)?,
        end: number(row, 2)?,
        closed_by,
        keep_last: number_or_null(row, 4)?,
        dropped: number(row, 5)?,
        late: number(row, 6)?,
        turn: parsed_or_null::<TurnId>(row, 7)?,
    };
    Ok((row.get(0)?, stream))
}

/// Whether a run has ended. Refuses if there is no such run.
fn has_ended(connection: &Connection, run: RunId) -> Result<bool, Refusal> {
    let mut statement = connection.prepare_cached(sql::RUN_ENDED)?;
    let has_ended = statement.query_row([run.to_string()], |row| row.get(0)).optional()?;
    has_ended.ok_or_else(|| no_run(run).into())
}

/// A part of a stream.
pub(crate) fn chunks(
    connection: &Connection,
    run: RunId,
    stream: &str,
    from: i64,
    limit: usize,
) -> Result<StreamPage, Refusal> {
    let has_ended = has_ended(connection, run)?;
    let id = run.to_string();
    let mut statement = connection.prepare_cached(sql::STREAM_READ)?;
    let found = statement.query_row([&*id, stream], |row| read_stream_row(row).map(|(_, row)| row));
    let Some(row) = found.optional()? else {
        return Ok(StreamPage { is_closed: has_ended, ..StreamPage::default() });
    };
    let (from, limit) = (first_read(from, row.first, row.end), limit.min(CHUNKS_READ_MAX));
    let mut entries = Vec::new();
    let mut statement = connection.prepare_cached(sql::CHUNKS_READ)?;
    let mut packs = statement.query(params![id, stream, to_i64(from), PACKS_READ_MAX as i64])?;
    while entries.len() < limit
        && from < row.end
        && let Some(pack) = packs.next()?
    {
        let pack = read_pack_row(pack)?;
        entries_of_pack(&pack, from, limit, &mut entries).map_err(|error| invalid_column(4, error))?;
    }
    Ok(StreamPage {
        next: from + entries.len() as u64,
        entries,
        first: row.first,
        end: row.end,
        is_closed: has_ended || row.closed_by.is_some(),
    })
}

/// Reads the columns of `chunks_read.sql`.
fn read_pack_row(row: &Row<'_>) -> Result<Pack, Error> {
    let origin = match number_or_null(row, 2)? {
        None => ChunkOrigin::Workflow,
        Some(op) => ChunkOrigin::Step { op: OpNumber(op), attempt: parsed(row, 3)? },
    };
    let (index, at) = (number(row, 0)?, timestamp(row, 1)?);
    Ok(Pack { index, at, origin, is_superseded: row.get(5)?, body: row.get(4)? })
}

/// The streams of a run.
pub(crate) fn streams(connection: &Connection, run: RunId) -> Result<Vec<StreamView>, Refusal> {
    let has_ended = has_ended(connection, run)?;
    let mut statement = connection.prepare_cached(sql::STREAMS)?;
    let rows = statement.query_map([run.to_string()], read_stream_row)?;
    let views = rows.map(|row| row.map(|(name, row)| StreamView::of(name, &row, has_ended)));
    Ok(views.collect::<Result<_, _>>()?)
}

/// The published state of a run.
pub(crate) fn published(connection: &Connection, run: RunId) -> Result<StateView, Refusal> {
    let has_ended = has_ended(connection, run)?;
    let mut statement = connection.prepare_cached(sql::STATE_READ)?;
    let found = statement.query_row([run.to_string()], |row| {
        Ok(PublishedState {
            payload: read_payload(row, 3, 4)?,
            at: timestamp(row, 0)?,
            version: number(row, 1)?,
            dropped: number(row, 2)?,
        })
    });
    Ok(StateView { state: found.optional()?, has_ended })
}
