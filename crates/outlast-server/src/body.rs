//! Bodies of requests: JSON, with a limit for size and depth.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use outlast::core::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};
use outlast_api::{Problem, ProblemCode};
use serde::de::DeserializeOwned;

use crate::audit::GivenReason;
use crate::reply::ProblemReply;

/// The largest body: a payload, and what surrounds it.
const BODY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64 * 1024;

/// The deepest nesting: that of a payload, in an object, in an array, in an object.
const BODY_DEPTH_MAX: usize = PAYLOAD_DEPTH_MAX + 4;

/// The time in which a body must arrive: less than a request may take, so that a request whose body is slow is known to have
/// done nothing.
const BODY_TIME: Duration = Duration::from_secs(25);

/// A JSON body.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

/// A JSON body that may be empty.
#[derive(Debug)]
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ProblemReply;

    async fn from_request(request: Request, _: &S) -> Result<Self, ProblemReply> {
        let bytes = read(request).await?;
        Ok(Self(parse(&bytes)?))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = ProblemReply;

    async fn from_request(request: Request, _: &S) -> Result<Self, ProblemReply> {
        let bytes = read(request).await?;
        Ok(Self(if bytes.is_empty() { T::default() } else { parse(&bytes)? }))
    }
}

/// The bytes of a body of the right type and size.
async fn read(request: Request) -> Result<Bytes, Problem> {
    check_media(request.headers())?;
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let reason = request.extensions().get::<GivenReason>().cloned();
    let collected = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let Ok(collected) = tokio::time::timeout(BODY_TIME, collected).await else {
        return Err(Problem::field("", "the body cannot be read: it did not arrive in time"));
    };
    match collected {
        Ok(body) => {
            let bytes = body.to_bytes();
            if let Some(reason) = reason {
                reason.read(&bytes);
            }
            Ok(bytes)
        }
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Problem::field("", format!("the body cannot be read: {error}"))),
    }
}

fn check_media(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let unsupported = |detail: &str| Err(Problem::new(ProblemCode::UnsupportedMedia, detail));
    if text(CONTENT_ENCODING).is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        return unsupported("the body is compressed; send it as it is");
    }
    let media = text(CONTENT_TYPE).map(|media| media.split(';').next().unwrap_or_default().trim());
    match media {
        None => Ok(()),
        Some(media) if media.eq_ignore_ascii_case("application/json") => Ok(()),
        Some(_) => unsupported("the body is not JSON; send it with `Content-Type: application/json`"),
    }
}

fn too_large() -> Problem {
    let detail = format!(
        "the body is larger than {BODY_BYTES_MAX} bytes; store large values elsewhere, or send several requests"
    );
    let limit = Some(BODY_BYTES_MAX as u64);
    Problem::new(ProblemCode::TooLarge, detail).with(|problem| problem.limit_bytes = limit)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let depth = depth(bytes);
    if depth > BODY_DEPTH_MAX {
        let message =
            format!("the body is nested {depth} levels deep, the limit is {BODY_DEPTH_MAX}; flatten it");
        return Err(Problem::field("", message));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut reader);
    let value = read.map_err(|error| Problem::field(pointer(error.path()), error.inner().to_string()))?;
    reader.end().map_err(|error| Problem::field("", error.to_string()))?;
    Ok(value)
}

/// The JSON pointer of a path.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let segments = path.iter().map(|segment| match segment {
        Segment::Seq { index } => index.to_string(),
        Segment::Map { key } => key.replace('~', "~0").replace('/', "~1"),
        Segment::Enum { variant } => variant.clone(),
        Segment::Unknown => "?".into(),
    });
    segments.map(|segment| format!("/{segment}")).collect()
}

/// The depth of nesting of a JSON text.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut is_escaped) = (false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use outlast_api::{BatchRequest, StartRequest};

    use super::*;

    #[test]
    fn numbers_keep_all_their_digits() {
        let body = br#"{"workflow":"a","input":{"id":1970670598291982290123456789}}"#;
        let request: StartRequest = parse(body).unwrap();
        assert_eq!(request.input.unwrap().get(), r#"{"id":1970670598291982290123456789}"#);
    }

    #[test]
    fn a_wrong_field_is_named() {
        let pointer_of =
            |body: &str| parse::<BatchRequest>(body.as_bytes()).unwrap_err().errors[0].pointer.clone();
        assert_eq!(pointer_of(r#"{"starts":[{"workflow":7}]}"#), "/starts/0/workflow");
        assert_eq!(pointer_of(r#"{"starts":[{"workflow":"a","colour":1}]}"#), "/starts/0/colour");
        assert_eq!(pointer_of(r#"{"starts":[]} x"#), "");
        assert_eq!(pointer_of(r#"{"starts":"#), "/starts");
    }

    #[test]
    fn a_body_that_is_nested_too_deeply_is_refused() {
        let deep = "[".repeat(100_000);
        let problem = parse::<serde_json::Value>(deep.as_bytes()).unwrap_err();
        assert!(problem.detail.contains("100000 levels"), "{}", problem.detail);
        assert_eq!(depth(br#"{"a":"[[[\"[","b":[1]}"#), 2);
    }
}
