//! The code that a replay executes, behind a trait: the engine knows neither contexts nor the registry.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use outlast_core::{Codec, EndPlan, FailureStrategy, Payload, Policy, RunStarted};

use super::hooks::CanRead;
use super::state::RunState;
use crate::error::Error;

/// The future of a workflow's function, with its output as a payload.
pub(crate) type WorkflowFuture = Pin<Box<dyn Future<Output = Result<Payload, Error>> + Send>>;

/// The workflows and steps of a worker, as far as the engine uses them.
pub(crate) trait ReplayCode: Send + Sync {
    /// Calls the function of the workflow that `started` names, and returns its future without polling it. The
    /// function requests its operations from `state`. `None` means that this version of the workflow is not
    /// registered.
    fn call_workflow(
        &self,
        state: &Arc<RunState>,
        started: &RunStarted,
        codec: &dyn Codec,
    ) -> Option<Result<WorkflowFuture, InputError>>;

    /// The newest registered version of a workflow, with which its next generation begins.
    fn newest_version(&self, workflow: &str) -> Option<u32>;

    /// How many earlier generations of a run are kept.
    fn kept_generations(&self) -> usize;

    /// What the definition of a workflow decides about the ends of its runs.
    fn end_plan(&self, workflow: &str, version: u32) -> Option<EndPlan>;

    /// What happens when a run fails whose start and definition do not say it.
    fn default_strategy(&self, workflow: &str) -> FailureStrategy;

    /// Whether the step is registered.
    fn has_step(&self, step: &str) -> bool;

    /// The function that tests whether the step can decode an input. `None` when the step is not registered.
    fn can_read_input(&self, step: &str) -> Option<CanRead>;

    /// Whether the step must not be attempted a second time, by its registration or by the policy of this request.
    fn is_at_most_once(&self, step: &str, policy: &Policy) -> bool;
}

/// Drops values of the user in the background: their `Drop` may block, and must not run in a critical task or under a
/// lock.
pub(crate) trait DropInBackground: Send + Sync {
    /// Drops the value later. Returns at once.
    fn put(&self, value: Box<dyn Send>);
}

/// A workflow's input that its code cannot decode.
pub(crate) struct InputError {
    /// Whether the worker lacks the codec that the input was encoded with.
    pub(crate) is_coded: bool,
    /// The error with which a run fails under rules 1.
    pub(crate) error: Error,
    /// Why a run with this recorded input is stuck, from rules 2 on.
    pub(crate) stuck_message: String,
}
