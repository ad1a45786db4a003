//! Requests that start runs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use outlast_core::duration::duration_text;
use outlast_core::{IntoDuration, RunId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::problem::Problem;
use crate::rfc3339::Rfc3339;
use crate::run::RunJson;

/// A request to start a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// The workflow.
    pub workflow: String,
    /// Its input. Several parameters are an array. It is stored with all digits of its numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub input: Option<Box<RawValue>>,
    /// The version of the workflow; the newest one that a joined worker has unless set, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// A key, which makes the start idempotent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How long an earlier start with the same key counts, such as `24h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_window: Option<String>,
    /// The id of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub id: Option<RunId>,
    /// Its queue; `default` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Its priority, 0 to 9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Its headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// When it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub at: Option<Rfc3339>,
    /// How long after the start it begins, such as `1h30m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// When it is cancelled if it has not ended: a time, or a duration from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub deadline: Option<TimeOrDuration>,
}

/// A time, or a duration from now on. Both are text: RFC 3339, or such as `3d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrDuration {
    /// A time.
    At(Rfc3339),
    /// A duration.
    In(Duration),
}

impl FromStr for TimeOrDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(time) = text.parse() {
            return Ok(Self::At(time));
        }
        let duration = text.into_duration().map(Self::In);
        duration.map_err(|_| format!("`{text}` is neither a time (RFC 3339) nor a duration, such as 3d"))
    }
}

impl fmt::Display for TimeOrDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => fmt::Display::fmt(time, f),
            Self::In(duration) => f.write_str(&duration_text(*duration)),
        }
    }
}

impl Serialize for TimeOrDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeOrDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A request to start many runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// The starts, at most 1,000.
    pub starts: Vec<StartRequest>,
}

/// The results of a batch, in the order of its starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchJson {
    /// A run or a problem for each start.
    pub results: Vec<BatchResult>,
}

/// The result of one start of a batch: a run or a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchResult {
    /// The run, if it was started now or before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunJson>,
    /// Whether the run was started by this request.
    #[serde(default)]
    pub is_new: bool,
    /// Why it was not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}
