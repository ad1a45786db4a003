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
    /// How long to wait for the reply of the run, such as `10s`; at most 60 s. Without it nobody waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_within: Option<String>,
}

/// The result of a send.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SentJson {
    /// `delivered`: the payload is in the inbox of the run. A payload that nobody waits for is kept. `duplicate`: a payload
    /// with the same key was sent before. `rejected`: no open hook can decode it, which is known only with `reply_within`.
    /// `closed`: the run has closed the token or has ended.
    pub delivery: String,
    /// With `reply_within`: `reply`, `not_answered` (what took the payload is over) or `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The reply, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub reply: Option<Box<RawValue>>,
    /// Why the payload is rejected or not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The run.
    pub run: RunJson,
}
