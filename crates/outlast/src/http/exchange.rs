//! One attempt: the request, its redirects, and the response.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{StatusCode, header};
use outlast_core::ErrorClass;
use outlast_core::duration::duration_text;
use outlast_core::limits::{FETCH_ERROR_BODY_BYTES_MAX, FETCH_REDIRECTS_MAX, FETCH_RETRY_AFTER_MAX};

use super::FetchSettings;
use super::connection::{OpenResponse, network_error, send, with_sources};
use super::request::{Method, Request};
use super::response::Response;
use super::target::Target;
use crate::authoring::step::StepContext;
use crate::error::StepError;

/// Headers that carry credentials: they must not be recorded.
const CREDENTIALS: [HeaderName; 3] = [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE];

/// Headers that belong to the connection, not to the request.
const OF_CONNECTION: [HeaderName; 7] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
];

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const USER_AGENT: &str = concat!("outlast/", env!("CARGO_PKG_VERSION"));

/// Makes one attempt at a request.
///
/// # Errors
///
/// As described in [`http`](crate::http).
pub(crate) async fn fetch<S>(
    settings: &FetchSettings,
    cx: &StepContext<S>,
    request: Request,
) -> Result<Response, StepError> {
    let prepared = Prepared::of(settings, request, &cx.key())?;
    let (time_limit, is_safe) = (prepared.request.time_limit(), prepared.request.method.is_safe());
    let first_target = prepared.target.clone();
    let exchange = tokio::time::timeout(time_limit, prepared.exchange(settings));
    let stopped = async {
        // A request that may have an effect is awaited, because the effect matters.
        if is_safe { cx.cancelled().await } else { std::future::pending().await }
    };
    tokio::select! {
        ended = exchange => ended.unwrap_or_else(|_| {
            let time = duration_text(time_limit);
            Err(network_error(&first_target, &format!("no complete response within {time}")))
        }),
        () = stopped => Err(StepError::msg(format!("{first_target}: the response is no longer needed"))),
    }
}

/// A request that is valid, and where it goes next.
struct Prepared {
    request: Request,
    method: Method,
    target: Target,
    headers: HeaderMap,
    /// Headers with secrets. Empty after a redirect to another origin.
    credentials: HeaderMap,
    body: Bytes,
}

impl Prepared {
    fn of(settings: &FetchSettings, request: Request, key: &str) -> Result<Self, StepError> {
        let invalid = |problem: String| StepError::fatal(format!("the request is not valid: {problem}"));
        if let Some(problem) = &request.problem {
            return Err(invalid(problem.clone()));
        }
        let target = Target::parse(&request.url).map_err(invalid)?;
        let headers = plain_headers(&request, key).map_err(invalid)?;
        let mut credentials = HeaderMap::new();
        for used in &request.secrets {
            let name = header_name(&used.header).map_err(invalid)?;
            let mut value = HeaderValue::try_from(settings.secrets.header_value(used)?).map_err(|_| {
                StepError::fatal(format!("secret `{}` cannot be the value of a header", used.secret))
            })?;
            value.set_sensitive(true);
            credentials.insert(name, value);
        }
        let body =
            request.body.as_ref().map_or_else(|| Ok(Vec::new()), |body| body.bytes()).map_err(invalid)?;
        Ok(Self { method: request.method, request, target, headers, credentials, body: body.into() })
    }

    async fn exchange(mut self, settings: &FetchSettings) -> Result<Response, StepError> {
        for _ in 0..=FETCH_REDIRECTS_MAX {
            let open = send(settings, &self.target, self.message()?).await?;
            match redirect_of(&open) {
                Some((status, location)) => self.follow(status, &location)?,
                None => return self.read(open).await,
            }
        }
        let message = format!("{}: more than {FETCH_REDIRECTS_MAX} redirects", self.target);
        Err(StepError::fatal(message).with_code("too_many_redirects"))
    }

    /// The request in the form of the HTTP library.
    fn message(&self) -> Result<hyper::Request<Full<Bytes>>, StepError> {
        let mut message = hyper::Request::builder()
            .method(self.method.as_str())
            .uri(self.target.path.as_str())
            .body(Full::new(self.body.clone()))
            .map_err(|error| StepError::fatal(format!("the request is not valid: {error}")))?;
        let headers = message.headers_mut();
        headers.extend(self.headers.clone());
        headers.extend(self.credentials.clone());
        let host = HeaderValue::try_from(self.target.authority());
        headers.insert(
            header::HOST,
            host.map_err(|error| StepError::fatal(format!("the request is not valid: {error}")))?,
        );
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        Ok(message)
    }

    /// Changes the target, and what may be sent to it.
    fn follow(&mut self, status: StatusCode, location: &str) -> Result<(), StepError> {
        let from = &self.target;
        let next = from.join(location).map_err(|problem| {
            StepError::fatal(format!("{from}: the redirect leads nowhere: {problem}"))
                .with_code("bad_redirect")
        })?;
        if !next.is_same_origin(from) {
            self.credentials.clear();
        }
        let becomes_get = match status {
            StatusCode::SEE_OTHER => self.method != Method::Head,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.method == Method::Post,
            _ => false,
        };
        if becomes_get {
            self.method = Method::Get;
            self.body = Bytes::new();
            self.headers.remove(header::CONTENT_TYPE);
        }
        self.target = next;
        Ok(())
    }

    /// Reads the response, and decides what it means.
    async fn read(&self, mut open: OpenResponse) -> Result<Response, StepError> {
        let status = open.response.status();
        let is_accepted = self.request.accepted.contains(&status.as_u16());
        if !is_accepted && (status.is_client_error() || status.is_server_error()) {
            return Err(self.failure(&mut open).await);
        }
        let limit = self.request.response_limit();
        let announced = open.response.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let is_too_long =
            self.method != Method::Head && announced.is_some_and(|length| length > limit as u64);
        let body = if is_too_long { None } else { self.body_of(&mut open, limit).await?.whole() };
        let Some(body) = body else {
            let message = format!(
                "{}: the body of the response has more than {limit} bytes, which is the limit; ask for less, or let a \
                 step of your own store it elsewhere",
                self.target
            );
            return Err(StepError::fatal(message).with_code("response_too_large"));
        };
        let mut response = Response::new(status.as_u16()).with_body(body);
        for (name, value) in open.response.headers() {
            if *name != header::SET_COOKIE {
                response = response.with_header(name.as_str(), String::from_utf8_lossy(value.as_bytes()));
            }
        }
        Ok(response)
    }

    /// Receives at most this number of bytes.
    async fn body_of(&self, open: &mut OpenResponse, limit: usize) -> Result<ReceivedBody, StepError> {
        let (mut bytes, mut is_cut) = (Vec::new(), false);
        while let Some(frame) = open.response.body_mut().frame().await {
            let frame = frame.map_err(|error| network_error(&self.target, &with_sources(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            let room = limit - bytes.len();
            bytes.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                is_cut = true;
                break;
            }
        }
        Ok(ReceivedBody { bytes, is_cut })
    }

    /// The error of a response with an error status, with the beginning of its body.
    async fn failure(&self, open: &mut OpenResponse) -> StepError {
        let status = open.response.status();
        let pause = retry_after(open.response.headers());
        // The status matters more than a body that is not complete.
        let body =
            self.body_of(open, FETCH_ERROR_BODY_BYTES_MAX).await.map(|body| body.bytes).unwrap_or_default();
        let message = format!("{}: {status}", self.target);
        let details =
            serde_json::json!({ "status": status.as_u16(), "body": String::from_utf8_lossy(&body) });
        let class = match status {
            StatusCode::TOO_MANY_REQUESTS => ErrorClass::RateLimit,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => ErrorClass::Transient,
            status if status.is_server_error() => ErrorClass::Server,
            _ => return coded(StepError::fatal(message), status).with_details(details),
        };
        let error = match pause {
            Some(pause) => StepError::retry_after(message, pause),
            None => StepError::msg(message),
        };
        coded(error, status).class(class).with_details(details)
    }
}

/// A body, or the beginning of one.
struct ReceivedBody {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl ReceivedBody {
    fn whole(self) -> Option<Vec<u8>> {
        (!self.is_cut).then_some(self.bytes)
    }
}

fn coded(error: StepError, status: StatusCode) -> StepError {
    error.with_code(format!("http_{}", status.as_u16()))
}

fn plain_headers(request: &Request, key: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let name = header_name(name)?;
        if CREDENTIALS.contains(&name) {
            return Err(format!(
                "header `{name}` would be recorded with its value; use `.bearer(…)`, `.basic(…)` or \
                 `.secret_header(\"{name}\", …)` with the name of a secret"
            ));
        }
        let value =
            HeaderValue::try_from(value).map_err(|_| format!("header `{name}` has an invalid value"))?;
        headers.append(name, value);
    }
    if !headers.contains_key(IDEMPOTENCY_KEY) {
        let key = HeaderValue::try_from(key)
            .map_err(|_| "the key of the step cannot be the value of a header".to_owned())?;
        headers.insert(IDEMPOTENCY_KEY, key);
    }
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    Ok(headers)
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    let parsed = HeaderName::try_from(name).map_err(|_| format!("`{name}` is not the name of a header"))?;
    if OF_CONNECTION.contains(&parsed) {
        return Err(format!("header `{name}` is set by the worker; remove it from the request"));
    }
    Ok(parsed)
}

/// The status and location of a redirect.
fn redirect_of(open: &OpenResponse) -> Option<(StatusCode, String)> {
    let status = open.response.status();
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = open.response.headers().get(header::LOCATION)?;
    Some((status, location.to_str().unwrap_or("\u{0}").to_owned()))
}

/// How long the server asks to wait, limited.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let value = text(header::RETRY_AFTER)?;
    let pause = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        // By the server's own clock, so that it does not matter whether ours is right.
        let until = httpdate::parse_http_date(value).ok()?;
        let now = httpdate::parse_http_date(text(header::DATE)?).ok()?;
        until.duration_since(now).unwrap_or_default()
    };
    Some(pause.min(FETCH_RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(retry_after_value: &str, date: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, retry_after_value.parse().unwrap());
        if let Some(date) = date {
            headers.insert(header::DATE, date.parse().unwrap());
        }
        retry_after(&headers).map(|pause| pause.as_secs())
    }

    #[test]
    fn retry_after_is_a_number_or_a_date_and_limited() {
        let now = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(pause("0", None), Some(0));
        assert_eq!(pause(" 7 ", None), Some(7));
        assert_eq!(pause("99999999999999999999999", None), Some(3_600));
        assert_eq!(pause("Sun, 06 Nov 1994 08:50:37 GMT", now), Some(60));
        assert_eq!(pause("Sun, 06 Nov 1994 08:00:00 GMT", now), Some(0));
        assert_eq!(pause("Sun, 06 Nov 2094 08:00:00 GMT", now), None, "the day of the week is wrong");
        assert_eq!(pause("Sun, 06 Nov 1994 08:50:37 GMT", None), None);
        assert_eq!(pause("-1", None), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn headers_that_would_be_recorded_or_belong_to_the_connection_are_refused() {
        let problem = |name: &str| plain_headers(&Request::get("x").header(name, "v"), "key").unwrap_err();
        assert!(problem("Authorization").contains("`.bearer(…)`"));
        assert!(problem("cookie").contains("`.secret_header(\"cookie\", …)`"));
        assert!(problem("Host").contains("is set by the worker"));
        assert!(problem("a b").contains("is not the name of a header"));
        let headers = plain_headers(&Request::get("x").header("idempotency-key", "own"), "key").unwrap();
        assert_eq!(headers[IDEMPOTENCY_KEY], "own");
    }
}
