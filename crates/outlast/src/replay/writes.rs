//! What a workflow writes to the streams of its run, and the state that it publishes.
//!
//! These writes have neither a number nor an event, and return nothing. They are part of the outbox of the turn, so they
//! are stored with its commit, exactly once. A replay discards them: the commit that recorded its turn has stored them.

use std::sync::Arc;

use outlast_core::limits::{STATE_BYTES_MAX, TURN_CHUNKS_BYTES_MAX};
use outlast_core::stream::check_stream_name;
use outlast_core::{ChunkContent, ChunkError, Payload, StreamAppend};
use serde::Serialize;

use super::operation_table::OperationTable;
use super::state::RunState;

impl RunState {
    /// Publishes a state, which replaces the one before.
    pub(crate) fn publish<T: Serialize + ?Sized>(&self, state: &T) {
        if self.is_outside_turn(|| "it published a state".to_owned()) || !self.begin_write() {
            return;
        }
        // Serialize outside the lock: this runs code of the user, which may use the context.
        let plain = Payload::json(state).ok().filter(|plain| plain.bytes().len() <= STATE_BYTES_MAX);
        let payload = plain.and_then(|plain| self.codec().encode(plain).ok());
        let mut table = self.table.lock();
        let state = table.pending_outbox().writes.state.get_or_insert_default();
        match payload {
            Some(payload) => state.payload = Some(payload),
            None => state.dropped += 1,
        }
    }

    /// Writes a chunk to a stream. A chunk that is too large is dropped and counted.
    pub(crate) fn write_chunk(
        &self,
        stream: &Arc<str>,
        chunk: impl FnOnce() -> Result<ChunkContent, ChunkError>,
    ) {
        if self.is_outside_turn(|| format!("it wrote to stream `{stream}`")) || !self.begin_write() {
            return;
        }
        let chunk = chunk().and_then(|plain| plain.encoded(&**self.codec()));
        let mut table = self.table.lock();
        let room = TURN_CHUNKS_BYTES_MAX.saturating_sub(table.pending_outbox().writes.bytes());
        let append = append_to(&mut table, stream);
        match chunk {
            _ if append.closes => append.late += 1,
            Ok(chunk) if chunk.stored_bytes() <= room => append.chunks.push(chunk),
            _ => append.dropped += 1,
        }
    }

    /// Closes a stream.
    pub(crate) fn close_stream(&self, stream: &Arc<str>) {
        if !self.is_outside_turn(|| format!("it closed stream `{stream}`")) && self.begin_write() {
            append_to(&mut self.table.lock(), stream).closes = true;
        }
    }

    /// Sets how many entries a stream keeps.
    pub(crate) fn keep_last(&self, stream: &Arc<str>, entries: u64) {
        if !self.is_outside_turn(|| format!("it limited stream `{stream}`")) && self.begin_write() {
            append_to(&mut self.table.lock(), stream).keep_last = Some(entries.max(1));
        }
    }

    /// Counts a write. Returns whether it is stored: not in a replay, and not after the end of the run.
    fn begin_write(&self) -> bool {
        let mut table = self.table.lock();
        table.writes_count += 1;
        table.history.is_none() && !table.is_closed
    }
}

/// What the turn appends to a stream.
fn append_to<'a>(table: &'a mut OperationTable, stream: &Arc<str>) -> &'a mut StreamAppend {
    let streams = &mut table.pending_outbox().writes.streams;
    let nth = streams.iter().position(|append| append.stream == *stream).unwrap_or_else(|| {
        streams.push(StreamAppend { stream: stream.clone(), ..StreamAppend::default() });
        streams.len() - 1
    });
    &mut streams[nth]
}

/// The name of a stream in a workflow.
///
/// # Panics
///
/// If the name is not allowed.
pub(crate) fn workflow_stream_name(name: &str) -> Arc<str> {
    if let Err(problem) = check_stream_name(name) {
        panic!("{problem}");
    }
    name.into()
}

/// What was written in several turns, as one value; for rehearsals.
#[cfg(any(test, feature = "test-support"))]
pub(crate) fn add_writes(all: &mut outlast_core::WorkflowWrites, turn: outlast_core::WorkflowWrites) {
    for append in turn.streams {
        let known = all.streams.iter_mut().find(|known| known.stream == append.stream);
        let Some(known) = known else {
            all.streams.push(append);
            continue;
        };
        if known.closes {
            known.late += append.late + append.chunks.len() as u64;
            continue;
        }
        known.chunks.extend(append.chunks);
        known.keep_last = append.keep_last.or(known.keep_last);
        known.closes = append.closes;
        known.dropped += append.dropped;
        known.late += append.late;
    }
    if let Some(state) = turn.state {
        let known = all.state.get_or_insert_default();
        known.dropped += state.dropped;
        known.payload = state.payload.or(known.payload.take());
    }
}
