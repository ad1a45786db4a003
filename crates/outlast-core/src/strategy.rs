//! What happens when a run fails, and what is started when it has ended: recorded at its start.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::{OpNumber, RunStarted};
use crate::id::{RunId, TurnId};
use crate::payload::Payload;
use crate::queue::workflow_of_step;
use crate::retry::{Policy, Retry};
use crate::run::{Parent, Requester, Start, Status, Tags, read_text, write_text};
use crate::time::Timestamp;
use crate::turn::NewChild;

/// The version of the workflows whose runs are queued steps.
pub const QUEUED_VERSION: u32 = 1;

/// What happens when the workflow of a run returns an error.
///
/// Compensations need no strategy: they run whenever a run does not complete. A run that was cancelled or terminated has
/// not failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureStrategy {
    /// The run ends as failed.
    #[default]
    Fail,
    /// The run begins again with the same input, as its next generation, after a pause. The policy decides how often and
    /// for which errors; errors that are fatal, and exceeded limits, are final.
    Retry(Retry),
    /// The run ends as failed, and the run that awaits it is cancelled.
    Cascade,
    /// The run ends as failed and in quarantine: it is not deleted until it is released.
    Quarantine,
}

/// What is decided about the end of a run when it is started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndPlan {
    /// What happens when it fails; `None` leaves that to the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<FailureStrategy>,
    /// The step that is started when the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_end: Option<EndStep>,
}

impl EndPlan {
    /// A plan that decides nothing.
    pub const fn new() -> Self {
        Self { on_failure: None, on_end: None }
    }

    /// The plan, or `None` if it decides nothing.
    pub fn into_option(self) -> Option<Box<Self>> {
        (self != Self::new()).then(|| Box::new(self))
    }
}

/// A step that is started when a run has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EndStep {
    /// The step's name.
    #[serde(serialize_with = "write_text", deserialize_with = "read_text")]
    pub step: Arc<str>,
    /// Its queue; by default that of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Its priority; by default that of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Its policy, unless it is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<Policy>>,
}

/// The input of a step that is started when a run has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunEnd {
    /// The run.
    pub run: RunId,
    /// Its workflow.
    pub workflow: String,
    /// How it ended.
    pub status: Status,
}

impl RunEnd {
    /// The end of a run, for tests of such steps.
    pub fn new(run: RunId, workflow: impl Into<String>, status: Status) -> Self {
        Self { run, workflow: workflow.into(), status }
    }
}

/// A run that ends, for the start of the step after it.
#[derive(Clone, Copy, Debug)]
pub struct EndingRun<'a> {
    /// The run.
    pub run: RunId,
    /// How it was started, or how its generation began.
    pub started: &'a RunStarted,
    /// Its tags.
    pub tags: &'a Tags,
    /// An operation number that the run has not used.
    pub next_op: OpNumber,
    /// How it ends.
    pub status: Status,
    /// When.
    pub at: Timestamp,
}

impl EndStep {
    /// The step with this name and policy.
    pub fn new(step: impl Into<Arc<str>>, mut policy: Policy) -> Self {
        let (queue, priority) = (policy.queue.take().map(Into::into), policy.priority.take());
        // The worker that attempts the step applies its own limits and threads.
        (policy.limit, policy.is_blocking) = (None, false);
        let policy = (policy != Policy::DEFAULT).then(|| Box::new(policy));
        Self { step: step.into(), queue, priority, policy }
    }

    /// The start of the step: a queued step that nobody awaits. Its input is stored as plain JSON, whatever the codec
    /// is, because every program can end a run; the row of the run shows the same.
    pub fn start(&self, ending: &EndingRun<'_>) -> NewChild {
        let EndingRun { run, started, tags, next_op, status, at } = *ending;
        let id = RunId::of_child(run, next_op.0, at, started.rules);
        let input = RunEnd::new(run, &*started.workflow, status);
        let root = started.parent.map_or(run, |parent| parent.root);
        let start = Start {
            run: id,
            turn: TurnId::from_bits(id.bits()),
            workflow: workflow_of_step(&self.step),
            version: QUEUED_VERSION,
            rules: crate::event::RULES,
            queue: self.queue.as_deref().map_or_else(|| started.queue.clone(), Into::into),
            priority: self.priority.unwrap_or(started.priority),
            key: None,
            input: Payload::json(&input).unwrap_or_else(|_| Payload::null()),
            headers: started.headers.clone(),
            tags: Tags::new(),
            parent: Some(Parent { run, op: next_op, root, awaits: false }),
            not_before: None,
            deadline: None,
            policy: self.policy.clone(),
            requester: Some(Box::new(Requester { workflow: started.workflow.clone(), tags: tags.clone() })),
            ending: None,
        };
        NewChild { start, notify_parent: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(plan: &EndPlan) -> String {
        serde_json::to_string(plan).unwrap()
    }

    #[test]
    fn a_plan_is_stored_as_readable_json() {
        let plan = |on_failure| EndPlan { on_failure: Some(on_failure), on_end: None };
        assert_eq!(json(&plan(FailureStrategy::Cascade)), r#"{"on_failure":"cascade"}"#);
        let retry = json(&plan(FailureStrategy::Retry(Retry::WORKFLOW)));
        assert!(retry.starts_with(r#"{"on_failure":{"retry":{"attempts":3,"#), "{retry}");
        let step = EndStep::new("notify", Policy::DEFAULT);
        let plan = EndPlan { on_failure: None, on_end: Some(step) };
        assert_eq!(json(&plan), r#"{"on_end":{"step":"notify"}}"#);
        assert_eq!(serde_json::from_str::<EndPlan>(&json(&plan)).unwrap(), plan);
    }

    #[test]
    fn a_plan_that_decides_nothing_is_not_stored() {
        assert_eq!(EndPlan::new().into_option(), None);
        let fails = EndPlan { on_failure: Some(FailureStrategy::Fail), on_end: None };
        assert!(fails.into_option().is_some(), "it overrides the default of the worker");
    }
}
