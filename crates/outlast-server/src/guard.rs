//! The outermost layer: ids of requests, headers of responses, problem documents.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt;
use outlast_api::{Problem, ProblemCode};

use crate::reply::ProblemReply;
use crate::request_id::{HEADER, RequestId};

/// The longest address.
const URI_BYTES_MAX: usize = 8 * 1024;

/// The largest headers.
const HEADERS_BYTES_MAX: usize = 16 * 1024;

/// Answers a request, and adds to the response what every response has.
pub(crate) async fn guard(request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers().get(HEADER));
    let mut response = match check_size(&request) {
        Ok(()) => answer(request, next, &id).await,
        Err(problem) => ProblemReply::from(problem).into_bare_response(),
    };
    if let Some(ProblemReply(problem)) = response.extensions_mut().remove() {
        write_problem(&mut response, problem, &id);
    }
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    headers.entry(REFERRER_POLICY).or_insert(HeaderValue::from_static("same-origin"));
    for name in ["cross-origin-resource-policy", "cross-origin-opener-policy"] {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static("same-origin"));
    }
    headers.insert("outlast-api", HeaderValue::from_static("1"));
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        headers.insert(HEADER, value);
    }
    response
}

fn check_size(request: &Request) -> Result<(), Problem> {
    let uri = request.uri().path_and_query().map_or(0, |address| address.as_str().len());
    if uri > URI_BYTES_MAX {
        let detail = format!("the address has {uri} bytes, the limit is {URI_BYTES_MAX}");
        return Err(Problem::new(ProblemCode::UriTooLong, detail));
    }
    let headers: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers > HEADERS_BYTES_MAX {
        let detail = format!("the headers have {headers} bytes, the limit is {HEADERS_BYTES_MAX}");
        return Err(Problem::new(ProblemCode::HeadersTooLarge, detail));
    }
    Ok(())
}

/// The response; a problem if the handler panics.
async fn answer(mut request: Request, next: Next, id: &RequestId) -> Response {
    request.extensions_mut().insert(id.clone());
    let answered = std::panic::AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answered.unwrap_or_else(|_| {
        tracing::error!(request = id.as_str(), "a request panicked");
        let detail = "the server failed to answer; its log says why";
        ProblemReply::from(Problem::new(ProblemCode::Internal, detail)).into_bare_response()
    })
}

fn write_problem(response: &mut Response, mut problem: Problem, id: &RequestId) {
    problem.instance = id.as_str().to_owned();
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.status_mut() = status;
    *response.body_mut() = Body::from(serde_json::to_vec(&problem).unwrap_or_default());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"outlast\""));
        }
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
}
