//! A run in responses.

use std::collections::BTreeMap;

use outlast_core::{RunId, SessionId};
use serde::{Deserialize, Serialize};

use crate::rfc3339::Rfc3339;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunJson {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: RunId,
    /// Its workflow.
    pub workflow: String,
    /// The version of the workflow.
    pub version: u32,
    /// Its queue.
    pub queue: String,
    /// Its priority, 0 to 9.
    pub priority: u8,
    /// The key of its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `pending`, `running`, `waiting`, `stuck`, `completed`, `failed` or `cancelled`.
    pub status: String,
    /// What is true beside the status: `paused`, `compensating`, `compensated`, `quarantined`.
    #[serde(default)]
    pub marks: Vec<String>,
    /// What follows from other fields: `retrying`, `cancelling`.
    #[serde(default)]
    pub flags: Vec<String>,
    /// When it was started.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub created_at: Rfc3339,
    /// When its row changed last. Turns that only append to the history do not change it.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub updated_at: Rfc3339,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub ended_at: Option<Rfc3339>,
    /// When it continues by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub wake_at: Option<Rfc3339>,
    /// The time at which it is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub deadline: Option<Rfc3339>,
    /// What it waits for; at most 100.
    #[serde(default)]
    pub waits: Vec<WaitJson>,
    /// Why it is stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<StuckJson>,
    /// Why it failed, in short; its output has the whole failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RunFailureJson>,
    /// The run that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentJson>,
    /// The run that it was restarted from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub restarted_from: Option<RunId>,
    /// The run that it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub forked_from: Option<RunId>,
    /// Its tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The session of the worker that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub owner: Option<SessionId>,
    /// Its messages.
    pub inbox: InboxJson,
    /// How often a worker crashed while it held the run, since the run last progressed.
    pub crashes: u32,
    /// The builds that could not continue it since it last progressed.
    #[serde(default)]
    pub failed_builds: Vec<String>,
    /// Its generation, from 1.
    pub generation: u64,
    /// Whether it is a step that was sent to a queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_queued_step: bool,
}

/// One thing that a run waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitJson {
    /// `timer`, `hook`, `child`, `step` (in a queue) or `retry`.
    pub on: String,
    /// The number of the operation.
    pub op: u64,
    /// The name of the hook or step, or the workflow of the child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The queue of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The run of the child or queued step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub run: Option<RunId>,
    /// When the wait ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub until: Option<Rfc3339>,
}

/// Why a run is stuck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StuckJson {
    /// The reason, such as `diverged` or `panicked`.
    pub reason: String,
    /// The message for a person.
    pub message: String,
    /// The build that could not continue it.
    pub build: String,
}

/// Why a run failed, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunFailureJson {
    /// What sort of error.
    pub kind: String,
    /// The code that the program gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The step that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The first 200 bytes of the message.
    pub message: String,
    /// The same for failures of the same kind, code, step and message, whatever numbers the message contains: 16
    /// hexadecimal digits.
    pub fingerprint: String,
}

/// The run that started a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParentJson {
    /// The parent.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run: RunId,
    /// The operation of the parent.
    pub op: u64,
    /// The run at the root of the family.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub root: RunId,
}

/// The messages of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InboxJson {
    /// How many were sent to it.
    pub sent: u64,
    /// How many it has read.
    pub read: u64,
    /// How many payloads it has read that no hook has taken.
    pub kept: u64,
}
