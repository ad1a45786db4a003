//! Queues: their runs, and who serves them.

use std::collections::BTreeMap;

use outlast_core::{QueueView, WorkerStatus, WorkerView};

use super::Service;
use super::fleet::worker;
use super::problems::of_error;
use crate::problem::{Problem, ProblemCode};
use crate::queue::{QueueDetailJson, QueueJson, QueueListJson};

impl Service {
    /// `GET /api/queues`.
    ///
    /// # Errors
    ///
    /// `unavailable`.
    pub async fn queues(&self) -> Result<QueueListJson, Problem> {
        let (queues, workers) = self.queues_and_workers().await?;
        Ok(QueueListJson { items: queues.into_values().map(|view| queue(&view, &workers)).collect() })
    }

    /// `GET /api/queues/{name}`.
    ///
    /// # Errors
    ///
    /// `not_found` if it has no runs that are ready, due or held, and nobody serves it.
    pub async fn queue(&self, name: &str) -> Result<QueueDetailJson, Problem> {
        let (queues, workers) = self.queues_and_workers().await?;
        let found = queues.get(name).ok_or_else(|| {
            let detail =
                format!("queue `{name}` has no run that is ready, due or held, and no worker serves it");
            Problem::new(ProblemCode::NotFound, detail)
        })?;
        let serving = workers.iter().filter(|worker| serves(worker, name));
        Ok(QueueDetailJson { queue: queue(found, &workers), served_by: serving.map(worker).collect() })
    }

    async fn queues_and_workers(&self) -> Result<(BTreeMap<String, QueueView>, Vec<WorkerView>), Problem> {
        let (queues, workers) = (self.client.queues(), self.client.workers());
        let (queues, workers) = futures_util::future::try_join(queues, workers).await.map_err(of_error)?;
        let mut by_name: BTreeMap<String, QueueView> =
            queues.into_iter().map(|queue| (queue.name.to_string(), queue)).collect();
        for name in workers.iter().flat_map(|worker| &worker.queues) {
            by_name.entry(name.clone()).or_insert_with(|| QueueView::empty(name.as_str()));
        }
        Ok((by_name, workers))
    }
}

fn serves(worker: &WorkerView, queue: &str) -> bool {
    worker.queues.iter().any(|name| name == queue)
}

fn queue(view: &QueueView, workers: &[WorkerView]) -> QueueJson {
    let claims =
        |worker: &&WorkerView| serves(worker, &view.name) && worker.report.status != WorkerStatus::Draining;
    QueueJson {
        name: view.name.to_string(),
        ready: view.ready,
        oldest_ready_at: view.oldest_ready_at.map(Into::into),
        stuck: view.stuck,
        running: view.running,
        workers: workers.iter().filter(claims).count() as u64,
    }
}
