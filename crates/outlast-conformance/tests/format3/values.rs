//! The types of values in the programs.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A number.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Number(pub(crate) u64);

/// A text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text(pub(crate) String);

/// The payload type of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PayloadType {
    Number,
    Text,
    Pair,
}

impl PayloadType {
    /// A payload of this type.
    pub(crate) fn payload(self, token: u64) -> Value {
        match self {
            Self::Number => json!(token),
            Self::Text => json!(token.to_string()),
            Self::Pair => json!([token, true]),
        }
    }
}
