//! Streams of a run: pages, and following one while it is written.

use std::time::Duration;

use outlast::SystemClock;
use outlast_core::limits::{CHUNKS_READ_MAX, SLOW_POLL};
use outlast_core::stream::check_any_stream_name;
use outlast_core::time::event_or_time;
use outlast_core::{ChunkKind, ChunkOrigin, Clock, EntryBody, RunId, RunWatch, StreamEntry, StreamPage};

use super::problems::{of_error, of_world};
use super::{Service, machine_time};
use crate::live::RestartedJson;
use crate::payload::PayloadAmount;
use crate::problem::Problem;
use crate::stream::{ChunkFilter, ChunkJson, ChunkListJson, StreamJson, StreamListJson};

/// The number of chunks of a page if a request does not say it.
const LIMIT_DEFAULT: usize = 50;

impl Service {
    /// `GET /api/runs/{id}/streams`.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn streams(&self, run: RunId) -> Result<StreamListJson, Problem> {
        let streams = self.client.streams(run).await.map_err(of_error)?;
        let items = streams.into_iter().map(|stream| StreamJson {
            name: stream.name.to_string(),
            first: stream.first,
            end: stream.end,
            closed: stream.is_closed,
            keep_last: stream.keep_last,
            dropped: stream.dropped,
            late: stream.late,
        });
        Ok(StreamListJson { items: items.collect() })
    }

    /// `GET /api/runs/{id}/streams/{name}`.
    ///
    /// # Errors
    ///
    /// `not_found`, `invalid_request`.
    pub async fn chunks(
        &self,
        run: RunId,
        stream: &str,
        filter: &ChunkFilter,
    ) -> Result<ChunkListJson, Problem> {
        let limit = filter.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, CHUNKS_READ_MAX);
        let page = self.stream_page(run, stream, filter.from.unwrap_or(0), limit).await?;
        let amount = filter.payloads.unwrap_or(PayloadAmount::Full);
        let (next, tail, done) = (page.next, page.end, page.is_closed && page.is_last());
        let wanted = page.entries.iter().filter(|entry| filter.all_attempts || !entry.is_superseded);
        let items = wanted.filter_map(|entry| self.chunk_json(entry, amount)).collect();
        Ok(ChunkListJson { items, next, tail, done })
    }

    /// Follows a stream from an index on; negative ones count from the end.
    ///
    /// # Errors
    ///
    /// `not_found`, `invalid_request`.
    pub async fn follow_stream(
        &self,
        run: RunId,
        stream: &str,
        from: i64,
    ) -> Result<StreamFollower, Problem> {
        // Watch before reading, so that no change is missed.
        let watch = self.client.world().watch(run);
        let first = self.stream_page(run, stream, from, CHUNKS_READ_MAX).await?;
        Ok(StreamFollower {
            service: self.clone(),
            run,
            stream: stream.into(),
            watch,
            next: first.next,
            page: Some(first),
        })
    }

    async fn stream_page(
        &self,
        run: RunId,
        stream: &str,
        from: i64,
        limit: usize,
    ) -> Result<StreamPage, Problem> {
        check_any_stream_name(stream).map_err(|message| Problem::field("", message))?;
        self.client.world().chunks(run, stream, from, limit).await.map_err(of_world)
    }

    fn chunk_json(&self, entry: &StreamEntry, amount: PayloadAmount) -> Option<ChunkJson> {
        let EntryBody::Chunk(content) = &entry.body else { return None };
        let (op, attempt) = match entry.origin {
            ChunkOrigin::Step { op, attempt } => (Some(op.0), Some(attempt.to_string())),
            _ => (None, None),
        };
        let kind = match content.kind {
            ChunkKind::Text => "text",
            ChunkKind::Json => "json",
            ChunkKind::Bytes => "bytes",
            _ => "other",
        };
        Some(ChunkJson {
            index: entry.index,
            at: entry.at.into(),
            op,
            attempt,
            kind: kind.into(),
            value: self.payload(&content.payload, amount),
            superseded: entry.is_superseded,
        })
    }
}

/// Follows a stream while it is written; created by [`Service::follow_stream`].
#[derive(Debug)]
pub struct StreamFollower {
    service: Service,
    run: RunId,
    stream: String,
    watch: RunWatch,
    next: u64,
    page: Option<StreamPage>,
}

/// One entry of a stream that is followed.
#[derive(Clone, Debug)]
pub enum StreamFrame {
    /// A chunk.
    Chunk(ChunkJson),
    /// A step writes again from the beginning. With the index of this entry.
    Restarted(u64, RestartedJson),
}

impl StreamFollower {
    /// The next entries, as soon as there are some; `None` when the stream is closed and all were returned.
    ///
    /// # Errors
    ///
    /// `not_found` if the run was deleted.
    pub async fn next(&mut self) -> Result<Option<Vec<StreamFrame>>, Problem> {
        loop {
            let page = match self.page.take() {
                Some(page) => page,
                None => {
                    let from = i64::try_from(self.next).unwrap_or(i64::MAX);
                    self.service.stream_page(self.run, &self.stream, from, CHUNKS_READ_MAX).await?
                }
            };
            self.next = page.next;
            let frames: Vec<_> = page.entries.iter().filter_map(|entry| self.frame(entry)).collect();
            if !frames.is_empty() {
                return Ok(Some(frames));
            }
            if page.is_closed && page.is_last() {
                return Ok(None);
            }
            if page.is_last() {
                wait_for_change(&mut self.watch, SLOW_POLL).await;
            }
        }
    }

    fn frame(&self, entry: &StreamEntry) -> Option<StreamFrame> {
        match (&entry.body, entry.origin) {
            (EntryBody::Restarted { from }, ChunkOrigin::Step { op, .. }) => {
                Some(StreamFrame::Restarted(entry.index, RestartedJson { op: op.0, from: *from }))
            }
            _ => self.service.chunk_json(entry, PayloadAmount::Full).map(StreamFrame::Chunk),
        }
    }
}

/// Waits for a hint, or for some time of this machine, because a hint may be missing.
async fn wait_for_change(watch: &mut RunWatch, time: Duration) {
    let until = machine_time().plus(time);
    drop(event_or_time(watch.changed(), SystemClock.sleep_until(until)).await);
}
