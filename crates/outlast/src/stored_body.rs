//! Bodies of HTTP messages in their recorded form.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

/// A body in its recorded form: text where possible.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredBody {
    Text(String),
    Base64(String),
}

impl StoredBody {
    #[cfg(feature = "http")]
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64(BASE64_STANDARD.encode(error.as_bytes())),
        }
    }

    /// As text only if its JSON form has at most twice as many bytes: control characters would have six times as many.
    #[cfg(feature = "webhooks")]
    pub(crate) fn compact(bytes: Vec<u8>) -> Self {
        let is_control = |byte: &u8| *byte < b' ' && !b"\t\r\n".contains(byte);
        match String::from_utf8(bytes) {
            Ok(text) if !text.as_bytes().iter().any(is_control) => Self::Text(text),
            Ok(text) => Self::Base64(BASE64_STANDARD.encode(text)),
            Err(error) => Self::Base64(BASE64_STANDARD.encode(error.as_bytes())),
        }
    }

    /// The bytes; an error if the recorded form is damaged.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64(text) => BASE64_STANDARD
                .decode(text)
                .map_err(|error| format!("the recorded body is not base64: {error}")),
        }
    }
}
