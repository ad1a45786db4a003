//! Workflows: what workers have said about them, and what became of their runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use outlast::DefinitionView;
use outlast_core::{RunQuery, RunView, Status, Timestamp, WorkerView};
use serde_json::Value;

use super::fleet::is_of_program;
use super::list::OPEN;
use super::problems::of_error;
use super::{Service, machine_time};
use crate::problem::{Problem, ProblemCode};
use crate::workflow::{
    EndedRunsJson, OpenRunsJson, OpenVersionJson, WorkflowDefinitionJson, WorkflowDetailJson, WorkflowJson,
    WorkflowListJson,
};

/// The newest ended runs that the statistics of a workflow are of.
const ENDED_MAX: usize = 500;

/// The newest open runs that are counted by version.
const OPEN_MAX: usize = 1_000;

/// How long the statistics of a workflow are kept.
const STATISTICS_KEPT: Duration = Duration::from_secs(30);

/// How many workflows have statistics in memory.
const STATISTICS_MAX: usize = 200;

/// The statistics of workflows that were read lately, by name.
pub(super) type Statistics = HashMap<String, (Timestamp, EndedRunsJson)>;

impl Service {
    /// `GET /api/workflows`: those that workers have code for, or had.
    ///
    /// # Errors
    ///
    /// `unavailable`.
    pub async fn workflows(&self) -> Result<WorkflowListJson, Problem> {
        let (workers, definitions) = self.workers_and_definitions().await?;
        let of_workers = workers.iter().flat_map(|worker| &worker.code).map(|code| &*code.workflow);
        let of_definitions = definitions.iter().map(|view| view.summary.workflow.as_str());
        let names: BTreeSet<&str> =
            of_workers.chain(of_definitions).filter(|name| is_of_program(name)).collect();
        let items = names.into_iter().map(|name| workflow(name, &workers, &definitions)).collect();
        Ok(WorkflowListJson { items })
    }

    /// `GET /api/workflows/{name}`.
    ///
    /// # Errors
    ///
    /// `not_found` if no worker has said anything about it and it has no runs.
    pub async fn workflow(&self, name: &str) -> Result<WorkflowDetailJson, Problem> {
        let reads = (self.workers_and_definitions(), self.open_runs(name), self.ended_runs(name));
        let ((workers, mut definitions), open, ended) =
            futures_util::future::try_join3(reads.0, reads.1, reads.2).await?;
        definitions.retain(|view| view.summary.workflow == name);
        let workflow = workflow(name, &workers, &definitions);
        if !is_of_program(name)
            || workflow.versions.is_empty() && open.by_version.is_empty() && ended.runs == 0
        {
            let detail = format!("no worker has joined with code for workflow `{name}`, and it has no runs");
            return Err(Problem::new(ProblemCode::NotFound, detail));
        }
        definitions.sort_by_key(|view| std::cmp::Reverse((view.summary.version, view.seen_at)));
        let definitions = definitions.into_iter().map(definition).collect();
        Ok(WorkflowDetailJson { workflow, definitions, open, ended })
    }

    /// The JSON Schemas of the inputs of workflows, by name: what the newest build of the newest version has said, if it
    /// has. They are known also when the workers are other processes, or gone.
    ///
    /// # Errors
    ///
    /// `unavailable`.
    pub async fn input_schemas(&self) -> Result<BTreeMap<String, Value>, Problem> {
        let mut definitions = self.client.definitions().await.map_err(of_error)?;
        definitions.sort_by_key(|view| (view.summary.version, view.seen_at));
        // The last one counts, also if it says nothing: an older schema may not fit.
        let newest: BTreeMap<_, _> =
            definitions.into_iter().map(|view| (view.summary.workflow, view.summary.input)).collect();
        Ok(newest.into_iter().filter_map(|(workflow, input)| Some((workflow, input?))).collect())
    }

    /// The newest version of a workflow that a worker without a session had.
    pub(super) async fn newest_stored_version(&self, name: &str) -> Result<Option<u32>, Problem> {
        let definitions = self.client.definitions().await.map_err(of_error)?;
        let of_name = definitions.iter().filter(|view| view.summary.workflow == name);
        Ok(of_name.map(|view| view.summary.version).max())
    }

    async fn workers_and_definitions(&self) -> Result<(Vec<WorkerView>, Vec<DefinitionView>), Problem> {
        let (workers, definitions) = (self.client.workers(), self.client.definitions());
        futures_util::future::try_join(workers, definitions).await.map_err(of_error)
    }

    async fn open_runs(&self, name: &str) -> Result<OpenRunsJson, Problem> {
        let page = self.client.runs(of_workflow(name, &OPEN, OPEN_MAX)).await.map_err(of_error)?;
        let mut by_version: BTreeMap<u32, u64> = BTreeMap::new();
        for run in &page.runs {
            *by_version.entry(run.version).or_default() += 1;
        }
        let by_version =
            by_version.into_iter().rev().map(|(version, runs)| OpenVersionJson { version, runs });
        Ok(OpenRunsJson { by_version: by_version.collect(), more: page.next.is_some() })
    }

    async fn ended_runs(&self, name: &str) -> Result<EndedRunsJson, Problem> {
        let now = machine_time();
        if let Some((at, known)) = self.statistics.lock().get(name)
            && now.since(*at) < STATISTICS_KEPT
        {
            return Ok(*known);
        }
        let statuses = [Status::Completed, Status::Failed, Status::Cancelled];
        let page = self.client.runs(of_workflow(name, &statuses, ENDED_MAX)).await.map_err(of_error)?;
        let ended = ended(&page.runs, self.now());
        let mut statistics = self.statistics.lock();
        statistics.retain(|_, (at, _)| now.since(*at) < STATISTICS_KEPT);
        if statistics.len() < STATISTICS_MAX && ended.runs > 0 {
            statistics.insert(name.to_owned(), (now, ended));
        }
        Ok(ended)
    }
}

fn of_workflow(name: &str, statuses: &[Status], limit: usize) -> RunQuery {
    RunQuery { workflow: Some(name.into()), statuses: statuses.to_vec(), limit, ..RunQuery::default() }
}

fn workflow(name: &str, workers: &[WorkerView], definitions: &[DefinitionView]) -> WorkflowJson {
    let having: Vec<_> =
        workers.iter().filter(|worker| worker.code.iter().any(|code| *code.workflow == *name)).collect();
    let stored: Vec<_> = definitions.iter().filter(|view| view.summary.workflow == name).collect();
    let mut versions: BTreeSet<u32> = stored.iter().map(|view| view.summary.version).collect();
    let code = having.iter().flat_map(|worker| &worker.code).filter(|code| *code.workflow == *name);
    versions.extend(code.map(|code| code.version));
    // What the joined workers say counts; only without one what the last ones said.
    let (builds, queues): (BTreeSet<&String>, BTreeSet<&String>) = if having.is_empty() {
        (
            stored.iter().map(|view| &view.summary.build).collect(),
            stored.iter().flat_map(|view| &view.summary.queues).collect(),
        )
    } else {
        (
            having.iter().map(|worker| &worker.build).collect(),
            having.iter().flat_map(|worker| &worker.queues).collect(),
        )
    };
    WorkflowJson {
        name: name.to_owned(),
        versions: versions.into_iter().rev().collect(),
        builds: builds.into_iter().cloned().collect(),
        queues: queues.into_iter().cloned().collect(),
        workers: having.len() as u64,
        seen_at: stored.iter().map(|view| view.seen_at).max().map(Into::into),
    }
}

fn definition(view: DefinitionView) -> WorkflowDefinitionJson {
    let DefinitionView { summary, seen_at, .. } = view;
    WorkflowDefinitionJson {
        version: summary.version,
        build: summary.build,
        queues: summary.queues,
        steps: summary.steps,
        input: summary.input,
        output: summary.output,
        seen_at: seen_at.into(),
    }
}

fn ended(runs: &[RunView], as_of: crate::rfc3339::Rfc3339) -> EndedRunsJson {
    let count = |status| runs.iter().filter(|run| run.status == status).count() as u64;
    let mut times: Vec<Duration> =
        runs.iter().filter_map(|run| Some(run.ended_at?.since(run.created_at))).collect();
    times.sort_unstable();
    let at = |percent: usize| {
        let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(place).map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    };
    let completed = count(Status::Completed);
    EndedRunsJson {
        runs: runs.len() as u64,
        completed,
        failed: count(Status::Failed),
        cancelled: count(Status::Cancelled),
        success_ratio: (!runs.is_empty()).then(|| completed as f64 / runs.len() as f64),
        p50_ms: at(50),
        p95_ms: at(95),
        as_of,
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::RunId;

    use super::*;

    #[test]
    fn percentiles_are_times_of_runs() {
        let run = |number: i64| {
            let status = if number == 100 { Status::Failed } else { Status::Completed };
            let columns = outlast_core::HolderColumns::default();
            let mut view = RunView::of_columns(RunId::from_bits(number as u128), status, &columns);
            view.created_at = Timestamp::from_micros(0);
            view.ended_at = Some(Timestamp::from_micros(number * 1_000));
            view
        };
        let runs: Vec<_> = (1..=100).rev().map(run).collect();
        let found = ended(&runs, Timestamp::from_micros(0).into());
        assert_eq!((found.p50_ms, found.p95_ms, found.success_ratio), (Some(50), Some(95), Some(0.99)));
        let none = ended(&[], Timestamp::from_micros(0).into());
        assert_eq!((none.p50_ms, none.success_ratio), (None, None));
        let one = ended(&runs[99..], Timestamp::from_micros(0).into());
        assert_eq!((one.p50_ms, one.p95_ms), (Some(1), Some(1)));
    }
}
