//! Streams and published state.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use outlast_core::limits::{CHUNKS_READ_MAX, STREAMS_MAX};
use outlast_core::refusal::{attempt_fenced, missing_chunks, streams_fenced, too_many_streams};
use outlast_core::stream::{Placement, StreamCloser, StreamRow, WriterRow, first_read};
use outlast_core::{
    AttemptId, ChunkContent, ChunkOrigin, EntryBody, OpNumber, PublishedState, RunId, SessionId, StateView,
    StateWrite, StreamAppend, StreamEntry, StreamPage, StreamView, StreamWrite, StreamWritten, Timestamp,
    TurnId, WorkflowWrites, WorldError,
};

use crate::state::{Notifications, State};

/// What a run shows while it works.
#[derive(Debug, Default)]
pub(crate) struct RunStreams {
    streams: BTreeMap<Arc<str>, Stream>,
    state: Option<PublishedState>,
    /// The last turn that published a state.
    state_turn: Option<TurnId>,
}

#[derive(Debug, Default)]
struct Stream {
    row: StreamRow,
    /// The entries from `row.first` on.
    entries: VecDeque<StreamEntry>,
    writers: BTreeMap<OpNumber, WriterRow>,
}

impl Stream {
    /// Stores chunks where they were placed.
    fn put(&mut self, placement: Placement, origin: ChunkOrigin, chunks: &[ChunkContent], at: Timestamp) {
        if let Some(index) = placement.index {
            let bodies = chunks.iter().cloned().map(EntryBody::Chunk);
            let entries = (index..).zip(bodies).map(|(index, body)| StreamEntry {
                index,
                at,
                origin,
                body,
                is_superseded: false,
            });
            self.entries.extend(entries);
        }
        self.trim();
    }

    /// Appends the entry `restarted`, and marks what an older attempt wrote as superseded.
    fn restart(&mut self, op: OpNumber, attempt: AttemptId, at: Timestamp) {
        let Some(writer) = self.writers.get_mut(&op).filter(|writer| writer.attempt != attempt) else {
            return;
        };
        let restart = self.row.restart(op, writer, attempt);
        for entry in &mut self.entries {
            entry.is_superseded |= matches!(entry.origin, ChunkOrigin::Step { op: of, .. } if of == op);
        }
        let (origin, body) = (ChunkOrigin::Step { op, attempt }, EntryBody::Restarted { from: restart.from });
        self.entries.push_back(StreamEntry { index: restart.index, at, origin, body, is_superseded: false });
        self.trim();
    }

    /// Deletes the entries that the stream does not keep.
    fn trim(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.index < self.row.first) {
            self.entries.pop_front();
        }
    }
}

impl RunStreams {
    /// The stream, which is created if there is room for another one.
    fn stream(&mut self, name: &Arc<str>) -> Option<&mut Stream> {
        if !self.streams.contains_key(name) && self.streams.len() as u64 >= STREAMS_MAX {
            return None;
        }
        Some(self.streams.entry(name.clone()).or_default())
    }

    /// Writes chunks of a step.
    fn write(&mut self, write: &StreamWrite, now: Timestamp) -> Result<StreamWritten, WorldError> {
        let StreamWrite { run, stream: name, op, attempt, first, chunks, keep_last, closes } = write;
        let mut writers = self.streams.values().filter_map(|stream| stream.writers.get(op));
        if writers.any(|writer| writer.is_newer_than(*attempt)) {
            return Err(attempt_fenced(*run, *attempt));
        }
        let next = self.streams.get(name).and_then(|stream| stream.writers.get(op));
        let next = next.filter(|writer| writer.attempt == *attempt).map_or(0, |writer| writer.next);
        if *first > next {
            return Err(missing_chunks(name, *first, next));
        }
        if self.stream(name).is_none() {
            return Err(too_many_streams(*run));
        }
        self.streams.values_mut().for_each(|stream| stream.restart(*op, *attempt, now));
        let Some(stream) = self.stream(name) else { return Err(too_many_streams(*run)) };
        let new_writer = WriterRow { attempt: *attempt, from: stream.row.end, next: 0 };
        let writer = stream.writers.entry(*op).or_insert(new_writer);
        let known = usize::try_from(writer.next - first).unwrap_or(usize::MAX).min(chunks.len());
        let new = &chunks[known..];
        writer.next += new.len() as u64;
        let closer = closes.then_some(StreamCloser::Step(*op));
        let placement = stream.row.append(new.len() as u64, *keep_last, closer);
        stream.put(placement, ChunkOrigin::Step { op: *op, attempt: *attempt }, new, now);
        Ok(StreamWritten { is_closed: placement.is_closed, dropped: placement.dropped })
    }

    /// Writes what a turn of the workflow writes.
    pub(crate) fn apply(&mut self, turn: TurnId, writes: &WorkflowWrites, now: Timestamp) {
        for append in &writes.streams {
            self.append(turn, append, now);
        }
        if let Some(state) = &writes.state {
            self.publish(turn, state, now);
        }
    }

    fn append(&mut self, turn: TurnId, append: &StreamAppend, now: Timestamp) {
        let Some(stream) = self.stream(&append.stream) else { return };
        if stream.row.turn.replace(turn) == Some(turn) {
            return;
        }
        let closer = append.closes.then_some(StreamCloser::Workflow);
        let placement = stream.row.append(append.chunks.len() as u64, append.keep_last, closer);
        stream.row.dropped += append.dropped;
        stream.row.late += append.late;
        stream.put(placement, ChunkOrigin::Workflow, &append.chunks, now);
    }

    fn publish(&mut self, turn: TurnId, write: &StateWrite, now: Timestamp) {
        if self.state_turn.replace(turn) == Some(turn) {
            return;
        }
        let state =
            self.state.get_or_insert(PublishedState { payload: None, at: now, version: 0, dropped: 0 });
        state.dropped += write.dropped;
        if let Some(payload) = &write.payload {
            (state.payload, state.at) = (Some(payload.clone()), now);
            state.version += 1;
        }
    }
}

impl State {
    /// Writes chunks of a step, if the session holds its run.
    pub(crate) fn write_chunks(
        &mut self,
        session: SessionId,
        write: &StreamWrite,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<StreamWritten, WorldError> {
        let run = self.runs.get_mut(&write.run).filter(|run| run.owner == Some(session));
        let run = run.ok_or_else(|| streams_fenced(write.run))?;
        if write.attempt.session() != session {
            return Err(attempt_fenced(write.run, write.attempt));
        }
        let written = run.streams.get_or_insert_default().write(write, now)?;
        notifications.written.push(write.run);
        Ok(written)
    }

    /// A part of a stream.
    pub(crate) fn chunks(
        &self,
        run: RunId,
        stream: &str,
        from: i64,
        limit: usize,
    ) -> Result<StreamPage, WorldError> {
        let run = self.get(run)?;
        let has_ended = run.ended_at.is_some();
        let found = run.streams.as_ref().and_then(|streams| streams.streams.get(stream));
        let Some(stream) = found else {
            return Ok(StreamPage { is_closed: has_ended, ..StreamPage::default() });
        };
        let row = &stream.row;
        let from = first_read(from, row.first, row.end);
        let skipped = usize::try_from(from - row.first).unwrap_or(usize::MAX);
        let entries = stream.entries.iter().skip(skipped).take(limit.min(CHUNKS_READ_MAX));
        let entries: Vec<_> = entries.cloned().collect();
        Ok(StreamPage {
            next: from + entries.len() as u64,
            entries,
            first: row.first,
            end: row.end,
            is_closed: has_ended || row.closed_by.is_some(),
        })
    }

    /// The streams of a run.
    pub(crate) fn streams(&self, run: RunId) -> Result<Vec<StreamView>, WorldError> {
        let run = self.get(run)?;
        let streams = run.streams.iter().flat_map(|streams| &streams.streams);
        let has_ended = run.ended_at.is_some();
        Ok(streams.map(|(name, stream)| StreamView::of(name.clone(), &stream.row, has_ended)).collect())
    }

    /// The published state of a run.
    pub(crate) fn published(&self, run: RunId) -> Result<StateView, WorldError> {
        let run = self.get(run)?;
        let state = run.streams.as_ref().and_then(|streams| streams.state.clone());
        Ok(StateView { state, has_ended: run.ended_at.is_some() })
    }
}
