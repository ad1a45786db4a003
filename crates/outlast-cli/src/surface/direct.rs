//! Answers on a world, without a server.

use std::time::Duration;

use async_trait::async_trait;
use outlast::core::duration::duration_text;
use outlast::core::queue::BUILT_IN_QUEUE;
use outlast::{Client, RunId, Worker};
use outlast_api::{Caller, OutputQuery, ProblemCode, ResolveQuery, Service};

use outlast_server::start_built_ins;

use super::types::*;
use super::{Control, Surface};

/// Answers on a world with a client, without a server.
#[derive(Clone, Debug)]
pub struct Direct {
    service: Service,
    caller: Caller,
}

impl Direct {
    /// Answers with this client.
    pub fn new(client: Client) -> Self {
        let person = std::env::var("USER").ok().filter(|name| !name.is_empty());
        let caller = Caller { actor: person.unwrap_or_else(|| "local".into()), ..Caller::local() };
        Self { service: Service::new(client), caller }
    }
}

#[async_trait]
impl Surface for Direct {
    async fn world(&self) -> Result<WorldJson, Problem> {
        Ok(self.service.world())
    }

    async fn counts(&self) -> Result<CountsJson, Problem> {
        self.service.counts().await
    }

    async fn start(&self, request: StartRequest) -> Result<StartedJson, Problem> {
        self.service.start(&self.caller, request, None).await
    }

    async fn start_batch(&self, request: BatchRequest) -> Result<BatchJson, Problem> {
        self.service.start_batch(&self.caller, request).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<ItemPage<RunJson>, Problem> {
        self.service.runs(filter).await
    }

    async fn resolve(&self, text: &str) -> Result<ResolveJson, Problem> {
        self.service.resolve(&ResolveQuery { q: text.into() }).await
    }

    async fn run(&self, run: RunId) -> Result<RunJson, Problem> {
        self.service.run(run).await
    }

    async fn operations(
        &self,
        run: RunId,
        filter: &OperationFilter,
    ) -> Result<ItemPage<OperationJson>, Problem> {
        self.service.operations(run, filter).await
    }

    async fn events(&self, run: RunId, filter: &EventFilter) -> Result<ItemPage<EventJson>, Problem> {
        self.service.events(run, filter).await
    }

    async fn export(&self, run: RunId) -> Result<String, Problem> {
        self.service.export(run).await
    }

    async fn output(&self, run: RunId, wait: Duration) -> Result<OutputJson, Problem> {
        let wait = (!wait.is_zero()).then(|| duration_text(wait));
        self.service.output(run, &OutputQuery { wait }).await
    }

    async fn state(&self, run: RunId) -> Result<StateJson, Problem> {
        self.service.state(run).await
    }

    async fn explain(&self, run: RunId) -> Result<ExplanationJson, Problem> {
        self.service.explain(run).await
    }

    async fn children(&self, run: RunId, page: &PageRequest) -> Result<ChildrenJson, Problem> {
        self.service.children(run, page).await
    }

    async fn streams(&self, run: RunId) -> Result<StreamListJson, Problem> {
        self.service.streams(run).await
    }

    async fn chunks(&self, run: RunId, stream: &str, filter: &ChunkFilter) -> Result<ChunkListJson, Problem> {
        self.service.chunks(run, stream, filter).await
    }

    async fn control(&self, run: RunId, control: &Control) -> Result<ControlledJson, Problem> {
        let (service, caller) = (&self.service, &self.caller);
        match control {
            Control::Cancel(request) => service.cancel(caller, run, request).await,
            Control::Terminate(request) => service.terminate(caller, run, request).await,
            Control::Pause(request) => service.pause(caller, run, request).await,
            Control::Resume => service.resume(caller, run).await,
            Control::Retry(request) => service.retry(caller, run, request).await,
            Control::Wake(request) => service.wake(caller, run, request).await,
            Control::Quarantine => service.quarantine(caller, run).await,
            Control::Release => service.release(caller, run).await,
        }
    }

    async fn restart(&self, run: RunId, request: &RestartRequest) -> Result<RunJson, Problem> {
        Ok(self.service.restart(&self.caller, run, request).await?.run)
    }

    async fn fork(&self, run: RunId, request: &ForkRequest) -> Result<RunJson, Problem> {
        Ok(self.service.fork(&self.caller, run, request).await?.run)
    }

    async fn fork_plan(&self, run: RunId, request: &ForkRequest) -> Result<ForkPlanJson, Problem> {
        self.service.fork_plan(&self.caller, run, request).await
    }

    async fn delete(&self, run: RunId) -> Result<(), Problem> {
        self.service.delete(&self.caller, run).await
    }

    async fn send(&self, run: RunId, hook: &str, request: SendRequest) -> Result<SentJson, Problem> {
        self.service.send(&self.caller, run, hook, request, None).await
    }

    async fn send_to_token(&self, token: &str, request: SendRequest) -> Result<SentJson, Problem> {
        self.service.send_to_token(&self.caller, token, request, None).await
    }

    async fn start_bulk(&self, request: &BulkRequest) -> Result<BulkJson, Problem> {
        self.service.start_bulk(&self.caller, request).await
    }

    async fn bulk(&self, run: RunId) -> Result<BulkJson, Problem> {
        self.service.bulk(run).await
    }

    async fn stop_bulk(&self, run: RunId, request: &BulkStopRequest) -> Result<BulkJson, Problem> {
        self.service.stop_bulk(&self.caller, run, request).await
    }

    async fn serve_built_ins(&self) -> Result<Option<Worker>, Problem> {
        let workers = self.service.workers().await?.items;
        if workers.iter().any(|worker| worker.queues.iter().any(|queue| queue == BUILT_IN_QUEUE)) {
            return Ok(None);
        }
        let started = start_built_ins(self.service.client()).await;
        started.map(Some).map_err(|error| Problem::new(ProblemCode::Unavailable, error.to_string()))
    }

    async fn preview(&self, request: &BulkRequest) -> Result<BulkPreview, Problem> {
        self.service.preview_bulk(&self.caller, request).await
    }

    async fn schedules(&self, filter: &ScheduleFilter) -> Result<ItemPage<ScheduleJson>, Problem> {
        self.service.schedules(filter).await
    }

    async fn schedule(&self, id: &str) -> Result<ScheduleJson, Problem> {
        self.service.schedule(id).await
    }

    async fn firings(&self, id: &str, page: &PageRequest) -> Result<ItemPage<FiringJson>, Problem> {
        self.service.firings(id, page).await
    }

    async fn create_schedule(&self, definition: &ScheduleDefinition) -> Result<ScheduleJson, Problem> {
        self.service.create_schedule(&self.caller, definition).await
    }

    async fn replace_schedule(
        &self,
        id: &str,
        definition: &ScheduleDefinition,
        revision: u64,
    ) -> Result<ScheduleControlledJson, Problem> {
        self.service.replace_schedule(&self.caller, id, definition, Some(revision)).await
    }

    async fn pause_schedule(
        &self,
        id: &str,
        request: &SchedulePauseRequest,
    ) -> Result<ScheduleControlledJson, Problem> {
        self.service.pause_schedule(&self.caller, id, request).await
    }

    async fn resume_schedule(&self, id: &str) -> Result<ScheduleControlledJson, Problem> {
        self.service.resume_schedule(&self.caller, id).await
    }

    async fn trigger_schedule(&self, id: &str) -> Result<ScheduleControlledJson, Problem> {
        self.service.trigger_schedule(&self.caller, id).await
    }

    async fn backfill_schedule(
        &self,
        id: &str,
        request: &BackfillRequest,
    ) -> Result<BackfilledJson, Problem> {
        self.service.backfill_schedule(&self.caller, id, request).await
    }

    async fn delete_schedule(&self, id: &str) -> Result<(), Problem> {
        self.service.delete_schedule(&self.caller, id, None).await
    }

    async fn pause_schedules(&self, request: &SchedulesRequest) -> Result<SchedulesControlledJson, Problem> {
        self.service.pause_schedules(&self.caller, request).await
    }

    async fn resume_schedules(&self, request: &SchedulesRequest) -> Result<SchedulesControlledJson, Problem> {
        self.service.resume_schedules(&self.caller, request).await
    }

    async fn hooks(&self, filter: &HookFilter) -> Result<ItemPage<OpenHookJson>, Problem> {
        self.service.hooks(&self.caller, filter).await
    }

    async fn failures(&self, filter: &FailureFilter) -> Result<FailureListJson, Problem> {
        self.service.failures(filter).await
    }

    async fn failure(&self, fingerprint: &str) -> Result<FailureDetailJson, Problem> {
        self.service.failure(fingerprint).await
    }

    async fn workers(&self) -> Result<WorkerListJson, Problem> {
        self.service.workers().await
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<ItemPage<AuditJson>, Problem> {
        self.service.audit(filter).await
    }

    async fn queues(&self) -> Result<QueueListJson, Problem> {
        self.service.queues().await
    }

    async fn queue(&self, name: &str) -> Result<QueueDetailJson, Problem> {
        self.service.queue(name).await
    }

    async fn workflows(&self) -> Result<WorkflowListJson, Problem> {
        self.service.workflows().await
    }

    async fn workflow(&self, name: &str) -> Result<WorkflowDetailJson, Problem> {
        self.service.workflow(name).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PrunedJson, Problem> {
        self.service.prune(request).await
    }
}
