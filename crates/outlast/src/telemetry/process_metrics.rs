//! What this process has counted about one world.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Status, WorldError};

use super::families::{MetricFamily, MetricKind};
use super::instruments::{
    EVENT_COUNTS, LONG_TIMES, MEDIUM_TIMES, MetricCounter, MetricGauge, MetricHistogram, SHORT_TIMES,
    TURN_COUNTS,
};
use super::labels::Labelled;

/// The metrics of this process about one world. All clients and workers of the world share them.
#[derive(Debug)]
pub(crate) struct ProcessMetrics {
    /// The kind of the world.
    world: &'static str,
    pub(crate) workflows: Labelled<WorkflowMetrics>,
    pub(crate) queues: Labelled<QueueMetrics>,
    pub(crate) steps: Labelled<StepMetrics>,
    pub(crate) compensations: Labelled<MetricCounter>,
    pub(crate) turns: MetricCounter,
    pub(crate) turn_time: MetricHistogram,
    pub(crate) commit_time: MetricHistogram,
    pub(crate) commit_turns: MetricHistogram,
    pub(crate) replays: Labelled<MetricCounter>,
    pub(crate) replay_events: MetricHistogram,
    pub(crate) timer_lag: MetricHistogram,
    pub(crate) schedule_lag: MetricHistogram,
    pub(crate) stuck: Labelled<MetricCounter>,
    pub(crate) takeovers: Labelled<MetricCounter>,
    pub(crate) hook_deliveries: Labelled<MetricCounter>,
    pub(crate) schedule_firings: Labelled<MetricCounter>,
    pub(crate) stream_chunks: MetricCounter,
    pub(crate) stream_bytes: MetricCounter,
    world_errors: Labelled<MetricCounter>,
}

/// The metrics of one workflow.
#[derive(Debug)]
pub(crate) struct WorkflowMetrics {
    /// Started runs by queue.
    started: Labelled<MetricCounter>,
    /// The durations of ended runs by status.
    durations: Labelled<MetricHistogram>,
}

/// The metrics of one queue.
#[derive(Debug)]
pub(crate) struct QueueMetrics {
    pub(crate) claim_delay: MetricHistogram,
}

/// The metrics of one step.
#[derive(Debug)]
pub(crate) struct StepMetrics {
    pub(crate) active: MetricGauge,
    /// The durations of attempts by outcome.
    pub(crate) attempts: Labelled<MetricHistogram>,
    pub(crate) exhausted: MetricCounter,
}

/// The gauges of one worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerGauges {
    pub(crate) build: Arc<str>,
    pub(crate) live_runs: u64,
    pub(crate) live_runs_limit: u64,
    pub(crate) cached_futures: u64,
}

impl ProcessMetrics {
    pub(crate) fn new(world: &'static str) -> Self {
        let counters = || Labelled::new(MetricCounter::default);
        Self {
            world,
            workflows: Labelled::new(|| WorkflowMetrics {
                started: Labelled::new(MetricCounter::default),
                durations: Labelled::new(|| MetricHistogram::new(&LONG_TIMES)),
            }),
            queues: Labelled::new(|| QueueMetrics { claim_delay: MetricHistogram::new(&MEDIUM_TIMES) }),
            steps: Labelled::new(|| StepMetrics {
                active: MetricGauge::default(),
                attempts: Labelled::new(|| MetricHistogram::new(&MEDIUM_TIMES)),
                exhausted: MetricCounter::default(),
            }),
            compensations: counters(),
            turns: MetricCounter::default(),
            turn_time: MetricHistogram::new(&SHORT_TIMES),
            commit_time: MetricHistogram::new(&SHORT_TIMES),
            commit_turns: MetricHistogram::new(&TURN_COUNTS),
            replays: counters(),
            replay_events: MetricHistogram::new(&EVENT_COUNTS),
            timer_lag: MetricHistogram::new(&MEDIUM_TIMES),
            schedule_lag: MetricHistogram::new(&MEDIUM_TIMES),
            stuck: counters(),
            takeovers: counters(),
            hook_deliveries: counters(),
            schedule_firings: counters(),
            stream_chunks: MetricCounter::default(),
            stream_bytes: MetricCounter::default(),
            world_errors: counters(),
        }
    }

    /// Counts a run that was started.
    pub(crate) fn run_started(&self, workflow: &str, queue: &str) {
        let queue = self.queues.of(queue);
        self.workflows.of(workflow).metric.started.of(&queue.label).metric.add(1);
    }

    /// Counts a run that has ended, this long after it was created.
    pub(crate) fn run_ended(&self, workflow: &str, status: Status, duration: Duration) {
        self.workflows.of(workflow).metric.durations.of(status.as_str()).metric.time(duration);
    }

    /// Counts an error of the world.
    pub(crate) fn world_error(&self, error: &WorldError) {
        self.world_errors.of(kind_of(error)).metric.add(1);
    }

    /// All metrics. `workers` are the workers of this process.
    pub(crate) fn families(&self, workers: &[WorkerGauges]) -> Vec<MetricFamily> {
        let mut families = vec![self.build_info(workers)];
        families.extend(self.of_runs());
        families.extend(self.of_steps());
        families.extend(self.of_turns());
        families.extend(of_workers(workers));
        families.extend(self.of_messages());
        families
    }

    fn build_info(&self, workers: &[WorkerGauges]) -> MetricFamily {
        let help =
            "The version of the library, the builds of this process's workers, and the kind of the world.";
        let mut builds: BTreeSet<&str> = workers.iter().map(|worker| &*worker.build).collect();
        if builds.is_empty() {
            builds.insert("");
        }
        let mut family = MetricFamily::new("outlast_build_info", MetricKind::Gauge, help);
        for build in builds {
            let labels = [("version", outlast_core::VERSION), ("build", build), ("world", self.world)];
            family.push(owned(&labels), 1);
        }
        family
    }

    fn of_runs(&self) -> [MetricFamily; 4] {
        let mut started = counter("outlast_runs_started_total", "Runs that this process started.");
        let mut ended = counter("outlast_runs_ended_total", "Runs whose end this process committed.");
        let mut durations =
            histogram("outlast_run_duration_seconds", "The time from the start of a run to its end.");
        let mut delays = histogram(
            "outlast_claim_delay_seconds",
            "The time from when a run was ready until a worker of this process claimed it.",
        );
        for workflow in self.workflows.all() {
            for queue in workflow.metric.started.all() {
                let labels = [("workflow", &*workflow.label), ("queue", &*queue.label)];
                started.push(owned(&labels), queue.metric.get());
            }
            for status in workflow.metric.durations.all() {
                let labels = [("workflow", &*workflow.label), ("status", &*status.label)];
                let value = status.metric.read();
                ended.push(owned(&labels), value.count);
                durations.push(owned(&labels), value);
            }
        }
        for queue in self.queues.all() {
            delays.push(owned(&[("queue", &queue.label)]), queue.metric.claim_delay.read());
        }
        [started, ended, durations, delays]
    }

    fn of_steps(&self) -> [MetricFamily; 5] {
        let mut attempts = counter("outlast_step_attempts_total", "Attempts that have ended.");
        let mut durations =
            histogram("outlast_step_attempt_duration_seconds", "The duration of attempts that have ended.");
        let mut active =
            MetricFamily::new("outlast_step_attempts_active", MetricKind::Gauge, "Running attempts.");
        let mut exhausted =
            counter("outlast_steps_exhausted_total", "Steps that failed because no attempt was left.");
        for step in self.steps.all() {
            let name = [("step", &*step.label)];
            active.push(owned(&name), step.metric.active.get());
            exhausted.push(owned(&name), step.metric.exhausted.get());
            for outcome in step.metric.attempts.all() {
                let labels = [("step", &*step.label), ("outcome", &*outcome.label)];
                let value = outcome.metric.read();
                attempts.push(owned(&labels), value.count);
                durations.push(owned(&labels), value);
            }
        }
        let compensations = by_label(
            counter("outlast_compensations_total", "Compensations that have ended."),
            "outcome",
            &self.compensations,
        );
        [attempts, durations, active, exhausted, compensations]
    }

    fn of_turns(&self) -> Vec<MetricFamily> {
        let world = || vec![("world", self.world.to_owned())];
        let mut commits = histogram("outlast_commit_duration_seconds", "The duration of commits.");
        commits.push(world(), self.commit_time.read());
        let mut sizes = histogram("outlast_commit_turns", "The number of turns in a commit.");
        sizes.push(world(), self.commit_turns.read());
        let replays = counter("outlast_replays_total", "Runs whose history was replayed.");
        let stuck = counter("outlast_stuck_total", "Runs that became stuck.");
        let takeovers = counter(
            "outlast_session_takeovers_total",
            "How often this process took over runs of workers that are gone.",
        );
        let mut errors = counter("outlast_world_errors_total", "Calls to the world that failed.");
        for kind in self.world_errors.all() {
            errors.push(owned(&[("world", self.world), ("kind", &kind.label)]), kind.metric.get());
        }
        vec![
            counter("outlast_turns_total", "Committed turns.").number(Vec::new(), self.turns.get() as f64),
            of_one("outlast_turn_duration_seconds", "The time to compute a turn.", &self.turn_time),
            commits,
            sizes,
            by_label(replays, "reason", &self.replays),
            of_one(
                "outlast_replay_events",
                "The number of events of a replayed history.",
                &self.replay_events,
            ),
            of_one(
                "outlast_timer_lag_seconds",
                "The time from when a timer was due until it was delivered.",
                &self.timer_lag,
            ),
            of_one(
                "outlast_schedule_lag_seconds",
                "The time from the instant of a schedule until its run was started.",
                &self.schedule_lag,
            ),
            by_label(stuck, "reason", &self.stuck),
            by_label(takeovers, "cause", &self.takeovers),
            errors,
        ]
    }

    fn of_messages(&self) -> [MetricFamily; 4] {
        let hooks = counter("outlast_hook_deliveries_total", "Payloads for hooks.");
        let firings = counter("outlast_schedule_firings_total", "Firings of schedules.");
        [
            by_label(hooks, "outcome", &self.hook_deliveries),
            by_label(firings, "outcome", &self.schedule_firings),
            counter("outlast_stream_chunks_total", "Chunks that were written to streams.")
                .number(Vec::new(), self.stream_chunks.get() as f64),
            counter("outlast_stream_bytes_total", "The bytes of these chunks.")
                .number(Vec::new(), self.stream_bytes.get() as f64),
        ]
    }
}

fn of_workers(workers: &[WorkerGauges]) -> [MetricFamily; 3] {
    let sum = |of: fn(&WorkerGauges) -> u64| workers.iter().map(of).sum::<u64>() as f64;
    let gauge =
        |name, help, value| MetricFamily::new(name, MetricKind::Gauge, help).number(Vec::new(), value);
    [
        gauge("outlast_live_runs", "Live runs of this process's workers.", sum(|worker| worker.live_runs)),
        gauge(
            "outlast_live_runs_limit",
            "How many runs may be live in this process.",
            sum(|worker| worker.live_runs_limit),
        ),
        gauge(
            "outlast_cached_futures",
            "Futures of waiting runs that are kept in memory.",
            sum(|worker| worker.cached_futures),
        ),
    ]
}

fn counter(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily::new(name, MetricKind::Counter, help)
}

fn histogram(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily::new(name, MetricKind::Histogram, help)
}

/// A histogram without labels.
fn of_one(name: &'static str, help: &'static str, metric: &MetricHistogram) -> MetricFamily {
    let mut family = histogram(name, help);
    family.push(Vec::new(), metric.read());
    family
}

/// A counter for each value of one label.
fn by_label(
    mut family: MetricFamily,
    label: &'static str,
    counters: &Labelled<MetricCounter>,
) -> MetricFamily {
    for counter in counters.all() {
        family.push(owned(&[(label, &counter.label)]), counter.metric.get());
    }
    family
}

fn owned(labels: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// The value of the label `kind`.
fn kind_of(error: &WorldError) -> &'static str {
    match error {
        WorldError::NotFound(_) => "not_found",
        WorldError::Conflict(_) => "conflict",
        WorldError::Fenced(_) => "fenced",
        WorldError::Limit(_) => "limit",
        WorldError::Unavailable(_) => "unavailable",
        WorldError::Blocked(_) => "blocked",
        WorldError::Corrupt(_) => "corrupt",
        WorldError::Gone(_) => "gone",
        WorldError::Invalid(_) => "invalid",
        _ => "other",
    }
}
