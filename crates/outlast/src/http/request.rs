//! A request as the workflow writes it, and as it is recorded.

use std::time::Duration;

use outlast_core::IntoDuration;
use outlast_core::limits::{FETCH_RESPONSE_BYTES_DEFAULT, FETCH_RESPONSE_BYTES_MAX, FETCH_TIMEOUT_DEFAULT};
use serde::{Deserialize, Serialize};

use crate::stored_body::StoredBody;

/// The method of a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the methods of HTTP")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether a request has no effect, so that it can be abandoned.
    pub(super) fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

/// An HTTP request, for [`Context::fetch`](crate::Context::fetch).
///
/// Everything in it is recorded. What is not valid makes the step fail, without an attempt to connect.
///
/// ```
/// use outlast::http::Request;
///
/// let request = Request::post("https://api.example/orders")
///     .json(&["a chair"])
///     .header("accept", "application/json")
///     .bearer("shop") // the name of a secret, not its value
///     .timeout("10s");
/// # assert_eq!(serde_json::to_value(&request).unwrap()["url"], "https://api.example/orders");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use = "a request is sent by `ctx.fetch`"]
pub struct Request {
    pub(super) method: Method,
    pub(super) url: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) secrets: Vec<SecretUse>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) body: Option<StoredBody>,
    /// Statuses that are no failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) accepted: Vec<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    response_bytes: Option<usize>,
    /// What is wrong with the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

/// A header whose value a worker makes from a secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SecretUse {
    pub(super) header: String,
    pub(super) secret: String,
    pub(super) form: SecretForm,
}

/// How a header contains a secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SecretForm {
    /// As it is.
    Plain,
    /// `Bearer …`.
    Bearer,
    /// As the password of this user.
    Basic(String),
}

impl Request {
    /// Creates a request with this method.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self {
            method,
            url: url.into(),
            headers: Vec::new(),
            secrets: Vec::new(),
            body: None,
            accepted: Vec::new(),
            timeout: None,
            response_bytes: None,
            problem: None,
        }
    }

    /// Creates a `GET` request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new(Method::Get, url)
    }

    /// Creates a `POST` request.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new(Method::Post, url)
    }

    /// Creates a `PUT` request.
    pub fn put(url: impl Into<String>) -> Self {
        Self::new(Method::Put, url)
    }

    /// Creates a `PATCH` request.
    pub fn patch(url: impl Into<String>) -> Self {
        Self::new(Method::Patch, url)
    }

    /// Creates a `DELETE` request.
    pub fn delete(url: impl Into<String>) -> Self {
        Self::new(Method::Delete, url)
    }

    /// Adds a header. Headers that carry credentials are refused, because the request is recorded: use
    /// [`bearer`](Self::bearer), [`basic`](Self::basic) or [`secret_header`](Self::secret_header).
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds the header `Authorization: Bearer …` with the secret of this name.
    pub fn bearer(self, secret: impl Into<String>) -> Self {
        self.with_secret("authorization", secret, SecretForm::Bearer)
    }

    /// Adds the header `Authorization: Basic …` with this user, and the secret of this name as the password.
    pub fn basic(self, user: impl Into<String>, secret: impl Into<String>) -> Self {
        self.with_secret("authorization", secret, SecretForm::Basic(user.into()))
    }

    /// Adds a header whose value is the secret of this name.
    pub fn secret_header(self, header: impl Into<String>, secret: impl Into<String>) -> Self {
        self.with_secret(header, secret, SecretForm::Plain)
    }

    fn with_secret(mut self, header: impl Into<String>, secret: impl Into<String>, form: SecretForm) -> Self {
        self.secrets.push(SecretUse { header: header.into(), secret: secret.into(), form });
        self
    }

    /// Sets the body to a value as JSON, and the header `Content-Type` if it is not set.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        match serde_json::to_string(value) {
            Ok(json) => self.typed_body("application/json", StoredBody::Text(json)),
            Err(error) => self.with_problem(format!("the body has no JSON form: {error}")),
        }
    }

    /// Sets the body to a text, and the header `Content-Type` if it is not set.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.typed_body("text/plain; charset=utf-8", StoredBody::Text(text.into()))
    }

    /// Sets the body to bytes, and the header `Content-Type` if it is not set.
    pub fn bytes(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.typed_body("application/octet-stream", StoredBody::of(bytes.into()))
    }

    fn typed_body(mut self, content_type: &str, body: StoredBody) -> Self {
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            self = self.header("content-type", content_type);
        }
        self.body = Some(body);
        self
    }

    /// Returns a response with this status to the workflow, instead of failing or trying again: `.accept(404)`.
    pub fn accept(mut self, status: u16) -> Self {
        self.accepted.push(status);
        self
    }

    /// Sets the time limit of one attempt, from the connection to the end of the response; the default is 30 s. An
    /// invalid duration makes the step fail.
    pub fn timeout(mut self, timeout: impl IntoDuration) -> Self {
        match timeout.into_duration() {
            Ok(timeout) => self.timeout = Some(timeout),
            Err(error) => return self.with_problem(error.to_string()),
        }
        self
    }

    /// Sets the maximum number of bytes of the response's body; the default is 1 MiB, the maximum 2 MiB. A longer
    /// response makes the step fail.
    pub fn response_bytes_max(mut self, bytes: usize) -> Self {
        self.response_bytes = Some(bytes);
        self
    }

    fn with_problem(mut self, problem: String) -> Self {
        self.problem.get_or_insert(problem);
        self
    }

    pub(super) fn time_limit(&self) -> Duration {
        self.timeout.unwrap_or(FETCH_TIMEOUT_DEFAULT)
    }

    pub(super) fn response_limit(&self) -> usize {
        self.response_bytes.unwrap_or(FETCH_RESPONSE_BYTES_DEFAULT).min(FETCH_RESPONSE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_recorded_in_a_readable_form() {
        let request =
            Request::post("https://a.example/x").json(&[1, 2]).bearer("stripe").accept(404).timeout("2s");
        let json = serde_json::to_string(&request).unwrap();
        assert_eq!(
            json,
            r#"{"method":"POST","url":"https://a.example/x","headers":[["content-type","application/json"]],"#
                .to_owned()
                + r#""secrets":[{"header":"authorization","secret":"stripe","form":"bearer"}],"#
                + r#""body":{"text":"[1,2]"},"accepted":[404],"timeout":{"secs":2,"nanos":0}}"#
        );
        assert_eq!(serde_json::from_str::<Request>(&json).unwrap(), request);
    }

    #[test]
    fn a_body_that_is_no_text_is_base64() {
        let body = StoredBody::of(vec![0xff, 0]);
        assert_eq!(serde_json::to_string(&body).unwrap(), r#"{"base64":"/wA="}"#);
        assert_eq!(body.bytes().unwrap(), [0xff, 0]);
        assert!(StoredBody::Base64("?".into()).bytes().is_err());
    }

    #[test]
    fn limits_apply_and_a_bad_duration_is_a_problem() {
        assert_eq!(Request::get("x").time_limit(), FETCH_TIMEOUT_DEFAULT);
        assert_eq!(
            Request::get("x").response_bytes_max(usize::MAX).response_limit(),
            FETCH_RESPONSE_BYTES_MAX
        );
        assert!(Request::get("x").timeout("soon").problem.is_some());
    }
}
