//! Starting runs, and sending to hooks.

use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use outlast_api::{BatchRequest, Problem, SendRequest, StartRequest, StartedJson};

use crate::audit::NothingChanged;
use crate::body::JsonBody;
use crate::enforce::ActedOn;
use crate::extract::{By, PathOf, PrefixOf, ServiceOf};
use crate::reply::{Reply, json, ok};

pub(crate) async fn start(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    PrefixOf(prefix): PrefixOf,
    headers: HeaderMap,
    JsonBody(request): JsonBody<StartRequest>,
) -> Reply {
    let started = service.start(&caller, request, idempotency_key(&headers)?).await?;
    created(&started, &prefix)
}

pub(crate) async fn batch(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    JsonBody(request): JsonBody<BatchRequest>,
) -> Reply {
    ok(&service.start_batch(&caller, request).await?)
}

pub(crate) async fn send(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    path: PathOf,
    headers: HeaderMap,
    JsonBody(request): JsonBody<SendRequest>,
) -> Reply {
    let (run, hook) = (path.run()?, path.text("name")?);
    ok(&service.send(&caller, run, hook, request, idempotency_key(&headers)?).await?)
}

pub(crate) async fn send_to_token(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    path: PathOf,
    headers: HeaderMap,
    JsonBody(request): JsonBody<SendRequest>,
) -> Reply {
    let (token, key) = (path.text("token")?, idempotency_key(&headers)?);
    let sent = service.send_to_token(&caller, token, request, key).await?;
    let mut response = ok(&sent)?;
    response.extensions_mut().insert(ActedOn(sent.run.id));
    if matches!(sent.delivery.as_str(), "duplicate" | "closed") {
        response.extensions_mut().insert(NothingChanged);
    }
    Ok(response)
}

/// The response to a start: 201 with the address of a new run, 200 with one that existed.
pub(super) fn created(started: &StartedJson, prefix: &str) -> Reply {
    let status = if started.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = json(status, &started.run)?;
    if let Ok(location) = HeaderValue::from_str(&format!("{prefix}/api/runs/{}", started.run.id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().map_err(|_| Problem::field("Idempotency-Key", "it is not printable ASCII"))?;
    Ok(Some(text))
}
