//! The log lines of attempts, as a stream of their run.
//!
//! A [`AttemptLogLayer`] finds the attempt of each line by the spans around it, and writes the line to the stream
//! `outlast:log` of the run. So a dashboard or `outlast stream tail` can show what a step logged, without a log server.
//! Lines that the code of workflows and the engine log are not included.
//!
//! A line must not wait, so it is put into the attempt's buffer without waiting for room, or dropped. The limits per attempt
//! are far below the size of the buffer.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use outlast_core::ChunkContent;
use outlast_core::limits::{
    ATTEMPT_LOG_BYTES_MAX, ATTEMPT_LOG_LINE_BYTES_MAX, ATTEMPT_LOG_LINES_MAX, LOG_STREAM_ENTRIES_MAX,
};
use outlast_core::stream::LOG_STREAM;
use parking_lot::Mutex;
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::span::Id;
use tracing::{Event, Span, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::authoring::attempt::AttemptInfo;
use crate::worker::stream_writer::ChunkWrite;

/// The name of the span of an attempt.
const ATTEMPT_SPAN: &str = "outlast.step";

/// The crates of the engine, whose own lines are not written.
const ENGINE: [&str; 5] = ["outlast", "outlast_core", "outlast_memory", "outlast_sqlite", "outlast_postgres"];

/// Whether a layer exists.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// The running attempts by the id of their span.
static ATTEMPTS: LazyLock<Mutex<HashMap<u64, Weak<AttemptLog>>>> = LazyLock::new(Mutex::default);

/// A layer that writes the log lines of attempts to the stream `outlast:log` of their run.
///
/// It is opt-in: add it to the subscriber of a worker's program. The filter of the layer decides which lines are written. An
/// attempt writes at most 1,000 lines and 256 KiB; further lines are counted, and the last line says how many. The stream
/// keeps the last 10,000 lines of a run. Values pass through the worker's codec, like all payloads.
///
/// ```
/// use tracing_subscriber::Layer;
/// use tracing_subscriber::filter::LevelFilter;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let lines = outlast::AttemptLogLayer::new().with_filter(LevelFilter::INFO);
/// let subscriber = tracing_subscriber::registry().with(lines).with(tracing_subscriber::fmt::layer());
/// # drop(subscriber); // in a program: `tracing::subscriber::set_global_default(subscriber)`
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct AttemptLogLayer {}

impl AttemptLogLayer {
    /// Creates the layer. From now on, attempts look for it.
    #[allow(clippy::new_without_default, reason = "creating it has an effect")]
    pub fn new() -> Self {
        IS_ACTIVE.store(true, Ordering::Release);
        Self {}
    }
}

/// A line as it is stored.
#[derive(Debug, Serialize)]
struct LogLine<'a> {
    at: String,
    level: &'a str,
    target: &'a str,
    step: &'a str,
    attempt: u32,
    message: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<&'static str, String>,
}

/// The log of one attempt.
#[derive(Debug)]
struct AttemptLog {
    info: Arc<AttemptInfo>,
    lines: AtomicU64,
    bytes: AtomicU64,
    omitted: AtomicU64,
}

/// The registration of an attempt, until this is dropped.
#[derive(Debug)]
pub(crate) struct LoggedAttempt {
    span: u64,
    log: Arc<AttemptLog>,
}

impl LoggedAttempt {
    /// Registers an attempt, if there is a layer and the span has an id.
    pub(crate) fn of(span: &Span, info: &Arc<AttemptInfo>) -> Option<Self> {
        if !IS_ACTIVE.load(Ordering::Acquire) {
            return None;
        }
        let span = span.id().as_ref().map(Id::into_u64)?;
        let [lines, bytes, omitted] = [0, 0, 0].map(AtomicU64::new);
        let log = Arc::new(AttemptLog { info: info.clone(), lines, bytes, omitted });
        ATTEMPTS.lock().insert(span, Arc::downgrade(&log));
        Some(Self { span, log })
    }
}

impl Drop for LoggedAttempt {
    fn drop(&mut self) {
        ATTEMPTS.lock().remove(&self.span);
        let omitted = self.log.omitted.load(Ordering::Acquire);
        if omitted > 0 {
            let message =
                format!("{omitted} more lines were omitted: an attempt may write 1,000 lines and 256 KiB");
            let line = self.log.line("WARN", "outlast", message, BTreeMap::new());
            self.log.put(&line);
        }
    }
}

impl AttemptLog {
    fn line<'a>(
        &'a self,
        level: &'a str,
        target: &'a str,
        message: String,
        fields: BTreeMap<&'static str, String>,
    ) -> LogLine<'a> {
        let AttemptInfo { services, step, attempt, .. } = &*self.info;
        LogLine {
            at: services.clock.now().to_string(),
            level,
            target,
            step,
            attempt: *attempt,
            message,
            fields,
        }
    }

    /// Writes a line if the limits allow it.
    fn write(&self, line: &LogLine<'_>) {
        let bytes = (line.message.len() + line.fields.values().map(String::len).sum::<usize>() + 128) as u64;
        let is_over = self.lines.fetch_add(1, Ordering::AcqRel) >= ATTEMPT_LOG_LINES_MAX
            || self.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes > ATTEMPT_LOG_BYTES_MAX;
        if is_over || !self.put(line) {
            self.omitted.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Puts a line into the attempt's buffer. Returns whether there was room.
    fn put(&self, line: &LogLine<'_>) -> bool {
        let Ok(chunk) = ChunkContent::of(line).and_then(|plain| plain.encoded(&*self.info.services.codec))
        else {
            return false;
        };
        let (stream, keep_last) = (LOG_STREAM.into(), Some(LOG_STREAM_ENTRIES_MAX));
        self.info.write_chunk_now(ChunkWrite { stream, chunk: Some(chunk), keep_last, closes: false })
    }
}

impl<S> Layer<S> for AttemptLogLayer
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let krate = metadata.target().split("::").next().unwrap_or_default();
        if ENGINE.contains(&krate) {
            return;
        }
        let Some(scope) = context.event_scope(event) else { return };
        let attempt =
            scope.into_iter().find(|span| span.name() == ATTEMPT_SPAN).map(|span| span.id().into_u64());
        let log = attempt.and_then(|id| ATTEMPTS.lock().get(&id)?.upgrade());
        let Some(log) = log else { return };
        let mut text = LineText::default();
        event.record(&mut text);
        log.write(&log.line(metadata.level().as_str(), metadata.target(), text.message, text.fields));
    }
}

/// Collects the message and the fields of a line. Long values are cut.
#[derive(Default)]
struct LineText {
    message: String,
    fields: BTreeMap<&'static str, String>,
}

impl LineText {
    fn put(&mut self, field: &Field, mut value: String) {
        if value.len() > ATTEMPT_LOG_LINE_BYTES_MAX {
            let end = (0..=ATTEMPT_LOG_LINE_BYTES_MAX).rev().find(|end| value.is_char_boundary(*end));
            value.truncate(end.unwrap_or(0));
            value.push('…');
        }
        match field.name() {
            "message" => self.message = value,
            name => drop(self.fields.insert(name, value)),
        }
    }
}

impl Visit for LineText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }
}
