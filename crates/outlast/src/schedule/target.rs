//! What a schedule starts.

use outlast_core::{EndPlan, Headers, Tags, Timestamp};
use serde::{Deserialize, Serialize};

/// One firing of a schedule: the input of a step that [computes the input](crate::ScheduleBuilder::input_from) of the
/// workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Firing {
    /// The name of the schedule.
    pub schedule: String,
    /// The instant of the firing, without jitter and however late it is.
    pub scheduled_at: Timestamp,
}

impl Firing {
    /// A firing, for tests of such steps.
    pub fn new(schedule: impl Into<String>, scheduled_at: Timestamp) -> Self {
        Self { schedule: schedule.into(), scheduled_at }
    }
}

/// The workflow that a schedule starts, and the properties of its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScheduleTarget {
    pub(crate) workflow: String,
    pub(crate) version: u32,
    pub(crate) queue: String,
    #[serde(default)]
    pub(crate) priority: u8,
    pub(crate) input: FiringInput,
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    pub(crate) tags: Tags,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub(crate) headers: Headers,
    /// How long after its start a firing is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_micros: Option<u64>,
    /// What is decided about the ends of firings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ending: Option<Box<EndPlan>>,
}

/// The input of firings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FiringInput {
    /// This JSON text. It is a text so that numbers keep all their digits.
    Json(String),
    /// The output of this step, which is executed in the queue of the workflow.
    Step(String),
}
