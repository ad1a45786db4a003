//! What commands can ask for, on a world or through a server.

mod connection;
mod direct;
mod http_body;
mod remote;
mod types;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use outlast::{RunId, Worker};
use outlast_api::{CancelRequest, PauseRequest, RetryRunRequest, TerminateRequest, WakeRequest};

pub use self::connection::RemoteError;
pub use self::direct::Direct;
pub use self::remote::Remote;
use self::types::*;

/// Everything that the commands ask for. [`Direct`] answers on a world, [`Remote`] through a server; both return the
/// types of the HTTP API, so the output of a command does not depend on the connection.
#[async_trait]
pub trait Surface: fmt::Debug + Send + Sync {
    /// The world.
    async fn world(&self) -> Result<WorldJson, Problem>;

    /// The number of runs in each status.
    async fn counts(&self) -> Result<CountsJson, Problem>;

    /// Starts a run.
    async fn start(&self, request: StartRequest) -> Result<StartedJson, Problem>;

    /// Starts many runs.
    async fn start_batch(&self, request: BatchRequest) -> Result<BatchJson, Problem>;

    /// A page of a list of runs.
    async fn runs(&self, filter: &RunFilter) -> Result<ItemPage<RunJson>, Problem>;

    /// The runs that a part of an id or a key fits.
    async fn resolve(&self, text: &str) -> Result<ResolveJson, Problem>;

    /// A run.
    async fn run(&self, run: RunId) -> Result<RunJson, Problem>;

    /// A page of the operations of a run.
    async fn operations(
        &self,
        run: RunId,
        filter: &OperationFilter,
    ) -> Result<ItemPage<OperationJson>, Problem>;

    /// A page of the events of a run.
    async fn events(&self, run: RunId, filter: &EventFilter) -> Result<ItemPage<EventJson>, Problem>;

    /// The history of a run as a file.
    async fn export(&self, run: RunId) -> Result<String, Problem>;

    /// The output of a run. Waits at most this long, and at most a minute, for its end.
    async fn output(&self, run: RunId, wait: Duration) -> Result<OutputJson, Problem>;

    /// The state that a run has published last.
    async fn state(&self, run: RunId) -> Result<StateJson, Problem>;

    /// Why a run is in its current state.
    async fn explain(&self, run: RunId) -> Result<ExplanationJson, Problem>;

    /// A page of the children of a run.
    async fn children(&self, run: RunId, page: &PageRequest) -> Result<ChildrenJson, Problem>;

    /// The streams of a run.
    async fn streams(&self, run: RunId) -> Result<StreamListJson, Problem>;

    /// A page of a stream.
    async fn chunks(&self, run: RunId, stream: &str, filter: &ChunkFilter) -> Result<ChunkListJson, Problem>;

    /// Controls a run.
    async fn control(&self, run: RunId, control: &Control) -> Result<ControlledJson, Problem>;

    /// Starts a new run with the workflow and input of another.
    async fn restart(&self, run: RunId, request: &RestartRequest) -> Result<RunJson, Problem>;

    /// Starts a new run with the events of another before a cut.
    async fn fork(&self, run: RunId, request: &ForkRequest) -> Result<RunJson, Problem>;

    /// What such a fork would do.
    async fn fork_plan(&self, run: RunId, request: &ForkRequest) -> Result<ForkPlanJson, Problem>;

    /// Deletes a run that has ended.
    async fn delete(&self, run: RunId) -> Result<(), Problem>;

    /// Sends a payload to a hook.
    async fn send(&self, run: RunId, hook: &str, request: SendRequest) -> Result<SentJson, Problem>;

    /// Sends a payload to the run that holds a token.
    async fn send_to_token(&self, token: &str, request: SendRequest) -> Result<SentJson, Problem>;

    /// Starts an action on many runs.
    async fn start_bulk(&self, request: &BulkRequest) -> Result<BulkJson, Problem>;

    /// An action on many runs.
    async fn bulk(&self, run: RunId) -> Result<BulkJson, Problem>;

    /// Stops an action on many runs.
    async fn stop_bulk(&self, run: RunId, request: &BulkStopRequest) -> Result<BulkJson, Problem>;

    /// Starts a worker in this process that executes actions on many runs, unless one has joined. A server has one.
    async fn serve_built_ins(&self) -> Result<Option<Worker>, Problem>;

    /// The runs that an action on many runs would concern.
    async fn preview(&self, request: &BulkRequest) -> Result<BulkPreview, Problem>;

    /// A page of the schedules.
    async fn schedules(&self, filter: &ScheduleFilter) -> Result<ItemPage<ScheduleJson>, Problem>;

    /// A schedule.
    async fn schedule(&self, id: &str) -> Result<ScheduleJson, Problem>;

    /// A page of the runs that a schedule has started.
    async fn firings(&self, id: &str, page: &PageRequest) -> Result<ItemPage<FiringJson>, Problem>;

    /// Creates a schedule.
    async fn create_schedule(&self, definition: &ScheduleDefinition) -> Result<ScheduleJson, Problem>;

    /// Replaces the definition of a schedule that has this revision.
    async fn replace_schedule(
        &self,
        id: &str,
        definition: &ScheduleDefinition,
        revision: u64,
    ) -> Result<ScheduleControlledJson, Problem>;

    /// Stops a schedule from firing.
    async fn pause_schedule(
        &self,
        id: &str,
        request: &SchedulePauseRequest,
    ) -> Result<ScheduleControlledJson, Problem>;

    /// Lets a schedule fire again.
    async fn resume_schedule(&self, id: &str) -> Result<ScheduleControlledJson, Problem>;

    /// Fires a schedule now.
    async fn trigger_schedule(&self, id: &str) -> Result<ScheduleControlledJson, Problem>;

    /// Fires the instants of a range in the past.
    async fn backfill_schedule(&self, id: &str, request: &BackfillRequest)
    -> Result<BackfilledJson, Problem>;

    /// Ends a schedule.
    async fn delete_schedule(&self, id: &str) -> Result<(), Problem>;

    /// Stops many schedules from firing.
    async fn pause_schedules(&self, request: &SchedulesRequest) -> Result<SchedulesControlledJson, Problem>;

    /// Lets many schedules fire again.
    async fn resume_schedules(&self, request: &SchedulesRequest) -> Result<SchedulesControlledJson, Problem>;

    /// A page of the hooks that runs wait for.
    async fn hooks(&self, filter: &HookFilter) -> Result<ItemPage<OpenHookJson>, Problem>;

    /// Failed runs of the last day, in groups.
    async fn failures(&self, filter: &FailureFilter) -> Result<FailureListJson, Problem>;

    /// One group of failed runs.
    async fn failure(&self, fingerprint: &str) -> Result<FailureDetailJson, Problem>;

    /// The joined workers.
    async fn workers(&self) -> Result<WorkerListJson, Problem>;

    /// A page of the audit.
    async fn audit(&self, filter: &AuditFilter) -> Result<ItemPage<AuditJson>, Problem>;

    /// The queues.
    async fn queues(&self) -> Result<QueueListJson, Problem>;

    /// A queue, with the workers that serve it.
    async fn queue(&self, name: &str) -> Result<QueueDetailJson, Problem>;

    /// The workflows that workers have code for, or had.
    async fn workflows(&self) -> Result<WorkflowListJson, Problem>;

    /// A workflow, with its definitions and statistics.
    async fn workflow(&self, name: &str) -> Result<WorkflowDetailJson, Problem>;

    /// Deletes the runs that ended before a time.
    async fn prune(&self, request: &PruneRequest) -> Result<PrunedJson, Problem>;
}

/// A call that controls a run and answers what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Control {
    /// Ask it to stop.
    Cancel(CancelRequest),
    /// End it without its code.
    Terminate(TerminateRequest),
    /// Hold it back.
    Pause(PauseRequest),
    /// End its pause, or let failed builds try again.
    Resume,
    /// Continue it from its failure.
    Retry(RetryRunRequest),
    /// End its sleeps early.
    Wake(WakeRequest),
    /// Protect it from deletion.
    Quarantine,
    /// End that.
    Release,
}
