//! The stream writer: sends the chunks of a session's attempts to the world.
//!
//! It is separate from the commits, so that a step that writes much delays no turn. An attempt puts its chunks into a
//! queue and continues. If nothing is being written, a task begins to write what is in the queue, in calls of at most
//! [`STREAM_WRITE_BYTES_MAX`]; what is added during one call is the next one. There is no timer.
//!
//! Each attempt has a [buffer](AttemptBuffer), which counts what the world has not accepted. Writes wait while it is
//! full, and the end of the attempt waits until it is empty. A call that fails for a temporary reason is repeated: the
//! chunks have ordinals, so the world stores them once.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use outlast_core::limits::{
    PACK_CHUNKS_MAX, STREAM_BUFFER_BYTES_MAX, STREAM_CHUNKS_MAX, STREAM_WRITE_BYTES_MAX,
};
use outlast_core::{
    AttemptId, Backoff, Busy, ChunkContent, Clock, OpNumber, RunId, SessionId, StreamWrite, StreamWritten,
    World, WorldError,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::outage::{Call, Outage};
use super::settings::Settings;
use crate::clock::pause_before_retry;
use crate::telemetry::ProcessMetrics;

/// The pauses between two tries.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));

/// The number of queued writes among which a new chunk searches for one of its stream.
const MERGE_SEARCH_MAX: usize = 16;

/// The bytes that a write needs besides its chunks.
const WRITE_BYTES: usize = 64;

/// Sends the chunks of all attempts of a session to the world.
#[derive(Debug)]
pub(crate) struct StreamWriter {
    world: Arc<dyn World>,
    session: SessionId,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    outage: Arc<Outage>,
    metrics: Arc<ProcessMetrics>,
    /// The session is lost: nothing is written any more.
    lost: CancellationToken,
    queue: Mutex<WriteQueue>,
}

#[derive(Debug, Default)]
struct WriteQueue {
    writes: VecDeque<QueuedWrite>,
    /// Whether a task is writing. It takes what is queued meanwhile.
    is_writing: bool,
    /// Keeps a virtual clock from advancing while the task writes.
    busy: Option<Busy>,
}

#[derive(Debug)]
struct QueuedWrite {
    write: StreamWrite,
    bytes: usize,
    buffer: Arc<AttemptBuffer>,
}

/// The attempt that writes: the held run, its operation, and the id of the attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WritingAttempt {
    pub(crate) run: RunId,
    pub(crate) op: OpNumber,
    pub(crate) id: AttemptId,
}

/// One write of a step.
#[derive(Debug)]
pub(crate) struct ChunkWrite {
    pub(crate) stream: Arc<str>,
    /// The encoded chunk; `None` if the stream is only closed.
    pub(crate) chunk: Option<ChunkContent>,
    pub(crate) keep_last: Option<u64>,
    pub(crate) closes: bool,
}

/// What an attempt has written and the world has not accepted yet.
#[derive(Debug, Default)]
pub(crate) struct AttemptBuffer {
    state: Mutex<BufferState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct BufferState {
    /// The bytes that the world has not accepted.
    pending_bytes: usize,
    /// The number of chunks that were written to each stream.
    ordinals: BTreeMap<Arc<str>, u64>,
    /// Why the world has refused an earlier write.
    error: Option<WorldError>,
    /// Whether the attempt has ended, so that a task that it left behind cannot write.
    has_ended: bool,
    /// Whether nobody awaits the attempt any more: its queued writes are discarded.
    is_abandoned: bool,
    /// The number of callers that wait for a change, and what keeps a virtual clock from advancing until they see it.
    waiting: usize,
    busy: Option<Busy>,
}

impl AttemptBuffer {
    /// Waits until the state is as `ready` requires, and returns what that returns.
    async fn wait_until<T>(&self, ready: impl Fn(&BufferState) -> Option<T>) -> T {
        loop {
            // Register before reading the state, so that no notification is missed.
            let changed = self.changed.notified();
            {
                let mut state = self.state.lock();
                let busy = state.busy.take();
                if let Some(result) = ready(&state) {
                    return result;
                }
                drop(busy);
                state.waiting += 1;
            }
            let mut waiting = WaitingGuard { buffer: self, has_woken: false };
            changed.await;
            waiting.has_woken = true;
        }
    }

    /// Waits until there is room for another chunk.
    async fn wait_for_room(&self) -> Result<(), WorldError> {
        self.wait_until(|state| match &state.error {
            Some(error) => Some(Err(error.clone())),
            None if state.has_ended => Some(Err(attempt_ended())),
            None => (state.pending_bytes < STREAM_BUFFER_BYTES_MAX).then_some(Ok(())),
        })
        .await
    }

    /// Counts a write of this many bytes. Returns the ordinal of its chunk.
    fn add(&self, write: &ChunkWrite, bytes: usize) -> Result<u64, WorldError> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(attempt_ended());
        }
        state.pending_bytes += bytes;
        let ordinal = state.ordinals.entry(write.stream.clone()).or_default();
        let first = *ordinal;
        *ordinal += u64::from(write.chunk.is_some());
        Ok(first)
    }

    /// Ends the attempt: waits until the world has accepted or refused everything that it wrote.
    pub(crate) async fn finish(&self) {
        self.state.lock().has_ended = true;
        self.wait_until(|state| (state.pending_bytes == 0).then_some(())).await;
    }

    /// Discards what is queued, because nobody awaits the attempt any more.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        (state.has_ended, state.is_abandoned, state.pending_bytes) = (true, true, 0);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records the world's answer to a write of this many bytes.
    fn answered(
        &self,
        bytes: usize,
        stream: &str,
        answer: Result<StreamWritten, WorldError>,
        clock: &dyn Clock,
    ) {
        let mut state = self.state.lock();
        state.pending_bytes = state.pending_bytes.saturating_sub(bytes);
        let error = match answer {
            Ok(StreamWritten { dropped: 0, .. }) => None,
            Ok(_) => Some(WorldError::limit(format!(
                "stream `{stream}` has {STREAM_CHUNKS_MAX} entries, which is the limit; \
                 let it keep fewer with `.keep_last(n)`"
            ))),
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            state.error.get_or_insert(error);
        }
        if state.waiting > 0 {
            state.busy = Some(clock.busy());
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

fn attempt_ended() -> WorldError {
    WorldError::fenced("the attempt has ended; write before the step returns")
}

fn world_panicked() -> WorldError {
    WorldError::corrupt(
        "the world panicked while it wrote to a stream; the panic is in the log of this process",
    )
}

/// A caller that waits for a change of a buffer, until this is dropped.
struct WaitingGuard<'a> {
    buffer: &'a AttemptBuffer,
    has_woken: bool,
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.buffer.state.lock();
        state.waiting -= 1;
        if state.waiting == 0 && !self.has_woken {
            // The future of the last waiting caller was dropped. No caller will take `busy`, so let the clock advance.
            state.busy = None;
        }
    }
}

impl StreamWriter {
    pub(super) fn new(
        world: Arc<dyn World>,
        session: SessionId,
        runtime: Handle,
        settings: &Settings,
        lost: CancellationToken,
    ) -> Self {
        let (clock, outage, metrics) = (world.clock(), settings.outage.clone(), settings.metrics.clone());
        Self { world, session, clock, runtime, outage, metrics, lost, queue: Mutex::default() }
    }

    /// Puts a write of an attempt into the queue. Waits while the attempt's buffer is full.
    pub(crate) async fn write(
        self: &Arc<Self>,
        attempt: WritingAttempt,
        buffer: &Arc<AttemptBuffer>,
        write: ChunkWrite,
    ) -> Result<(), WorldError> {
        buffer.wait_for_room().await?;
        self.enqueue(attempt, buffer, write)
    }

    /// Puts a write of an attempt into the queue, if its buffer has room. Returns whether it had.
    #[cfg(feature = "attempt-log")]
    pub(crate) fn write_now(
        self: &Arc<Self>,
        attempt: WritingAttempt,
        buffer: &Arc<AttemptBuffer>,
        write: ChunkWrite,
    ) -> bool {
        let has_room = {
            let state = buffer.state.lock();
            state.error.is_none() && state.pending_bytes < STREAM_BUFFER_BYTES_MAX
        };
        has_room && self.enqueue(attempt, buffer, write).is_ok()
    }

    /// Adds a write to the queue, and starts a task that writes it unless one is running.
    fn enqueue(
        self: &Arc<Self>,
        attempt: WritingAttempt,
        buffer: &Arc<AttemptBuffer>,
        write: ChunkWrite,
    ) -> Result<(), WorldError> {
        let bytes = write.chunk.as_ref().map_or(0, ChunkContent::stored_bytes) + WRITE_BYTES;
        // Lock the queue first: chunks must be queued in the order of their ordinals.
        let mut queue = self.queue.lock();
        let first = buffer.add(&write, bytes)?;
        queue.put(attempt, buffer, write, first, bytes);
        if !queue.is_writing {
            queue.is_writing = true;
            queue.busy = Some(self.clock.busy());
            drop(queue);
            self.runtime.spawn(self.clone().write_queue());
        }
        Ok(())
    }

    /// Writes what is queued, until the queue is empty.
    async fn write_queue(self: Arc<Self>) {
        loop {
            let batch = self.queue.lock().take();
            let Some(batch) = batch else { return };
            self.write_batch(batch).await;
        }
    }

    /// Writes a batch, and repeats what fails for a temporary reason.
    async fn write_batch(&self, mut left: Vec<QueuedWrite>) {
        let mut backoff = BACKOFF;
        loop {
            left.retain(|queued| !queued.buffer.state.lock().is_abandoned);
            if left.is_empty() {
                return;
            }
            let writes = left.iter().map(|queued| queued.write.clone()).collect();
            let call = AssertUnwindSafe(async { self.world.write_chunks(self.session, writes).await });
            let answers = tokio::select! {
                biased;
                () = self.lost.cancelled() => Err(WorldError::fenced("the worker has lost its session")),
                // Without an answer the attempts of these writes would never end.
                answers = call.catch_unwind() => answers.unwrap_or_else(|_| Err(world_panicked())),
            };
            left = self.give_answers(left, answers);
            if !left.is_empty() {
                pause_before_retry(&mut backoff).await;
            }
        }
    }

    /// Passes the world's answers to the buffers of the attempts. Returns the writes that failed for a temporary
    /// reason.
    fn give_answers(
        &self,
        writes: Vec<QueuedWrite>,
        answers: outlast_core::world::Answers<StreamWritten>,
    ) -> Vec<QueuedWrite> {
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); writes.len()],
        };
        let missing = || WorldError::Corrupt("the world returned too few results".into());
        let mut answers = answers.into_iter();
        let mut again = Vec::new();
        for queued in writes {
            match answers.next().unwrap_or_else(|| Err(missing())) {
                Err(error) if error.is_transient() => {
                    self.outage.failed(Call::Streams, &error);
                    again.push(queued);
                }
                answer => {
                    if answer.is_ok() {
                        let bytes = queued.write.chunks.iter().map(|chunk| chunk.stored_bytes() as u64).sum();
                        self.metrics.stream_chunks.add(queued.write.chunks.len() as u64);
                        self.metrics.stream_bytes.add(bytes);
                    }
                    queued.buffer.answered(queued.bytes, &queued.write.stream, answer, &*self.clock);
                }
            }
        }
        if again.is_empty() {
            self.outage.answered(Call::Streams);
        }
        again
    }
}

impl WriteQueue {
    /// Adds a write: to a queued one of the same attempt and stream, if there is one with room.
    fn put(
        &mut self,
        attempt: WritingAttempt,
        buffer: &Arc<AttemptBuffer>,
        new: ChunkWrite,
        first: u64,
        bytes: usize,
    ) {
        let recent = self.writes.iter_mut().rev().take(MERGE_SEARCH_MAX);
        let same = recent.into_iter().find(|queued| {
            queued.write.attempt == attempt.id
                && queued.write.op == attempt.op
                && queued.write.run == attempt.run
                && queued.write.stream == new.stream
        });
        let has_room = |queued: &&mut QueuedWrite| {
            !queued.write.closes
                && queued.write.chunks.len() < PACK_CHUNKS_MAX
                && queued.bytes + bytes <= STREAM_WRITE_BYTES_MAX
        };
        if let Some(queued) = same.filter(has_room) {
            queued.write.chunks.extend(new.chunk);
            queued.write.keep_last = new.keep_last.or(queued.write.keep_last);
            queued.write.closes = new.closes;
            queued.bytes += bytes;
            return;
        }
        let write = StreamWrite {
            run: attempt.run,
            stream: new.stream,
            op: attempt.op,
            attempt: attempt.id,
            first,
            chunks: new.chunk.into_iter().collect(),
            keep_last: new.keep_last,
            closes: new.closes,
        };
        self.writes.push_back(QueuedWrite { write, bytes, buffer: buffer.clone() });
    }

    /// Takes the writes of the next call. `None` if the queue is empty: then the task ends.
    fn take(&mut self) -> Option<Vec<QueuedWrite>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(next) = self.writes.pop_front() {
            if bytes + next.bytes > STREAM_WRITE_BYTES_MAX && !batch.is_empty() {
                self.writes.push_front(next);
                break;
            }
            bytes += next.bytes;
            batch.push(next);
        }
        if batch.is_empty() {
            (self.is_writing, self.busy) = (false, None);
            return None;
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(count: u64) -> WritingAttempt {
        let id = AttemptId::new(SessionId::from_bits(1), count);
        WritingAttempt { run: RunId::from_bits(1), op: OpNumber(count), id }
    }

    fn put(queue: &mut WriteQueue, count: u64, stream: &str, first: u64, bytes: usize) {
        let chunk = Some(ChunkContent::of(&first).unwrap());
        let write = ChunkWrite { stream: stream.into(), chunk, keep_last: None, closes: false };
        queue.put(attempt(count), &Arc::default(), write, first, bytes);
    }

    fn shapes(batch: &[QueuedWrite]) -> Vec<(u64, &str, u64, usize)> {
        let shape = |queued: &QueuedWrite| queued.write.chunks.len();
        let writes = batch.iter();
        writes.map(|w| (w.write.op.0, &*w.write.stream, w.write.first, shape(w))).collect()
    }

    #[test]
    fn chunks_of_one_attempt_and_stream_are_one_write() {
        let mut queue = WriteQueue::default();
        for first in 0..3 {
            put(&mut queue, 0, "a", first, 10);
            put(&mut queue, 0, "b", first, 10);
            put(&mut queue, 1, "a", first, 10);
        }
        let batch = queue.take().unwrap();
        assert_eq!(shapes(&batch), [(0, "a", 0, 3), (0, "b", 0, 3), (1, "a", 0, 3)]);
        assert!(queue.take().is_none());
    }

    #[test]
    fn a_call_has_a_megabyte_at_most_and_a_write_a_thousand_chunks() {
        let mut queue = WriteQueue::default();
        for first in 0..=PACK_CHUNKS_MAX as u64 {
            put(&mut queue, 0, "a", first, 10);
        }
        put(&mut queue, 1, "b", 0, STREAM_WRITE_BYTES_MAX);
        let batch = queue.take().unwrap();
        assert_eq!(shapes(&batch), [(0, "a", 0, 1_000), (0, "a", 1_000, 1)]);
        assert_eq!(shapes(&queue.take().unwrap()), [(1, "b", 0, 1)]);
    }

    #[test]
    fn a_write_behind_a_full_one_does_not_go_before_it() {
        let mut queue = WriteQueue::default();
        for first in 0..PACK_CHUNKS_MAX as u64 + 2 {
            put(&mut queue, 0, "a", first, 10);
        }
        assert_eq!(shapes(&queue.take().unwrap()), [(0, "a", 0, 1_000), (0, "a", 1_000, 2)]);
    }
}
