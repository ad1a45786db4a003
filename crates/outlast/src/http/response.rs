//! A response as the workflow sees it, and as it is recorded.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::stored_body::StoredBody;

/// An HTTP response, from [`Context::fetch`](crate::Context::fetch).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<StoredBody>,
}

impl Response {
    /// Creates a response with this status, for mocks and rehearsals.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: None }
    }

    /// Adds a header, for mocks and rehearsals.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into().to_ascii_lowercase(), value.into()));
        self
    }

    /// Sets the body, for mocks and rehearsals.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        self.body = (!body.is_empty()).then(|| StoredBody::of(body));
        self
    }

    /// Sets the body to a value as JSON, for mocks and rehearsals.
    ///
    /// # Panics
    ///
    /// If the value has no JSON form.
    #[must_use]
    #[track_caller]
    pub fn with_json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(json) => self.with_body(json),
            Err(error) => panic!("the body has no JSON form: {error}"),
        }
    }

    /// Returns the status, such as 200.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the first header of this name; case is ignored. `Set-Cookie` is not recorded, and therefore not
    /// available.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns all headers, with names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the body as text.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not UTF-8.
    pub fn text(&self) -> Result<&str, Error> {
        match &self.body {
            None => Ok(""),
            Some(StoredBody::Text(text)) => Ok(text),
            Some(StoredBody::Base64(_)) => {
                Err(Error::invalid("the body of the response is not text in UTF-8; read it with `bytes`"))
            }
        }
    }

    /// Returns the body as bytes.
    ///
    /// # Errors
    ///
    /// `Invalid` if the recorded body is damaged.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        self.body.as_ref().map_or_else(|| Ok(Vec::new()), |body| body.bytes().map_err(Error::invalid))
    }

    /// Decodes the body as JSON.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not the JSON form of a `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(self.text()?).map_err(|error| {
            let expected = std::any::type_name::<T>();
            Error::invalid(format!("the body of the response is not the JSON of a `{expected}`: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_recorded_in_a_readable_form() {
        let response = Response::new(201).with_header("ETag", "7").with_json(&["ü"]);
        let json = serde_json::to_string(&response).unwrap();
        assert_eq!(json, r#"{"status":201,"headers":[["etag","7"]],"body":{"text":"[\"ü\"]"}}"#);
        let read: Response = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (read.header("etag"), read.json::<Vec<String>>().unwrap()),
            (Some("7"), vec!["ü".to_owned()])
        );
        assert_eq!(serde_json::to_string(&Response::new(204).with_body("")).unwrap(), r#"{"status":204}"#);
    }

    #[test]
    fn a_body_of_another_form_is_an_error_with_the_remedy() {
        let binary = Response::new(200).with_body([0xff]);
        assert_eq!(binary.bytes().unwrap(), [0xff]);
        assert!(binary.text().unwrap_err().message().ends_with("read it with `bytes`"));
        assert!(Response::new(200).with_body("no").json::<u8>().unwrap_err().message().contains("`u8`"));
    }
}
