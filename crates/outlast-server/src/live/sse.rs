//! Server-sent events: the text of events, and the body of a response.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use futures_util::Stream;
use outlast::SystemClock;
use outlast::core::Clock;
use outlast_api::{ByeJson, HelloJson, Rfc3339};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::permits::StreamPermit;

/// After how long a client connects again.
const RETRY_MS: u64 = 1_000;

/// How often a comment is sent, so that proxies keep the connection.
const COMMENT_EVERY: Duration = Duration::from_secs(15);

/// One event, as text.
pub(crate) fn event(name: &str, id: Option<&str>, data: &impl Serialize) -> String {
    event_of_json(name, id, &serde_json::to_string(data).unwrap_or_default())
}

/// One event whose data is JSON without line breaks.
pub(crate) fn event_of_json(name: &str, id: Option<&str>, json: &str) -> String {
    match id {
        Some(id) => format!("event: {name}\nid: {id}\ndata: {json}\n\n"),
        None => format!("event: {name}\ndata: {json}\n\n"),
    }
}

/// What a stream sends.
pub(crate) trait EventSource: Send + 'static {
    /// The next events, as text; `None` at the end. It may be dropped while it waits, and is then called again.
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send;
}

/// The id of the last event that the client has seen.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    headers.get("last-event-id")?.to_str().ok().filter(|id| !id.is_empty())
}

/// The response that streams the events of a source: first `hello`, and `bye` when the server stops.
pub(crate) fn response(
    source: impl EventSource,
    now: Rfc3339,
    shutdown: CancellationToken,
    permit: StreamPermit,
) -> Response {
    let hello = event("hello", None, &HelloJson { server_time: now, retry_ms: RETRY_MS });
    let first = format!("retry: {RETRY_MS}\n{hello}");
    let body = Body::from_stream(events(source, first, shutdown, permit));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Where a stream is.
enum Phase {
    First(String),
    Running,
    Over,
}

fn events(
    source: impl EventSource,
    first: String,
    shutdown: CancellationToken,
    permit: StreamPermit,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let state = (source, Phase::First(first), shutdown, permit);
    futures_util::stream::unfold(state, |(mut source, phase, shutdown, permit)| async move {
        let (text, phase) = match phase {
            Phase::First(text) => (text, Phase::Running),
            Phase::Running => next(&mut source, &shutdown).await?,
            Phase::Over => return None,
        };
        Some((Ok(Bytes::from(text)), (source, phase, shutdown, permit)))
    })
}

async fn next(source: &mut impl EventSource, shutdown: &CancellationToken) -> Option<(String, Phase)> {
    let comment_at = SystemClock.now().plus(COMMENT_EVERY);
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {
            Some((event("bye", None, &ByeJson { reason: "shutdown".into() }), Phase::Over))
        }
        text = source.next() => text.map(|text| (text, Phase::Running)),
        _ = SystemClock.sleep_until(comment_at) => Some((":\n\n".into(), Phase::Running)),
    }
}
