//! How many runs are ready in each queue, and for how long.

use std::collections::BTreeMap;

use outlast::core::limits::{METRIC_LABEL_VALUES_MAX, PAGE_RUNS_MAX};
use outlast::core::run::{BuiltInRuns, QueuedSteps};
use outlast::core::{Marks, RunQuery};
use outlast::{ListOrder, RunView, Status, Timestamp, World, WorldError};

use super::text::MetricsText;

/// The ready runs of one queue.
#[derive(Clone, Debug, Default, PartialEq)]
struct ReadyRuns {
    count: u64,
    oldest_seconds: f64,
}

/// Writes the gauges of queues. `served` are the queues of joined workers, which are written even if they are empty.
///
/// The oldest pending runs are counted, at most [`PAGE_RUNS_MAX`]: one query, however many runs there are.
pub(super) async fn write(
    text: &mut MetricsText,
    world: &dyn World,
    served: impl Iterator<Item = String>,
) -> Result<(), WorldError> {
    let query = RunQuery {
        statuses: vec![Status::Pending],
        queued_steps: QueuedSteps::Listed,
        built_in: BuiltInRuns::Listed,
        order: ListOrder::OldestFirst,
        limit: PAGE_RUNS_MAX,
        ..RunQuery::default()
    };
    let pending = world.runs(query).await?.runs;
    let queues = ready_by_queue(&pending, served, world.clock().now());
    text.family("outlast_queue_ready_runs", "gauge", "Runs that are ready to be claimed.");
    for (queue, ready) in &queues {
        text.sample("outlast_queue_ready_runs", &[("queue", queue)], ready.count as f64);
    }
    let help = "How long the oldest of them has been ready; 0 if there is none.";
    text.family("outlast_queue_oldest_ready_seconds", "gauge", help);
    for (queue, ready) in &queues {
        text.sample("outlast_queue_oldest_ready_seconds", &[("queue", queue)], ready.oldest_seconds);
    }
    Ok(())
}

fn ready_by_queue(
    pending: &[RunView],
    served: impl Iterator<Item = String>,
    now: Timestamp,
) -> BTreeMap<String, ReadyRuns> {
    let mut queues: BTreeMap<String, ReadyRuns> = BTreeMap::new();
    let bounded = |queues: &BTreeMap<String, ReadyRuns>, queue: &str| {
        let is_full = queues.len() >= METRIC_LABEL_VALUES_MAX && !queues.contains_key(queue);
        if is_full { "other".to_owned() } else { queue.to_owned() }
    };
    for queue in served {
        let queue = bounded(&queues, &queue);
        queues.entry(queue).or_default();
    }
    for run in pending {
        // A run that begins later has its time in `wake_at`.
        let ready_at = run.wake_at.unwrap_or(run.created_at).max(run.created_at);
        if ready_at > now || run.marks.has(Marks::PAUSED) {
            continue;
        }
        let queue = bounded(&queues, &run.queue);
        let ready = queues.entry(queue).or_default();
        ready.count += 1;
        ready.oldest_seconds = ready.oldest_seconds.max(now.since(ready_at).as_secs_f64());
    }
    queues
}
