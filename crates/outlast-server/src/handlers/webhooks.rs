//! Requests to webhooks: from everybody who knows the URL.
//!
//! Everything is checked before anything is stored, and the cheap checks come first: the token, the method, the rate, the
//! type and size of the body, the signature.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use outlast::SystemClock;
use outlast::core::limits::{WEBHOOK_BODY_BYTES_MAX, WEBHOOK_RESPOND_TIME};
use outlast::core::{Clock, TokenHash};
use outlast::webhook::{AcceptedWebhook, WebhookRefusal, WebhookReply, WebhookRequest};
use outlast_api::{Problem, ProblemCode};

use crate::extract::PathOf;
use crate::metrics::HttpMetrics;
use crate::reply::{ProblemReply, Reply};
use crate::state::AppState;

/// How long the body of a request may take.
const BODY_TIME: Duration = Duration::from_secs(30);

/// What browsers may do with a response: it comes from a workflow, and may repeat what a sender sent.
const POLICY: &str = "default-src 'none'; sandbox";

/// Counts what became of a request. One that nobody has finished has failed.
struct OutcomeCount<'a> {
    metrics: &'a HttpMetrics,
    outcome: &'static str,
}

impl Drop for OutcomeCount<'_> {
    fn drop(&mut self) {
        self.metrics.webhook(self.outcome);
    }
}

pub(crate) async fn accept(State(state): State<AppState>, path: PathOf, request: Request) -> Reply {
    let mut count = OutcomeCount { metrics: &state.metrics, outcome: "failed" };
    let (parts, body) = request.into_parts();
    match answer(&state, &path, &parts, body, &mut count).await {
        Ok(response) => Ok(response),
        Err(Refused { problem, outcome, allow }) => {
            count.outcome = outcome;
            let mut response = ProblemReply::from(problem).into_response();
            if let Some(allow) = allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
                response.headers_mut().insert(ALLOW, allow);
            }
            Ok(response)
        }
    }
}

/// Why a request is refused: for the sender, and for the metrics.
struct Refused {
    problem: Problem,
    outcome: &'static str,
    /// The allowed methods.
    allow: Option<String>,
}

impl Refused {
    fn new(outcome: &'static str, problem: Problem) -> Self {
        Self { problem, outcome, allow: None }
    }
}

impl From<WebhookRefusal> for Refused {
    fn from(refusal: WebhookRefusal) -> Self {
        let detail = refusal.to_string();
        let (outcome, code) = match &refusal {
            WebhookRefusal::Ended => ("ended", ProblemCode::Gone),
            WebhookRefusal::Method(_) => ("method_not_allowed", ProblemCode::MethodNotAllowed),
            WebhookRefusal::TooLarge => ("too_large", ProblemCode::TooLarge),
            WebhookRefusal::NotSigned(_) => ("not_signed", ProblemCode::NotSigned),
            WebhookRefusal::NoSecret(secret) => {
                tracing::error!(
                    secret,
                    "a request to a webhook needs a secret that this server does not have"
                );
                ("failed", ProblemCode::Unavailable)
            }
            WebhookRefusal::BadSecret(secret, why) => {
                tracing::error!(secret, why, "the secret of a webhook cannot be used");
                ("failed", ProblemCode::Unavailable)
            }
            refusal if refusal.status() == 429 => ("inbox_full", ProblemCode::Limit),
            WebhookRefusal::Failed(error) => {
                tracing::warn!(%error, "a request to a webhook could not be stored");
                ("failed", ProblemCode::Unavailable)
            }
            _ => ("failed", ProblemCode::Unavailable),
        };
        let allow =
            if let WebhookRefusal::Method(allowed) = &refusal { Some(allowed.join(", ")) } else { None };
        let limit = matches!(refusal, WebhookRefusal::TooLarge).then_some(WEBHOOK_BODY_BYTES_MAX as u64);
        let problem = Problem::new(code, detail).with(|problem| problem.limit_bytes = limit);
        Self { allow, ..Self::new(outcome, problem) }
    }
}

async fn answer(
    state: &AppState,
    path: &PathOf,
    parts: &Parts,
    body: axum::body::Body,
    count: &mut OutcomeCount<'_>,
) -> Result<Response, Refused> {
    if state.config.is_read_only {
        let problem =
            Problem::new(ProblemCode::ReadOnly, "this server only reads; send the request to another one");
        return Err(Refused::new("read_only", problem));
    }
    let failed = |error: outlast::Error| Refused::from(WebhookRefusal::Failed(error));
    let token = path.text("token").unwrap_or_default();
    let unknown = || Refused::new("unknown", Problem::new(ProblemCode::NotFound, "there is no such webhook"));
    let entry = state.service.client().webhook(token).await.map_err(failed)?.ok_or_else(unknown)?;
    let head = request_of(parts, path.text("path").unwrap_or_default());
    entry.check_head(&head)?;
    let limited = state.rates.check_webhook(TokenHash::of(token), SystemClock.now());
    limited.map_err(|problem| Refused::new("rate_limited", problem))?;
    check_encoding(parts)?;
    let body = read(parts, body).await?;
    let accepted = entry.accept(head.with_body(body), &state.config.webhook_secrets).await?;
    count.outcome = if accepted.is_duplicate() { "duplicate" } else { "accepted" };
    Ok(response_of(reply(state, accepted).await))
}

fn check_encoding(parts: &Parts) -> Result<(), Refused> {
    match parts.headers.get(CONTENT_ENCODING) {
        None => Ok(()),
        Some(encoding) if encoding.as_bytes().eq_ignore_ascii_case(b"identity") => Ok(()),
        Some(_) => {
            let detail = "a webhook accepts no compressed bodies; send it without `Content-Encoding`";
            Err(Refused::new("unsupported_media", Problem::new(ProblemCode::UnsupportedMedia, detail)))
        }
    }
}

async fn read(parts: &Parts, body: axum::body::Body) -> Result<Bytes, Refused> {
    let length =
        parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > WEBHOOK_BODY_BYTES_MAX as u64) {
        return Err(WebhookRefusal::TooLarge.into());
    }
    let collected = Limited::new(body, WEBHOOK_BODY_BYTES_MAX).collect();
    let cut_off = |why: &str| {
        Refused::new("cut_off", Problem::field("", format!("the body of the request cannot be read: {why}")))
    };
    match tokio::time::timeout(BODY_TIME, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(WebhookRefusal::TooLarge.into()),
        Ok(Err(_)) => Err(cut_off("it was cut off")),
        Err(_) => Err(cut_off("it did not arrive in time")),
    }
}

/// The request without its body.
fn request_of(parts: &Parts, path: &str) -> WebhookRequest {
    let request = WebhookRequest::new(parts.method.as_str()).with_path(path);
    let request = request.with_query(parts.uri.query().unwrap_or_default());
    parts.headers.iter().fold(request, |request, (name, value)| {
        request.with_header(name.as_str(), String::from_utf8_lossy(value.as_bytes()))
    })
}

/// The response to a request that is stored: at once, or when the workflow has it, if not too many others wait.
async fn reply(state: &AppState, accepted: AcceptedWebhook) -> WebhookReply {
    if let Some(reply) = accepted.immediate_reply() {
        return reply;
    }
    let Ok(_permit) = state.held_webhooks.try_acquire() else { return AcceptedWebhook::stored_reply() };
    let waited = tokio::select! {
        reply = tokio::time::timeout(WEBHOOK_RESPOND_TIME, accepted.reply()) => reply,
        () = state.config.shutdown.cancelled() => return AcceptedWebhook::stored_reply(),
    };
    match waited {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => {
            tracing::warn!(%error, "the response of a workflow to a webhook cannot be read");
            AcceptedWebhook::stored_reply()
        }
        Err(_) => AcceptedWebhook::stored_reply(),
    }
}

fn response_of(reply: WebhookReply) -> Response {
    let WebhookReply { status, headers, body } = match reply.problem() {
        None => reply,
        Some(problem) => {
            tracing::warn!(problem, "the response of a workflow to a webhook cannot be sent");
            AcceptedWebhook::stored_reply()
        }
    };
    let has_body = !body.is_empty();
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::ACCEPTED);
    let mut response = (status, body).into_response();
    let fields = response.headers_mut();
    // axum adds a type of its own.
    fields.remove(CONTENT_TYPE);
    if has_body {
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value))
        {
            fields.insert(name, value);
        }
    }
    fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}
