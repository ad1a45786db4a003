//! A request to a webhook, as the workflow sees it and as it is recorded.

use std::fmt;

use outlast_core::limits::WEBHOOK_HEADERS_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::stored_body::StoredBody;

/// Headers that are not recorded: they say who the sender is to this server, and are secrets.
const DROPPED: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// An HTTP request to a webhook.
///
/// `Authorization`, `Proxy-Authorization` and `Cookie` are not part of it, and of the other headers only the first 64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredRequest", into = "StoredRequest")]
pub struct WebhookRequest {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl WebhookRequest {
    /// Creates a request with this method, without headers and body.
    pub fn new(method: impl Into<String>) -> Self {
        let (path, query) = (String::new(), String::new());
        Self { method: method.into(), path, query, headers: Vec::new(), body: Vec::new() }
    }

    /// Creates a `POST` request with this body.
    pub fn post(body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST").with_body(body)
    }

    /// Sets the part of the path that follows the token, without a slash at its beginning.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Sets the query, without the question mark.
    #[must_use]
    pub fn with_query(mut self, query: impl Into<String>) -> Self {
        self.query = query.into();
        self
    }

    /// Adds a header, unless it is one that is not recorded, or there are 64 already.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into().to_ascii_lowercase();
        if self.headers.len() < WEBHOOK_HEADERS_MAX && !DROPPED.contains(&name.as_str()) {
            self.headers.push((name, value.into()));
        }
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Returns the method, such as `POST`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the part of the path that follows the token, without a slash at its beginning, with `%…` decoded.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the query, without the question mark, as it was sent.
    pub fn query(&self) -> &str {
        &self.query
    }

    /// Returns the first header of this name; case is ignored.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns all headers, with names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the body, as it was received.
    pub fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// Returns the body as text.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not UTF-8.
    pub fn text(&self) -> Result<&str, Error> {
        std::str::from_utf8(&self.body)
            .map_err(|_| Error::invalid("the body of the request is not text in UTF-8; read it with `bytes`"))
    }

    /// Decodes the body as JSON.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not the JSON form of a `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let expected = std::any::type_name::<T>();
            Error::invalid(format!("the body of the request is not the JSON of a `{expected}`: {error}"))
        })
    }
}

/// Without values: logs may contain it.
impl fmt::Debug for WebhookRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, headers, bytes) = (&self.method, self.headers.len(), self.body.len());
        write!(f, "WebhookRequest({method}, {headers} headers, {bytes} bytes)")
    }
}

/// The recorded form of a request.
#[derive(Serialize, Deserialize)]
struct StoredRequest {
    method: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    query: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<StoredBody>,
}

impl TryFrom<StoredRequest> for WebhookRequest {
    type Error = String;

    fn try_from(stored: StoredRequest) -> Result<Self, String> {
        let StoredRequest { method, path, query, headers, body } = stored;
        let body = body.map_or(Ok(Vec::new()), |body| body.bytes())?;
        Ok(Self { method, path, query, headers, body })
    }
}

impl From<WebhookRequest> for StoredRequest {
    fn from(request: WebhookRequest) -> Self {
        let WebhookRequest { method, path, query, headers, body } = request;
        let body = (!body.is_empty()).then(|| StoredBody::compact(body));
        Self { method, path, query, headers, body }
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::Payload;
    use outlast_core::limits::{PAYLOAD_BYTES_MAX, WEBHOOK_BODY_BYTES_MAX};

    use super::*;

    #[test]
    fn a_request_is_recorded_in_a_readable_form() {
        let request =
            WebhookRequest::post("{\"ü\":1}").with_path("a/b").with_query("c=d").with_header("X-Id", "7");
        let json = serde_json::to_string(&request).unwrap();
        let expected = r#"{"method":"POST","path":"a/b","query":"c=d","headers":[["x-id","7"]],"body":{"text":"{\"ü\":1}"}}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<WebhookRequest>(&json).unwrap(), request);
        assert_eq!(serde_json::to_string(&WebhookRequest::new("GET")).unwrap(), r#"{"method":"GET"}"#);
    }

    #[test]
    fn every_body_reads_back_and_fits_into_a_payload() {
        for byte in [0_u8, b'\n', b'"', b'a', 0x7f, 0xff] {
            let request = WebhookRequest::post(vec![byte; WEBHOOK_BODY_BYTES_MAX]);
            let payload = Payload::json(&request).unwrap();
            assert!(payload.bytes().len() < PAYLOAD_BYTES_MAX, "{byte}");
            assert_eq!(payload.decode::<WebhookRequest>().unwrap(), request, "{byte}");
        }
        let damaged = r#"{"method":"POST","body":{"base64":"?"}}"#;
        assert!(serde_json::from_str::<WebhookRequest>(damaged).is_err());
    }

    #[test]
    fn secrets_of_the_connection_and_too_many_headers_are_not_part_of_it() {
        let mut request = WebhookRequest::new("POST").with_header("Authorization", "Bearer hunter2");
        request = request.with_header("Cookie", "hunter2").with_header("Proxy-Authorization", "hunter2");
        assert_eq!(request.headers().count(), 0);
        for number in 0..100 {
            request = request.with_header(format!("x-{number}"), "1");
        }
        assert_eq!(
            (request.headers().count(), request.header("X-63"), request.header("x-64")),
            (64, Some("1"), None)
        );
        assert!(!format!("{request:?}").contains("x-1"));
    }

    #[test]
    fn a_body_of_another_form_is_an_error_with_the_remedy() {
        let binary = WebhookRequest::post(vec![0xff, 0]);
        assert_eq!(binary.bytes(), [0xff, 0]);
        assert!(binary.text().unwrap_err().message().ends_with("read it with `bytes`"));
        assert!(WebhookRequest::post("no").json::<u8>().unwrap_err().message().contains("`u8`"));
        assert_eq!(WebhookRequest::post("7").json::<u8>().unwrap(), 7);
    }
}
