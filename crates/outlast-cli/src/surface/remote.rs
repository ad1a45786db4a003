//! Asks a server over HTTP.

use std::time::Duration;

use async_trait::async_trait;
use outlast::RunId;
use outlast::core::duration::duration_text;
use outlast_api::{
    BatchJson, BatchRequest, BulkPreview, BulkRequest, ChildrenJson, ChunkFilter, ChunkListJson,
    ControlledJson, CountsJson, EventFilter, EventJson, ExplanationJson, ItemPage, OperationFilter,
    OperationJson, OutputJson, OutputQuery, PageRequest, Problem, PruneRequest, PrunedJson, QueryPairs,
    ResolveJson, ResolveQuery, RestartRequest, RunFilter, RunJson, SendRequest, SentJson, StartRequest,
    StartedJson, StateJson, StreamListJson, WorkerListJson, WorkflowListJson, WorldJson,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::connection::{Exchange, RemoteError, ServerAddress};
use super::http_body::{Answer, read_answer, write_body};
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

    async fn ask(
        &self,
        method: &str,
        path: &str,
        query: &str,
        body: Vec<u8>,
        time: Duration,
    ) -> Result<Answer, Problem> {
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        read_answer(self.exchange.ask(method, &target, body, time).await?)
    }
}

/// A part of a path, with everything encoded that could end it.
fn segment(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    // `.` and `..` would be resolved by a proxy.
    let is_dots = text.bytes().all(|byte| byte == b'.');
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if is_plain(byte) && !is_dots {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
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
        self.get(&format!("/api/runs/{run}/streams/{}", segment(stream)), &filter.to_query()).await
    }

    async fn control(&self, run: RunId, control: &Control) -> Result<ControlledJson, Problem> {
        let path = |action: &str| format!("/api/runs/{run}/{action}");
        let nothing = serde_json::Map::new();
        match control {
            Control::Cancel(request) => self.post(&path("cancel"), request).await,
            Control::Terminate(request) => self.post(&path("terminate"), request).await,
            Control::Pause(request) => self.post(&path("pause"), request).await,
            Control::Resume => self.post(&path("resume"), &nothing).await,
            Control::Wake(request) => self.post(&path("wake"), request).await,
            Control::Quarantine => self.post(&path("quarantine"), &nothing).await,
            Control::Release => self.post(&path("release"), &nothing).await,
        }
    }

    async fn restart(&self, run: RunId, request: &RestartRequest) -> Result<RunJson, Problem> {
        self.post(&format!("/api/runs/{run}/restart"), request).await
    }

    async fn delete(&self, run: RunId) -> Result<(), Problem> {
        self.ask("DELETE", &format!("/api/runs/{run}"), "", Vec::new(), REQUEST_TIME).await.map(drop)
    }

    async fn send(&self, run: RunId, hook: &str, request: SendRequest) -> Result<SentJson, Problem> {
        self.post(&format!("/api/runs/{run}/hooks/{}", segment(hook)), &request).await
    }

    async fn preview(&self, request: &BulkRequest) -> Result<BulkPreview, Problem> {
        self.post("/api/bulk", request).await
    }

    async fn workers(&self) -> Result<WorkerListJson, Problem> {
        self.get("/api/workers", "").await
    }

    async fn workflows(&self) -> Result<WorkflowListJson, Problem> {
        self.get("/api/workflows", "").await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PrunedJson, Problem> {
        self.post("/api/world/prune", request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_path_cannot_leave_it() {
        assert_eq!(segment("rating"), "rating");
        assert_eq!(segment("a/b?c#d e"), "a%2Fb%3Fc%23d%20e");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("ü"), "%C3%BC");
    }
}
