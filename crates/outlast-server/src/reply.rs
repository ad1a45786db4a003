//! Responses.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use outlast_api::{DidWhat, Problem, ProblemCode};
use serde::Serialize;

use crate::audit::NothingChanged;

/// The result of a handler.
pub(crate) type Reply = Result<Response, ProblemReply>;

/// A refusal. The guard writes its document, because it knows the id of the request.
#[derive(Clone, Debug)]
pub(crate) struct ProblemReply(pub(crate) Problem);

impl From<Problem> for ProblemReply {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl ProblemReply {
    pub(crate) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    /// A response without a body, which the guard completes.
    pub(crate) fn into_bare_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for ProblemReply {
    fn into_response(self) -> Response {
        self.into_bare_response()
    }
}

/// A JSON response.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    let text = to_json(value)?;
    Ok((status, [(CONTENT_TYPE, "application/json")], text).into_response())
}

/// A JSON response with status 200.
pub(crate) fn ok(value: &impl Serialize) -> Reply {
    json(StatusCode::OK, value)
}

/// The response to a request that changes something, or found that it has nothing to do.
pub(crate) fn changed(did: DidWhat, value: &impl Serialize) -> Reply {
    if did == DidWhat::Requested { ok(value) } else { unchanged(value) }
}

/// The response to a request that could have changed something, and has not.
pub(crate) fn unchanged(value: &impl Serialize) -> Reply {
    let mut response = ok(value)?;
    response.extensions_mut().insert(NothingChanged);
    Ok(response)
}

/// A JSON response with a weak tag; 304 if the caller has it already.
pub(crate) fn tagged(request: &HeaderMap, value: &impl Serialize) -> Reply {
    let text = to_json(value)?;
    let tag = format!("W/\"{:016x}\"", digest(&text));
    let known = request.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known.flat_map(|tags| tags.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known.trim_start_matches("W/") == tag.trim_start_matches("W/")
    });
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(CONTENT_TYPE, "application/json")], text).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}

/// A response without content.
pub(crate) fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, ProblemReply> {
    serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "a response cannot be written");
        ProblemReply::new(
            ProblemCode::Internal,
            "the response cannot be written; the log of the server says why",
        )
    })
}

/// A 64-bit digest (FNV-1a) of a response.
fn digest(bytes: &[u8]) -> u64 {
    let begin = 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(begin, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
