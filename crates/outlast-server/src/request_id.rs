//! Ids of requests.

use axum::http::HeaderValue;

/// The header of requests and responses.
pub(crate) const HEADER: &str = "x-request-id";

/// The longest id that is taken over from a request.
const CHARACTERS_MAX: usize = 64;

/// The id of a request, which logs and problem documents contain.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(String);

impl RequestId {
    /// The id that the request has, if it is harmless; otherwise a new one.
    pub(crate) fn of(header: Option<&HeaderValue>) -> Self {
        let given = header.and_then(|value| value.to_str().ok()).filter(|text| is_harmless(text));
        given.map_or_else(Self::new, |text| Self(text.to_owned()))
    }

    fn new() -> Self {
        Self(format!("req_{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_harmless(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=CHARACTERS_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}
