//! Streams and published state: what a run and its steps show while they work.
//!
//! A stream is a list of entries of one run, under a name. The entries are numbered from 0 without gaps. Most entries
//! are chunks. If a newer attempt of a step writes to a stream to which an older attempt has written, the entry
//! `restarted` comes first: what the older attempt wrote is *superseded*. So a reader can present only what the
//! surviving attempt has written, and a reader that was there before learns what to discard.
//!
//! A chunk of a step is identified by its attempt and its ordinal, its number among the chunks that the attempt has
//! written to the stream. A world accepts it only from the session that holds the run, only from the newest attempt of
//! the operation, and only once. Chunks and state of the workflow itself are part of the commit of their turn
//! ([`WorkflowWrites`]), so they need no identity of their own.

mod base64;
mod chunk;
mod pack;
mod placement;

use std::sync::Arc;

use crate::event::OpNumber;
use crate::id::{AttemptId, RunId};
use crate::limits::{NAME_BYTES_MAX, STREAM_WRITE_BYTES_MAX};
use crate::payload::Payload;
use crate::queue::check_name;
use crate::time::Timestamp;

pub use chunk::{Binary, ChunkContent, ChunkError, ChunkKind};
pub use pack::{Pack, entries_of_pack, read_pack, restarted_pack, write_pack};
pub use placement::{Placement, Restart, StreamCloser, StreamRow, WriterRow, first_read};

/// The stream with the log lines of attempts.
pub const LOG_STREAM: &str = "outlast:log";

/// Who wrote an entry of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChunkOrigin {
    /// The workflow's own code.
    Workflow,
    /// An attempt of a step.
    Step {
        /// The operation of the step.
        op: OpNumber,
        /// The attempt.
        attempt: AttemptId,
    },
}

/// One entry of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEntry {
    /// Its number in the stream, from 0, without gaps.
    pub index: u64,
    /// When the world accepted it.
    pub at: Timestamp,
    /// Who wrote it.
    pub origin: ChunkOrigin,
    /// What it contains.
    pub body: EntryBody,
    /// Whether a newer attempt of the same operation has written to the stream since.
    pub is_superseded: bool,
}

/// What an entry of a stream contains.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EntryBody {
    /// A chunk.
    Chunk(ChunkContent),
    /// The operation of the entry's origin has begun again with a newer attempt: its entries from this index on and
    /// before this entry are superseded.
    Restarted {
        /// The index of the first superseded entry.
        from: u64,
    },
}

/// Chunks that one attempt of a step writes to one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamWrite {
    /// The run that the session holds.
    pub run: RunId,
    /// The stream's name.
    pub stream: Arc<str>,
    /// The operation of the step.
    pub op: OpNumber,
    /// The attempt.
    pub attempt: AttemptId,
    /// The number of chunks that the attempt wrote to this stream before.
    pub first: u64,
    /// The chunks.
    pub chunks: Vec<ChunkContent>,
    /// How many entries the stream keeps from now on; `None` leaves that unchanged.
    pub keep_last: Option<u64>,
    /// Whether the stream is closed after these chunks.
    pub closes: bool,
}

impl StreamWrite {
    /// The approximate number of bytes that it stores.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(ChunkContent::stored_bytes).sum()
    }
}

/// The answer to a [`StreamWrite`] that was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamWritten {
    /// Whether the stream was closed before, so that the chunks were counted and not stored.
    pub is_closed: bool,
    /// The number of chunks that were not stored, because the stream has reached
    /// [`STREAM_CHUNKS_MAX`](crate::limits::STREAM_CHUNKS_MAX).
    pub dropped: u64,
}

/// What the code of a workflow writes in one turn: part of the turn's outbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkflowWrites {
    /// Chunks, at most one element per stream.
    pub streams: Vec<StreamAppend>,
    /// The published state, if the turn publishes one.
    pub state: Option<StateWrite>,
}

impl WorkflowWrites {
    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.state.is_none()
    }

    /// The approximate number of bytes that are stored.
    pub fn bytes(&self) -> usize {
        let chunks = self.streams.iter().flat_map(|append| &append.chunks).map(ChunkContent::stored_bytes);
        let state = self.state.as_ref().and_then(|state| state.payload.as_ref());
        chunks.sum::<usize>() + state.map_or(0, |payload| payload.bytes().len())
    }
}

/// What a turn appends to one stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamAppend {
    /// The stream's name.
    pub stream: Arc<str>,
    /// The chunks.
    pub chunks: Vec<ChunkContent>,
    /// How many entries the stream keeps from now on; `None` leaves that unchanged.
    pub keep_last: Option<u64>,
    /// Whether the stream is closed after these chunks.
    pub closes: bool,
    /// The number of chunks that were too large, which are only counted.
    pub dropped: u64,
    /// The number of chunks that the turn wrote after it had closed the stream, which are only counted.
    pub late: u64,
}

/// A state that a turn publishes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateWrite {
    /// The encoded state; `None` if every state of the turn was too large.
    pub payload: Option<Payload>,
    /// The number of states that were too large, which are only counted.
    pub dropped: u64,
}

/// The state that a run has published.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedState {
    /// The encoded state; `None` if every state so far was too large.
    pub payload: Option<Payload>,
    /// When it was published.
    pub at: Timestamp,
    /// The number of states that were stored.
    pub version: u64,
    /// The number of states that were too large, and therefore not stored.
    pub dropped: u64,
}

/// The published state of a run, and whether the run has ended, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct StateView {
    /// The state; `None` if the run has published none.
    pub state: Option<PublishedState>,
    /// Whether the run has ended, so that the state does not change any more.
    pub has_ended: bool,
}

/// A part of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamPage {
    /// The entries, in order.
    pub entries: Vec<StreamEntry>,
    /// The index of the entry after the last one of this page: where to continue.
    pub next: u64,
    /// The index of the first entry that the stream still has.
    pub first: u64,
    /// The index of the next entry that will be written.
    pub end: u64,
    /// Whether nothing will be written any more: the stream was closed, or its run has ended.
    pub is_closed: bool,
}

impl StreamPage {
    /// Whether the page reaches the end of the stream.
    pub fn is_last(&self) -> bool {
        self.next >= self.end
    }
}

/// A stream, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamView {
    /// Its name.
    pub name: Arc<str>,
    /// The index of the first entry that it still has.
    pub first: u64,
    /// The index of the next entry that will be written.
    pub end: u64,
    /// Whether nothing will be written any more: the stream was closed, or its run has ended.
    pub is_closed: bool,
    /// How many entries it keeps, if that was limited.
    pub keep_last: Option<u64>,
    /// The number of chunks that were not stored: too large, or too many.
    pub dropped: u64,
    /// The number of chunks that were written after it was closed, and therefore not stored.
    pub late: u64,
}

impl StreamView {
    /// The view of a stream's row.
    pub fn of(name: Arc<str>, row: &StreamRow, has_ended: bool) -> Self {
        Self {
            name,
            first: row.first,
            end: row.end,
            is_closed: has_ended || row.closed_by.is_some(),
            keep_last: row.keep_last,
            dropped: row.dropped,
            late: row.late,
        }
    }
}

/// Checks the name of a stream that code writes to. Returns what is wrong with it, and the remedy.
///
/// # Errors
///
/// A message if the name is empty, too long, contains NUL, or is reserved for the engine.
pub fn check_stream_name(name: &str) -> Result<(), String> {
    check_any_stream_name(name)?;
    check_name("stream", name)
}

/// Checks the name of a stream, which may be one of the engine.
///
/// # Errors
///
/// A message if the name is empty, too long, or contains NUL.
pub fn check_any_stream_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("the name of a stream is empty; give it at least one character".into());
    }
    if name.len() > NAME_BYTES_MAX {
        let bytes = name.len();
        return Err(format!(
            "the name of a stream has {bytes} bytes, the limit is {NAME_BYTES_MAX}; shorten it"
        ));
    }
    if name.contains('\0') {
        return Err("the name of a stream contains NUL; use another name".into());
    }
    Ok(())
}

/// Checks the writes of one call.
///
/// # Errors
///
/// [`WorldError::Limit`](crate::WorldError::Limit) if they have more than twice [`STREAM_WRITE_BYTES_MAX`] bytes
/// together, `Invalid` if the name of a stream is not allowed.
pub fn check_writes(writes: &[StreamWrite]) -> Result<(), crate::WorldError> {
    let bytes: usize = writes.iter().map(StreamWrite::bytes).sum();
    // A single chunk may exceed the target of a batch.
    if bytes > 2 * STREAM_WRITE_BYTES_MAX {
        return Err(crate::WorldError::limit(format!(
            "one call writes {bytes} bytes of chunks, the limit is {STREAM_WRITE_BYTES_MAX}; write fewer at a time"
        )));
    }
    writes
        .iter()
        .try_for_each(|write| check_any_stream_name(&write.stream).map_err(crate::WorldError::invalid))
}
