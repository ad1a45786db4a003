//! Asks a server over HTTP.

use std::time::Duration;

use async_trait::async_trait;
use outlast::core::duration::duration_text;
use outlast::{IntoDuration, RunId, Worker};
use outlast_api::{OutputQuery, QueryPairs, ResolveQuery, path_segment};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::connection::{Asked, Exchange, RemoteError, ServerAddress};
use super::http_body::{Answer, read_answer, write_body};
use super::types::*;
use super::{Control, Surface};

/// How long an ordinary request may take.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Asks a server over HTTP.
#[derive(Debug)]
pub struct Remote {
    exchange: Exchange,
}

impl Remote {
    /// Asks the server at an address such as `http://127.0.0.1:4700` or `https://outlast.example/shop`, with an access
    /// key if there is one. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// If the address cannot be read, or the key would be sent over a connection that is not encrypted.
    pub fn new(address: &str, access_key: Option<String>) -> Result<Self, RemoteError> {
        Ok(Self { exchange: Exchange::new(ServerAddress::parse(address)?, access_key)? })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &str) -> Result<T, Problem> {
        self.ask("GET", path, query, Vec::new(), REQUEST_TIME).await?.json()
    }

    async fn post<T: DeserializeOwned, B: Serialize + Sync>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, Problem> {
        self.posted(path, body).await?.json()
    }

    async fn posted<B: Serialize + Sync>(&self, path: &str, body: &B) -> Result<Answer, Problem> {
        self.ask("POST", path, "", write_body(body)?, REQUEST_TIME).await
    }

    /// Sends a payload, and waits as long as the server waits for the reply.
    async fn post_and_wait(&self, path: &str, request: &SendRequest) -> Result<SentJson, Problem> {
        let wait = request.reply_within.as_deref().and_then(|time| time.into_duration().ok());
        let time = REQUEST_TIME.saturating_add(wait.unwrap_or_default());
        self.ask("POST", path, "", write_body(request)?, time).await?.json()
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        query: &str,
        body: Vec<u8>,
        time: Duration,
    ) -> Result<Answer, Problem> {
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let request = Asked { method, target, body, if_match: None };
        read_answer(self.exchange.ask(request, time).await?)
    }
}

/// The path of a schedule, and of what belongs to it.
fn schedule_path(id: &str, rest: &str) -> String {
    format!("/api/schedules/{}{rest}", path_segment(id))
}

#[async_trait]
impl Surface for Remote {
    async fn world(&self) -> Result<WorldJson, Problem> {
        self.get("/api/world", "").await
    }

    async fn counts(&self) -> Result<CountsJson, Problem> {
        self.get("/api/counts", "").await
    }

    async fn start(&self, request: StartRequest) -> Result<StartedJson, Problem> {
        let answer = self.posted("/api/runs", &request).await?;
        Ok(StartedJson { is_new: answer.status == 201, run: answer.json()? })
    }

    async fn start_batch(&self, request: BatchRequest) -> Result<BatchJson, Problem> {
        self.post("/api/runs/batch", &request).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<ItemPage<RunJson>, Problem> {
        self.get("/api/runs", &filter.to_query()).await
    }

    async fn resolve(&self, text: &str) -> Result<ResolveJson, Problem> {
        self.get("/api/resolve", &ResolveQuery { q: text.into() }.to_query()).await
    }

    async fn run(&self, run: RunId) -> Result<RunJson, Problem> {
        self.get(&format!("/api/runs/{run}"), "").await
    }

    async fn operations(
        &self,
        run: RunId,
        filter: &OperationFilter,
    ) -> Result<ItemPage<OperationJson>, Problem> {
        self.get(&format!("/api/runs/{run}/operations"), &filter.to_query()).await
    }

    async fn events(&self, run: RunId, filter: &EventFilter) -> Result<ItemPage<EventJson>, Problem> {
        self.get(&format!("/api/runs/{run}/events"), &filter.to_query()).await
    }

    async fn export(&self, run: RunId) -> Result<String, Problem> {
        let path = format!("/api/runs/{run}/export");
        self.ask("GET", &path, "", Vec::new(), REQUEST_TIME).await?.text()
    }

    async fn output(&self, run: RunId, wait: Duration) -> Result<OutputJson, Problem> {
        let query = OutputQuery { wait: (!wait.is_zero()).then(|| duration_text(wait)) };
        let path = format!("/api/runs/{run}/output");
        self.ask("GET", &path, &query.to_query(), Vec::new(), REQUEST_TIME + wait).await?.json()
    }

    async fn state(&self, run: RunId) -> Result<StateJson, Problem> {
        self.get(&format!("/api/runs/{run}/state"), "").await
    }

    async fn explain(&self, run: RunId) -> Result<ExplanationJson, Problem> {
        self.get(&format!("/api/runs/{run}/explain"), "").await
    }

    async fn children(&self, run: RunId, page: &PageRequest) -> Result<ChildrenJson, Problem> {
        self.get(&format!("/api/runs/{run}/children"), &page.to_query()).await
    }

    async fn streams(&self, run: RunId) -> Result<StreamListJson, Problem> {
        self.get(&format!("/api/runs/{run}/streams"), "").await
    }

    async fn chunks(&self, run: RunId, stream: &str, filter: &ChunkFilter) -> Result<ChunkListJson, Problem> {
        self.get(&format!("/api/runs/{run}/streams/{}", path_segment(stream)), &filter.to_query()).await
    }

    async fn control(&self, run: RunId, control: &Control) -> Result<ControlledJson, Problem> {
        let path = |action: &str| format!("/api/runs/{run}/{action}");
        let nothing = serde_json::Map::new();
        match control {
            Control::Cancel(request) => self.post(&path("cancel"), request).await,
            Control::Terminate(request) => self.post(&path("terminate"), request).await,
            Control::Pause(request) => self.post(&path("pause"), request).await,
            Control::Resume => self.post(&path("resume"), &nothing).await,
            Control::Retry(request) => self.post(&path("retry"), request).await,
            Control::Wake(request) => self.post(&path("wake"), request).await,
            Control::Quarantine => self.post(&path("quarantine"), &nothing).await,
            Control::Release => self.post(&path("release"), &nothing).await,
        }
    }

    async fn restart(&self, run: RunId, request: &RestartRequest) -> Result<RunJson, Problem> {
        self.post(&format!("/api/runs/{run}/restart"), request).await
    }

    async fn fork(&self, run: RunId, request: &ForkRequest) -> Result<RunJson, Problem> {
        self.post(&format!("/api/runs/{run}/fork"), request).await
    }

    async fn fork_plan(&self, run: RunId, request: &ForkRequest) -> Result<ForkPlanJson, Problem> {
        self.post(&format!("/api/runs/{run}/fork"), request).await
    }

    async fn delete(&self, run: RunId) -> Result<(), Problem> {
        self.ask("DELETE", &format!("/api/runs/{run}"), "", Vec::new(), REQUEST_TIME).await.map(drop)
    }

    async fn send(&self, run: RunId, hook: &str, request: SendRequest) -> Result<SentJson, Problem> {
        self.post_and_wait(&format!("/api/runs/{run}/hooks/{}", path_segment(hook)), &request).await
    }

    async fn send_to_token(&self, token: &str, request: SendRequest) -> Result<SentJson, Problem> {
        self.post_and_wait(&format!("/api/hooks/{}", path_segment(token)), &request).await
    }

    async fn start_bulk(&self, request: &BulkRequest) -> Result<BulkJson, Problem> {
        self.post("/api/bulk", request).await
    }

    async fn bulk(&self, run: RunId) -> Result<BulkJson, Problem> {
        self.get(&format!("/api/bulk/{run}"), "").await
    }

    async fn stop_bulk(&self, run: RunId, request: &BulkStopRequest) -> Result<BulkJson, Problem> {
        self.post(&format!("/api/bulk/{run}/stop"), request).await
    }

    async fn serve_built_ins(&self) -> Result<Option<Worker>, Problem> {
        Ok(None)
    }

    async fn preview(&self, request: &BulkRequest) -> Result<BulkPreview, Problem> {
        self.post("/api/bulk", request).await
    }

    async fn schedules(&self, filter: &ScheduleFilter) -> Result<ItemPage<ScheduleJson>, Problem> {
        self.get("/api/schedules", &filter.to_query()).await
    }

    async fn schedule(&self, id: &str) -> Result<ScheduleJson, Problem> {
        self.get(&schedule_path(id, ""), "").await
    }

    async fn firings(&self, id: &str, page: &PageRequest) -> Result<ItemPage<FiringJson>, Problem> {
        self.get(&schedule_path(id, "/firings"), &page.to_query()).await
    }

    async fn create_schedule(&self, definition: &ScheduleDefinition) -> Result<ScheduleJson, Problem> {
        self.post("/api/schedules", definition).await
    }

    async fn replace_schedule(
        &self,
        id: &str,
        definition: &ScheduleDefinition,
        revision: u64,
    ) -> Result<ScheduleControlledJson, Problem> {
        let request = Asked {
            method: "PUT",
            target: schedule_path(id, ""),
            body: write_body(definition)?,
            if_match: Some(format!("\"{revision}\"")),
        };
        read_answer(self.exchange.ask(request, REQUEST_TIME).await?)?.json()
    }

    async fn pause_schedule(
        &self,
        id: &str,
        request: &SchedulePauseRequest,
    ) -> Result<ScheduleControlledJson, Problem> {
        self.post(&schedule_path(id, "/pause"), request).await
    }

    async fn resume_schedule(&self, id: &str) -> Result<ScheduleControlledJson, Problem> {
        self.post(&schedule_path(id, "/resume"), &serde_json::Map::new()).await
    }

    async fn trigger_schedule(&self, id: &str) -> Result<ScheduleControlledJson, Problem> {
        self.post(&schedule_path(id, "/trigger"), &serde_json::Map::new()).await
    }

    async fn backfill_schedule(
        &self,
        id: &str,
        request: &BackfillRequest,
    ) -> Result<BackfilledJson, Problem> {
        self.post(&schedule_path(id, "/backfill"), request).await
    }

    async fn delete_schedule(&self, id: &str) -> Result<(), Problem> {
        self.ask("DELETE", &schedule_path(id, ""), "", Vec::new(), REQUEST_TIME).await.map(drop)
    }

    async fn pause_schedules(&self, request: &SchedulesRequest) -> Result<SchedulesControlledJson, Problem> {
        self.post("/api/schedules/pause", request).await
    }

    async fn resume_schedules(&self, request: &SchedulesRequest) -> Result<SchedulesControlledJson, Problem> {
        self.post("/api/schedules/resume", request).await
    }

    async fn hooks(&self, filter: &HookFilter) -> Result<ItemPage<OpenHookJson>, Problem> {
        self.get("/api/hooks", &filter.to_query()).await
    }

    async fn failures(&self, filter: &FailureFilter) -> Result<FailureListJson, Problem> {
        self.get("/api/failures", &filter.to_query()).await
    }

    async fn failure(&self, fingerprint: &str) -> Result<FailureDetailJson, Problem> {
        self.get(&format!("/api/failures/{}", path_segment(fingerprint)), "").await
    }

    async fn workers(&self) -> Result<WorkerListJson, Problem> {
        self.get("/api/workers", "").await
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<ItemPage<AuditJson>, Problem> {
        self.get("/api/audit", &filter.to_query()).await
    }

    async fn queues(&self) -> Result<QueueListJson, Problem> {
        self.get("/api/queues", "").await
    }

    async fn queue(&self, name: &str) -> Result<QueueDetailJson, Problem> {
        self.get(&format!("/api/queues/{}", path_segment(name)), "").await
    }

    async fn workflows(&self) -> Result<WorkflowListJson, Problem> {
        self.get("/api/workflows", "").await
    }

    async fn workflow(&self, name: &str) -> Result<WorkflowDetailJson, Problem> {
        self.get(&format!("/api/workflows/{}", path_segment(name)), "").await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PrunedJson, Problem> {
        self.post("/api/world/prune", request).await
    }
}
