//! Answers on a world, without a server.

use std::time::Duration;

use async_trait::async_trait;
use outlast::core::duration::duration_text;
use outlast::{Client, RunId};
use outlast_api::{
    BatchJson, BatchRequest, BulkPreview, BulkRequest, Caller, ChildrenJson, ChunkFilter, ChunkListJson,
    ControlledJson, CountsJson, EventFilter, EventJson, ExplanationJson, ItemPage, OperationFilter,
    OperationJson, OutputJson, OutputQuery, PageRequest, Problem, PruneRequest, PrunedJson, ResolveJson,
    ResolveQuery, RestartRequest, RunFilter, RunJson, SendRequest, SentJson, Service, StartRequest,
    StartedJson, StateJson, StreamListJson, WorkerListJson, WorkflowListJson, WorldJson,
};

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
            Control::Wake(request) => service.wake(caller, run, request).await,
            Control::Quarantine => service.quarantine(caller, run).await,
            Control::Release => service.release(caller, run).await,
        }
    }

    async fn restart(&self, run: RunId, request: &RestartRequest) -> Result<RunJson, Problem> {
        Ok(self.service.restart(&self.caller, run, request).await?.run)
    }

    async fn delete(&self, run: RunId) -> Result<(), Problem> {
        self.service.delete(&self.caller, run).await
    }

    async fn send(&self, run: RunId, hook: &str, request: SendRequest) -> Result<SentJson, Problem> {
        self.service.send(&self.caller, run, hook, request, None).await
    }

    async fn preview(&self, request: &BulkRequest) -> Result<BulkPreview, Problem> {
        self.service.preview_bulk(&self.caller, request).await
    }

    async fn workers(&self) -> Result<WorkerListJson, Problem> {
        self.service.workers().await
    }

    async fn workflows(&self) -> Result<WorkflowListJson, Problem> {
        self.service.workflows().await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PrunedJson, Problem> {
        self.service.prune(request).await
    }
}
