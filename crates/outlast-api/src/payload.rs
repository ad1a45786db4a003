//! Payloads in responses.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The number of bytes of a payload that a preview shows.
pub const PAYLOAD_PREVIEW_BYTES: usize = 4 * 1024;

/// A value as stored: JSON is passed through unchanged, so large numbers keep all their digits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PayloadJson {
    /// `json`, or the codec that can read it.
    pub codec: String,
    /// Its size.
    pub bytes: u64,
    /// The value, if the codec is `json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub json: Option<Box<RawValue>>,
    /// The bytes, for other codecs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// The first 4 KiB of the text of a larger value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// Whether the value is left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub omitted: bool,
}

/// How much of payloads a response contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PayloadAmount {
    /// Only codec and size.
    None,
    /// Values of at most 4 KiB, and the beginning of larger ones.
    #[default]
    Preview,
    /// All of it.
    Full,
}

impl PayloadAmount {
    /// The name in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Preview => "preview",
            Self::Full => "full",
        }
    }
}

impl std::fmt::Display for PayloadAmount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PayloadAmount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::None, Self::Preview, Self::Full];
        let found = all.into_iter().find(|amount| amount.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not an amount of payloads; expected none, preview or full"))
    }
}
