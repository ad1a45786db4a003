//! Workers and the world.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::queue::{BUILT_IN_PREFIX, step_of_workflow};
use outlast_core::{SessionId, Timestamp, WorkerView};

use super::problems::of_error;
use super::{Service, machine_time};
use crate::problem::{Problem, ProblemCode};
use crate::worker::{WorkerJson, WorkerListJson, WorkflowCodeJson};
use crate::world::WorldJson;

/// How long the newest versions of workflows are cached. A start without a version reads them.
const VERSIONS_CACHED: Duration = Duration::from_secs(1);

/// The newest version of each workflow that a joined worker has.
#[derive(Debug, Default)]
pub(super) struct NewestVersions {
    versions: BTreeMap<String, u32>,
    read_at: Option<Timestamp>,
}

impl Service {
    /// `GET /api/workers`.
    ///
    /// # Errors
    ///
    /// `unavailable`.
    pub async fn workers(&self) -> Result<WorkerListJson, Problem> {
        let workers = self.client.workers().await.map_err(of_error)?;
        Ok(WorkerListJson { items: workers.iter().map(worker).collect() })
    }

    /// `GET /api/workers/{session}`.
    ///
    /// # Errors
    ///
    /// `not_found` if it is not joined.
    pub async fn worker(&self, session: SessionId) -> Result<WorkerJson, Problem> {
        let found = self.workers().await?.items.into_iter().find(|worker| worker.session == session);
        found.ok_or_else(|| Problem::new(ProblemCode::NotFound, format!("worker {session} is not joined")))
    }

    /// `GET /api/world`.
    pub fn world(&self) -> WorldJson {
        let description = self.client.world().describe();
        WorldJson {
            kind: description.kind.into(),
            place: description.place,
            durability: description.durability,
            hints: description.hints,
            now: self.now(),
            library: outlast_core::VERSION.into(),
        }
    }

    /// The newest version of a workflow that a joined worker has; without one, that a worker had; otherwise 1.
    pub(super) async fn newest_version(&self, workflow: &str) -> Result<u32, Problem> {
        let now = machine_time();
        {
            let cached = self.newest_versions.lock();
            if cached.read_at.is_some_and(|at| now.since(at) < VERSIONS_CACHED)
                && let Some(version) = cached.versions.get(workflow)
            {
                return Ok(*version);
            }
        }
        let workers = self.client.workers().await.map_err(of_error)?;
        let mut versions = BTreeMap::new();
        for code in workers.iter().flat_map(|worker| &worker.code) {
            let newest = versions.entry(code.workflow.to_string()).or_insert(code.version);
            *newest = code.version.max(*newest);
        }
        let version = match versions.get(workflow) {
            Some(version) => *version,
            None => self.newest_stored_version(workflow).await?.unwrap_or(1),
        };
        *self.newest_versions.lock() = NewestVersions { versions, read_at: Some(now) };
        Ok(version)
    }
}

/// Whether a program has registered it as a workflow: it is neither a step in a queue nor part of the engine.
pub(super) fn is_of_program(workflow: &str) -> bool {
    step_of_workflow(workflow).is_none() && !workflow.starts_with(BUILT_IN_PREFIX)
}

pub(super) fn worker(view: &WorkerView) -> WorkerJson {
    let workflows = view.code.iter().filter(|code| is_of_program(&code.workflow));
    let mut workflows: Vec<_> = workflows
        .map(|code| WorkflowCodeJson { workflow: code.workflow.to_string(), version: code.version })
        .collect();
    workflows.sort_unstable();
    WorkerJson {
        session: view.session,
        host: view.host.clone(),
        pid: view.pid,
        build: view.build.clone(),
        library: view.version.clone(),
        status: view.report.status.as_str().into(),
        joined_at: view.joined_at.into(),
        beat_at: view.beat_at.into(),
        expires_at: view.expires_at.into(),
        queues: view.queues.clone(),
        workflows,
        held: view.held,
        live: view.report.live,
        attempts: view.report.attempts,
        steps: view.report.steps.clone(),
        turns: view.report.turns,
        replays: view.report.replays,
        completed: view.report.completed,
        failed: view.report.failed,
    }
}
