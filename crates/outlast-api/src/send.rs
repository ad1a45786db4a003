//! Requests that send to hooks.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::run::RunJson;

/// A request to send a payload to a hook of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    /// The payload. It is stored with all digits of its numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    /// A key: a payload that is sent again with the same key is not delivered twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of a send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SentJson {
    /// `delivered`: the payload is in the inbox of the run. A payload that nobody waits for is kept.
    pub delivery: String,
    /// The run.
    pub run: RunJson,
}
