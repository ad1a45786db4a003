//! Traces: the spans of starts, sends, segments of runs and attempts, and how their contexts travel.
//!
//! ```text
//! outlast.start       a client starts a run          parent: the caller's span
//! outlast.run         one segment: a worker holds    first segment: parent is the start, or the segment that asked for the
//!                     the run until released         child; later ones: a new trace, with links to the start and to the
//!                                                    messages that woke the run
//! outlast.step        one attempt                    parent: its segment
//! outlast.hook.send   a client sends to a hook       parent: the caller's span
//! ```
//!
//! A span does not stay open while a run waits: most systems lose spans that end days later. Contexts travel in the headers
//! `traceparent` and `tracestate` of starts and messages, as in HTTP, so the durable format does not know them. A replay
//! creates no span: segments and attempts are work that happens now.

use std::fmt;
use std::pin::Pin;
use std::sync::OnceLock;

use futures_util::future::Either;
use outlast_core::limits::HEADERS_BYTES_MAX;
use outlast_core::{Headers, Message, NewMessage, Outbox, Start};
use tracing::instrument::Instrumented;
use tracing::{Instrument, Span};

use crate::authoring::attempt::AttemptInfo;
use crate::replay::Machine;

/// The header with the trace, the span and the flags.
const PARENT_HEADER: &str = "traceparent";

/// The header with what tracing systems add.
const STATE_HEADER: &str = "tracestate";

/// The maximum number of links of a span.
const LINKS_MAX: usize = 32;

/// The place of a span in a trace, as the headers of W3C Trace Context.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceContext {
    /// The header `traceparent`, such as `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.
    pub parent: String,
    /// The header `tracestate`.
    pub state: Option<String>,
}

impl TraceContext {
    /// A context with these headers.
    pub fn new(parent: impl Into<String>, state: Option<String>) -> Self {
        Self { parent: parent.into(), state }
    }

    /// The context in the headers of a start or message.
    pub(crate) fn of_headers(headers: &Headers) -> Option<Self> {
        let parent = headers.get(PARENT_HEADER)?.clone();
        Some(Self { parent, state: headers.get(STATE_HEADER).cloned() })
    }
}

/// How a new span belongs to others, and what describes it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SpanConnection<'a> {
    /// The parent, if it is in another process or has ended.
    pub parent: Option<&'a TraceContext>,
    /// Other spans that caused it.
    pub links: &'a [TraceContext],
    /// Names and values, such as `outlast.run.id`. They contain no payloads.
    pub attributes: &'a [(&'static str, String)],
}

/// Connects the spans of this library to a tracing system; the crate `outlast-otel` has one for OpenTelemetry.
///
/// The library creates spans of the crate `tracing`, which have no ids that other processes know. A bridge provides them.
pub trait TraceBridge: Send + Sync + 'static {
    /// The context of a span; `None` if it is not traced.
    fn context(&self, span: &Span) -> Option<TraceContext>;

    /// Describes a new span. It is called once, before the span is entered.
    fn connect(&self, span: &Span, connection: SpanConnection<'_>);

    /// Records that the work of a span failed. The type is a short word, such as `timeout`, or the code of the error.
    fn failed(&self, span: &Span, error_type: &str);
}

static BRIDGE: OnceLock<Box<dyn TraceBridge>> = OnceLock::new();

/// Another [`TraceBridge`] was installed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceBridgeInstalled;

impl fmt::Display for TraceBridgeInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace bridge is installed already; install one per process")
    }
}

impl std::error::Error for TraceBridgeInstalled {}

/// Installs the bridge of this process. It cannot be replaced.
///
/// # Errors
///
/// If another one was installed before.
pub fn install_trace_bridge(bridge: impl TraceBridge) -> Result<(), TraceBridgeInstalled> {
    BRIDGE.set(Box::new(bridge)).map_err(|_| TraceBridgeInstalled)
}

/// Makes a span of the program the child of a span of another process, such as the one that made an HTTP request. Starts and
/// sends inside of the span then belong to that trace. Without a bridge it does nothing. Call it before the span is entered.
pub fn continue_trace(span: &Span, parent: &TraceContext) {
    if let Some(bridge) = bridge_of(span) {
        bridge.connect(span, SpanConnection { parent: Some(parent), links: &[], attributes: &[] });
    }
}

/// The bridge, if there is one and it is concerned with the span.
fn bridge_of(span: &Span) -> Option<&'static dyn TraceBridge> {
    let bridge = BRIDGE.get()?;
    (!span.is_disabled()).then_some(&**bridge)
}

/// The span of a start. Its context becomes a header of the start; a context that the caller has set is its parent.
pub(crate) fn start_span(start: &mut Start) -> Span {
    let Start { run, workflow, version, queue, .. } = &*start;
    let span = tracing::info_span!("outlast.start", %run, %workflow, version, %queue, otel.kind = "producer");
    if let Some(bridge) = bridge_of(&span) {
        let parent = TraceContext::of_headers(&start.headers);
        let attributes = [
            ("outlast.run.id", run.to_string()),
            ("outlast.workflow.name", workflow.to_string()),
            ("outlast.workflow.version", version.to_string()),
            ("outlast.queue", queue.to_string()),
        ];
        bridge
            .connect(&span, SpanConnection { parent: parent.as_ref(), links: &[], attributes: &attributes });
        add_context(bridge, &span, &mut start.headers);
    }
    span
}

/// The span of a send to a hook. Its context becomes a header of the message.
pub(crate) fn send_span(message: &mut NewMessage, hook: &str) -> Span {
    let run = message.run;
    let span = tracing::info_span!("outlast.hook.send", %run, hook, otel.kind = "producer");
    if let Some(bridge) = bridge_of(&span) {
        let parent = TraceContext::of_headers(&message.headers);
        let attributes = [("outlast.run.id", run.to_string()), ("outlast.hook.name", hook.to_owned())];
        bridge
            .connect(&span, SpanConnection { parent: parent.as_ref(), links: &[], attributes: &attributes });
        add_context(bridge, &span, &mut message.headers);
    }
    span
}

/// The span of a segment: the work on a run from a claim or start until it is released or ends. `woken_by` are the messages
/// with which it was claimed.
pub(crate) fn segment_span(machine: &Machine, is_first: bool, woken_by: &[Message]) -> Span {
    let state = machine.run_state();
    let (run, workflow, version, queue) = (state.run(), state.workflow(), state.version(), state.queue());
    let span = tracing::info_span!(parent: None, "outlast.run", %run, workflow, version, queue, otel.kind = "consumer");
    if let Some(bridge) = bridge_of(&span) {
        let start = TraceContext::of_headers(machine.headers());
        let (parent, linked_start) = if is_first { (start, None) } else { (None, start) };
        let messages = woken_by.iter().filter_map(|message| TraceContext::of_headers(&message.headers));
        let links: Vec<_> = linked_start.into_iter().chain(messages).take(LINKS_MAX).collect();
        let attributes = [
            ("outlast.run.id", run.to_string()),
            ("outlast.workflow.name", workflow.to_owned()),
            ("outlast.workflow.version", version.to_string()),
            ("outlast.queue", queue.to_owned()),
        ];
        bridge.connect(
            &span,
            SpanConnection { parent: parent.as_ref(), links: &links, attributes: &attributes },
        );
    }
    span
}

/// The span that contains the log lines of an attempt.
pub(crate) fn attempt_span(info: &AttemptInfo) -> Span {
    let AttemptInfo { run, op, id, step, attempt, workflow, .. } = info;
    let span = tracing::info_span!("outlast.step", %run, %op, %step, attempt, attempt_id = %id);
    if let Some(bridge) = bridge_of(&span) {
        let attributes = [
            ("outlast.run.id", run.to_string()),
            ("outlast.workflow.name", workflow.to_string()),
            ("outlast.step.name", step.to_string()),
            ("outlast.step.attempt", attempt.to_string()),
            ("outlast.operation", op.to_string()),
        ];
        bridge.connect(&span, SpanConnection { parent: None, links: &[], attributes: &attributes });
    }
    span
}

/// Records that the work of a span failed.
pub(crate) fn span_failed(span: &Span, error_type: &str) {
    if let Some(bridge) = bridge_of(span) {
        bridge.failed(span, error_type);
    }
}

/// Works in a span. This is not an async function: its future would contain the work twice. In a span that is enabled the
/// work is boxed, so that it does not enlarge the state of programs without a subscriber.
pub(crate) fn in_span<F: Future>(span: Span, work: F) -> Either<F, Pin<Box<Instrumented<F>>>> {
    if span.is_disabled() { Either::Left(work) } else { Either::Right(Box::pin(work.instrument(span))) }
}

/// Whether segments pass their context on.
pub(crate) fn is_traced() -> bool {
    BRIDGE.get().is_some()
}

/// Adds the context of the current span, which is that of the segment, to the headers of a child or a message.
pub(crate) fn add_current_context(headers: &mut Headers) {
    let span = Span::current();
    if let Some(bridge) = bridge_of(&span) {
        add_context(bridge, &span, headers);
    }
}

/// Adds the context of the current span to the headers of the children and messages of an outbox.
pub(crate) fn with_current_context(mut outbox: Box<Outbox>) -> Box<Outbox> {
    if is_traced() {
        outbox.children.iter_mut().for_each(|child| add_current_context(&mut child.start.headers));
        outbox.messages.iter_mut().for_each(|message| add_current_context(&mut message.headers));
    }
    outbox
}

/// Removes a trace context: the run is started for another reason than the one that the headers are from.
pub(crate) fn remove_context(headers: &mut Headers) {
    headers.remove(PARENT_HEADER);
    headers.remove(STATE_HEADER);
}

fn add_context(bridge: &dyn TraceBridge, span: &Span, headers: &mut Headers) {
    let Some(TraceContext { parent, state }) = bridge.context(span) else { return };
    remove_context(headers);
    let used: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let needed = PARENT_HEADER.len() + parent.len();
    // Headers of the caller come first.
    if used + needed > HEADERS_BYTES_MAX {
        return;
    }
    headers.insert(PARENT_HEADER.into(), parent);
    let state = state.filter(|state| !state.is_empty());
    if let Some(state) = state
        && used + needed + STATE_HEADER.len() + state.len() <= HEADERS_BYTES_MAX
    {
        headers.insert(STATE_HEADER.into(), state);
    }
}
