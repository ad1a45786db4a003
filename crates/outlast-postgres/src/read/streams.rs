//! Streams and published state.

use outlast_core::limits::{CHUNKS_READ_MAX, PACKS_READ_MAX};
use outlast_core::refusal::no_run;
use outlast_core::stream::{Pack, StreamCloser, StreamRow, entries_of_pack, first_read};
use outlast_core::{
    ChunkOrigin, OpNumber, PublishedState, RunId, StateView, StreamPage, StreamView, WorldError,
};
use tokio_postgres::Row;

use crate::connection::database::{Database, Parameter};
use crate::encoding::message::StoredPayload;
use crate::encoding::row::{
    InvalidRow, get, invalid_column, maybe_number, maybe_text, number, parsed, timestamp,
};
use crate::error::corrupt_error;
use crate::write::streams::stored_name;

/// A part of a stream.
pub(crate) async fn chunks(
    database: &Database,
    run: RunId,
    stream: &str,
    from: i64,
    limit: usize,
) -> Result<StreamPage, WorldError> {
    let values: [Parameter<'_>; 4] =
        [&run.to_string(), &stored_name(stream), &from, &(PACKS_READ_MAX as i64)];
    let rows = database.call(&database.sql.stream_chunks, &values).await?;
    let row = rows.first().ok_or_else(|| no_run(run))?;
    let page = page_of(row, &rows, from, limit.min(CHUNKS_READ_MAX));
    page.map_err(|why| corrupt_error(&database.place, &why))
}

/// The page of the rows of `stream_chunks.sql`, of which `row` is the first.
fn page_of(row: &Row, rows: &[Row], from: i64, limit: usize) -> Result<StreamPage, InvalidRow> {
    let has_ended = get(row, 0)?;
    let Some(first) = maybe_number(row, 1)? else {
        return Ok(StreamPage { is_closed: has_ended, ..StreamPage::default() });
    };
    let end = number(row, 2)?;
    let from = first_read(from, first, end);
    let mut entries = Vec::new();
    for row in rows {
        if entries.len() == limit || from >= end {
            break;
        }
        if let Some(pack) = read_pack_row(row)? {
            entries_of_pack(&pack, from, limit, &mut entries).map_err(|why| invalid_column(8, why))?;
        }
    }
    let next = from + entries.len() as u64;
    Ok(StreamPage { entries, next, first, end, is_closed: has_ended || get(row, 3)? })
}

fn read_pack_row(row: &Row) -> Result<Option<Pack>, InvalidRow> {
    let Some(index) = maybe_number(row, 4)? else { return Ok(None) };
    let origin = match maybe_number(row, 6)? {
        None => ChunkOrigin::Workflow,
        Some(op) => ChunkOrigin::Step { op: OpNumber(op), attempt: parsed(row, 7)? },
    };
    let (at, body) = (timestamp(row, 5)?, get(row, 8)?);
    Ok(Some(Pack { index, at, origin, is_superseded: get(row, 9)?, body }))
}

/// The streams of a run.
pub(crate) async fn streams(database: &Database, run: RunId) -> Result<Vec<StreamView>, WorldError> {
    let rows = database.call(&database.sql.streams, &[&run.to_string()]).await?;
    if rows.is_empty() {
        return Err(no_run(run));
    }
    let views: Result<Vec<_>, _> = rows.iter().filter_map(|row| read_view(row).transpose()).collect();
    views.map_err(|why| corrupt_error(&database.place, &why))
}

fn read_view(row: &Row) -> Result<Option<StreamView>, InvalidRow> {
    let Some(name) = maybe_text(row, 1)? else { return Ok(None) };
    let is_closed: bool = get(row, 4)?;
    let stream = StreamRow {
        first: number(row, 2)?,
        end: number(row, 3)?,
        closed_by: is_closed.then_some(StreamCloser::Workflow),
        keep_last: maybe_number(row, 5)?,
        dropped: number(row, 6)?,
        late: number(row, 7)?,
        turn: None,
    };
    Ok(Some(StreamView::of(name.into(), &stream, get(row, 0)?)))
}

/// The published state of a run.
pub(crate) async fn published(database: &Database, run: RunId) -> Result<StateView, WorldError> {
    let rows = database.call(&database.sql.state, &[&run.to_string()]).await?;
    let row = rows.first().ok_or_else(|| no_run(run))?;
    read_state(row).map_err(|why| corrupt_error(&database.place, &why))
}

fn read_state(row: &Row) -> Result<StateView, InvalidRow> {
    let has_ended = get(row, 0)?;
    let Some(version) = maybe_number(row, 1)? else { return Ok(StateView { state: None, has_ended }) };
    let has_payload: bool = get(row, 4)?;
    let payload = if has_payload { Some(StoredPayload::read(row, 5)?) } else { None };
    let state = PublishedState { payload, at: timestamp(row, 2)?, version, dropped: number(row, 3)? };
    Ok(StateView { state: Some(state), has_ended })
}
