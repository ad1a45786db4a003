//! What is counted of a turn, after it was committed: a turn that the world refuses is computed again.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::paging::millis_of;
use outlast_core::{Event, Judgement, OpNumber, RunId, Status, Then, Timestamp, Turn};

use crate::schedule::{SCHEDULE_WORKFLOW, scheduled_at};
use crate::telemetry::ProcessMetrics;

/// What is counted of one turn.
#[derive(Debug, Default)]
pub(super) struct TurnMetrics {
    /// The workflows and queues of the children that it starts.
    started: Vec<(Arc<str>, Arc<str>)>,
    /// How late the firings are that it starts.
    firing_lags: Vec<Duration>,
    /// How firings ended.
    firing_outcomes: Vec<&'static str>,
    delivered_payloads: u64,
    rejected_payloads: u64,
    /// The steps that have no attempt left.
    exhausted: Vec<Box<str>>,
    compensations: Vec<&'static str>,
    chunks: u64,
    chunk_bytes: u64,
    ended: Option<(Status, Duration)>,
}

impl TurnMetrics {
    /// Collects what is to be counted of a turn; `None` if there is nothing, as for most turns. `compensations` are the
    /// compensations that ended with it.
    pub(super) fn of(turn: &Turn, workflow: &str, compensations: &[OpNumber]) -> Option<Box<Self>> {
        let is_any = turn.outbox.is_some()
            || matches!(turn.then, Then::End(_))
            || turn.events.iter().any(|event| is_counted(event, compensations));
        if !is_any {
            return None;
        }
        let is_schedule = workflow == SCHEDULE_WORKFLOW;
        let mut metrics = Box::<Self>::default();
        for event in &turn.events {
            metrics.add_event(event, compensations, is_schedule);
        }
        if let Some(outbox) = &turn.outbox {
            for child in &outbox.children {
                let start = &child.start;
                metrics.started.push((start.workflow.clone(), start.queue.clone()));
                let nominal = scheduled_at(&start.headers).filter(|_| is_schedule);
                metrics.firing_lags.extend(nominal.map(|nominal| turn.at.since(nominal)));
            }
            let chunks = outbox.writes.streams.iter().flat_map(|append| &append.chunks);
            let bytes = chunks.clone().map(|chunk| chunk.stored_bytes() as u64);
            (metrics.chunks, metrics.chunk_bytes) = (chunks.count() as u64, bytes.sum());
        }
        if let Then::End(status) = turn.then {
            metrics.ended = Some((status, run_time(turn.run, turn.at)));
        }
        Some(metrics)
    }

    /// Counts an event. `compensations` are the operations of steps that undo others.
    fn add_event(&mut self, event: &Event, compensations: &[OpNumber], is_schedule: bool) {
        match event {
            Event::HookReceived { judgement: Judgement::Rejected(_), .. } | Event::HookRejected { .. } => {
                self.rejected_payloads += 1;
            }
            Event::HookReceived { .. } => self.delivered_payloads += 1,
            Event::StepCompleted { op, .. } if compensations.contains(op) => {
                self.compensations.push("completed");
            }
            Event::StepFailed { op, failure } => {
                if compensations.contains(op) {
                    self.compensations.push("failed");
                }
                self.exhausted.extend(failure.step.clone().filter(|_| failure.is_exhausted));
            }
            Event::ChildCompleted { .. } if is_schedule => self.firing_outcomes.push("completed"),
            Event::ChildFailed { .. } if is_schedule => self.firing_outcomes.push("failed"),
            Event::ChildCancelled { .. } if is_schedule => self.firing_outcomes.push("cancelled"),
            _ => {}
        }
    }

    /// Adds the counts of the turn to the metrics of the process.
    pub(super) fn count(&self, metrics: &ProcessMetrics, workflow: &str) {
        for (child, queue) in &self.started {
            metrics.run_started(child, queue);
        }
        for lag in &self.firing_lags {
            metrics.schedule_lag.time(*lag);
            metrics.schedule_firings.of("started").metric.add(1);
        }
        for outcome in &self.firing_outcomes {
            metrics.schedule_firings.of(outcome).metric.add(1);
        }
        for (outcome, count) in [("delivered", self.delivered_payloads), ("rejected", self.rejected_payloads)]
        {
            if count > 0 {
                metrics.hook_deliveries.of(outcome).metric.add(count);
            }
        }
        for step in &self.exhausted {
            metrics.steps.of(step).metric.exhausted.add(1);
        }
        for outcome in &self.compensations {
            metrics.compensations.of(outcome).metric.add(1);
        }
        metrics.stream_chunks.add(self.chunks);
        metrics.stream_bytes.add(self.chunk_bytes);
        if let Some((status, duration)) = self.ended {
            metrics.run_ended(workflow, status, duration);
        }
    }
}

fn is_counted(event: &Event, compensations: &[OpNumber]) -> bool {
    match event {
        Event::HookReceived { .. } | Event::HookRejected { .. } | Event::StepFailed { .. } => true,
        Event::ChildCompleted { .. } | Event::ChildFailed { .. } | Event::ChildCancelled { .. } => true,
        Event::StepCompleted { .. } => !compensations.is_empty(),
        _ => false,
    }
}

/// How long a run has existed: its id contains the time at which it was made.
pub(in crate::worker) fn run_time(run: RunId, at: Timestamp) -> Duration {
    let created_at = Timestamp::from_micros(millis_of(run).saturating_mul(1_000));
    at.since(created_at)
}
