//! Local workers: the workers of this process that are joined to a world. A start can pass its run to one of them
//! without a claim, and a caller that waits for a run can see that it is being executed without a call to the world.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Weak};

use outlast_core::{RunId, Start, Started, World, WorldError};
use parking_lot::Mutex;

use super::output_waiters::OutputWaiters;
use crate::telemetry::{MetricFamily, ProcessMetrics, WorkerGauges};

/// The result of a start that a local worker has taken.
pub(crate) type TakenStart = Pin<Box<dyn Future<Output = Result<Started, WorldError>> + Send>>;

/// A worker of this process that may take a run at its start.
pub(crate) trait LocalWorker: Send + Sync {
    /// Takes the run, so that its start and first turn are one commit. Returns the start when the worker has no free
    /// capacity, does not have the code, or does not serve the queue, or when the run has a priority: it is then
    /// claimed like any other.
    #[allow(clippy::result_large_err, reason = "the start is returned to the caller; it is not an error")]
    fn take(&self, start: Start) -> Result<TakenStart, Start>;

    /// Whether the worker holds the run and has not begun to commit its end.
    fn holds(&self, run: RunId) -> bool;

    /// The error with which the world refuses a turn of the run at the moment, if the worker tries it again.
    fn commit_error(&self, run: RunId) -> Option<String>;

    /// Decodes and checks the input of a start; `None` when the worker does not have the code.
    fn check(&self, start: &Start) -> Option<Result<(), String>>;

    /// What the worker is doing now.
    fn gauges(&self) -> WorkerGauges;
}

/// The workers of this process that are joined to one world, and the callers that wait for outputs of its runs.
pub(crate) struct LocalWorkers {
    workers: Mutex<Vec<Weak<dyn LocalWorker>>>,
    pub(super) outputs: OutputWaiters,
    /// What this process counts about the world.
    pub(crate) metrics: Arc<ProcessMetrics>,
}

/// The worlds of this process by the address of their allocation. The weak reference ensures that the address is not
/// reused while the entry exists.
type Worlds = HashMap<usize, (Weak<dyn World>, Arc<LocalWorkers>)>;

static WORLDS: LazyLock<Mutex<Worlds>> = LazyLock::new(Mutex::default);

impl LocalWorkers {
    /// The workers that are joined to this world.
    pub(crate) fn of(world: &Arc<dyn World>) -> Arc<Self> {
        let address = Arc::as_ptr(world).cast::<()>().addr();
        let mut worlds = WORLDS.lock();
        if let Some((_, workers)) = worlds.get(&address) {
            return workers.clone();
        }
        worlds.retain(|_, (world, _)| world.strong_count() > 0);
        let metrics = Arc::new(ProcessMetrics::new(world.describe().kind));
        let workers =
            Arc::new(Self { workers: Mutex::default(), outputs: OutputWaiters::default(), metrics });
        worlds.insert(address, (Arc::downgrade(world), workers.clone()));
        workers
    }

    /// Adds a worker. It is removed when it is dropped.
    pub(crate) fn add(&self, worker: Weak<dyn LocalWorker>) {
        let mut workers = self.workers.lock();
        workers.retain(|worker| worker.strong_count() > 0);
        workers.push(worker);
    }

    /// Whether a worker of this process is joined.
    pub(crate) fn any(&self) -> bool {
        self.workers.lock().iter().any(|worker| worker.strong_count() > 0)
    }

    /// Whether one of the workers holds the run; see [`LocalWorker::holds`].
    pub(crate) fn hold(&self, run: RunId) -> bool {
        self.all().iter().any(|worker| worker.holds(run))
    }

    /// Those of the runs that none of the workers holds.
    pub(crate) fn not_held(&self, mut runs: BTreeSet<RunId>) -> BTreeSet<RunId> {
        for worker in self.all() {
            runs.retain(|run| !worker.holds(*run));
        }
        runs
    }

    /// The error with which the world refuses a turn of the run; see [`LocalWorker::commit_error`].
    pub(crate) fn commit_error(&self, run: RunId) -> Option<String> {
        self.all().iter().find_map(|worker| worker.commit_error(run))
    }

    /// Checks the input with the first worker that has the code; see [`LocalWorker::check`].
    pub(crate) fn check(&self, start: &Start) -> Option<Result<(), String>> {
        self.all().iter().find_map(|worker| worker.check(start))
    }

    /// All metrics of this process about the world.
    pub(crate) fn metric_families(&self) -> Vec<MetricFamily> {
        let gauges: Vec<_> = self.all().iter().map(|worker| worker.gauges()).collect();
        self.metrics.families(&gauges)
    }

    /// Offers the run to each worker in turn; returns the start when none takes it.
    #[allow(clippy::result_large_err, reason = "the start is returned to the caller; it is not an error")]
    pub(crate) fn take(&self, mut start: Start) -> Result<TakenStart, Start> {
        for worker in self.all() {
            match worker.take(start) {
                Ok(answer) => return Ok(answer),
                Err(returned) => start = returned,
            }
        }
        Err(start)
    }

    fn all(&self) -> Vec<Arc<dyn LocalWorker>> {
        self.workers.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl fmt::Debug for LocalWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalWorkers({})", self.workers.lock().len())
    }
}
