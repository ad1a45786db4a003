//! Streams as the code of workflows and steps sees them.

use std::fmt;
use std::sync::Arc;

use outlast_core::stream::check_stream_name;
use outlast_core::{ChunkContent, ChunkError, Failure, FailureKind, WorldError};
use serde::Serialize;

use super::attempt::AttemptInfo;
use crate::error::{StepError, kind_of_payload};
use crate::replay::RunState;
use crate::worker::stream_writer::ChunkWrite;

/// A stream of the run, to which its workflow writes; created by [`Context::stream`](crate::Context::stream).
///
/// Writes are stored with the commit of the turn, exactly once, and return nothing. A chunk that has more than 256 KiB or
/// no JSON form is dropped, as are chunks beyond 1 MiB in one turn; the [list of the run's
/// streams](crate::Client::streams) shows how many.
#[derive(Clone)]
pub struct WorkflowStream {
    state: Arc<RunState>,
    name: Arc<str>,
}

impl WorkflowStream {
    pub(crate) fn new(state: Arc<RunState>, name: Arc<str>) -> Self {
        Self { state, name }
    }

    /// Writes a chunk: text, or a value that is stored as JSON.
    pub fn write<T: Serialize + ?Sized>(&self, chunk: &T) {
        self.state.write_chunk(&self.name, || ChunkContent::of(chunk));
    }

    /// Writes a chunk of bytes. A client reads it as [`Binary`](crate::Binary).
    pub fn write_bytes(&self, bytes: &[u8]) {
        self.state.write_chunk(&self.name, || ChunkContent::of_bytes(bytes));
    }

    /// Lets the stream keep only its last `entries`, from now on; older ones are deleted.
    pub fn keep_last(self, entries: u64) -> Self {
        self.state.keep_last(&self.name, entries);
        self
    }

    /// Closes the stream: readers that follow it end. Later writes are counted and not stored.
    pub fn close(&self) {
        self.state.close_stream(&self.name);
    }
}

impl fmt::Debug for WorkflowStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowStream").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A stream of the run, to which an attempt of a step writes; created by
/// [`StepContext::stream`](crate::StepContext::stream).
///
/// A write returns when the chunk is in the buffer of the attempt, and waits while the buffer is full (1 MiB). The
/// chunks are sent to the world in the background, and the attempt does not end before the world has accepted the last
/// one. Chunks of an attempt that is followed by another attempt are superseded; readers present those of the last one.
#[derive(Clone, Debug)]
pub struct StepStream {
    info: Arc<AttemptInfo>,
    name: Arc<str>,
    keep_last: Option<u64>,
}

impl StepStream {
    pub(crate) fn new(info: Arc<AttemptInfo>, name: &str) -> Self {
        Self { info, name: name.into(), keep_last: None }
    }

    /// Writes a chunk: text, or a value that is stored as JSON.
    ///
    /// # Errors
    ///
    /// If the chunk has more than 256 KiB or no JSON form, the name of the stream is not allowed, the stream or the run
    /// has reached a limit with an earlier write, or the attempt has ended.
    pub async fn write<T: Serialize + ?Sized>(&self, chunk: &T) -> Result<(), StepError> {
        self.put(Some(ChunkContent::of(chunk)), false).await
    }

    /// Writes a chunk of bytes. A client reads it as [`Binary`](crate::Binary).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn write_bytes(&self, bytes: &[u8]) -> Result<(), StepError> {
        self.put(Some(ChunkContent::of_bytes(bytes)), false).await
    }

    /// Writes a chunk from the code of a blocking step.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    ///
    /// # Panics
    ///
    /// If it is called in asynchronous code.
    pub fn blocking_write<T: Serialize + ?Sized>(&self, chunk: &T) -> Result<(), StepError> {
        let put = self.put(Some(ChunkContent::of(chunk)), false);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => runtime.block_on(put),
            // In a unit test without a runtime nothing is stored, so nothing is awaited.
            Err(_) => futures_util::FutureExt::now_or_never(put).unwrap_or(Ok(())),
        }
    }

    /// Lets the stream keep only its last `entries`, from the next write on; older ones are deleted.
    #[must_use]
    pub fn keep_last(self, entries: u64) -> Self {
        Self { keep_last: Some(entries.max(1)), ..self }
    }

    /// Closes the stream: readers that follow it end. Later writes are counted and not stored.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn close(&self) -> Result<(), StepError> {
        self.put(None, true).await
    }

    async fn put(
        &self,
        chunk: Option<Result<ChunkContent, ChunkError>>,
        closes: bool,
    ) -> Result<(), StepError> {
        check_stream_name(&self.name).map_err(|problem| step_error(FailureKind::Invalid, problem))?;
        let encode = |plain: ChunkContent| plain.encoded(&*self.info.services.codec);
        let chunk = chunk.map(|chunk| chunk.and_then(encode)).transpose().map_err(refused)?;
        let (stream, keep_last) = (self.name.clone(), self.keep_last);
        self.info.write_chunk(ChunkWrite { stream, chunk, keep_last, closes }).await.map_err(|error| {
            let kind = match error {
                WorldError::Limit(_) => FailureKind::Limit,
                WorldError::Invalid(_) => FailureKind::Invalid,
                _ => FailureKind::Error,
            };
            step_error(kind, format!("cannot write to stream `{}`: {error}", self.name))
        })
    }
}

/// The error for a value that cannot be a chunk.
fn refused(error: ChunkError) -> StepError {
    let kind = match &error {
        ChunkError::Payload(error) => kind_of_payload(error),
        _ => FailureKind::Limit,
    };
    step_error(kind, error.to_string())
}

fn step_error(kind: FailureKind, message: String) -> StepError {
    StepError::of_failure(Failure::new(kind, message))
}
