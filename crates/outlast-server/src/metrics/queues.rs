//! How many runs are ready in each queue, and for how long.

use std::collections::BTreeMap;

use outlast::Timestamp;
use outlast::core::limits::METRIC_LABEL_VALUES_MAX;
use outlast_api::QueueJson;

use super::text::MetricsText;

/// The ready runs of one queue, or of all others together.
#[derive(Clone, Debug, Default, PartialEq)]
struct ReadyRuns {
    count: u64,
    oldest_seconds: f64,
}

/// Writes the gauges of queues.
pub(super) fn write(text: &mut MetricsText, queues: &[QueueJson], now: Timestamp) {
    let queues = by_label(queues, now);
    text.family("outlast_queue_ready_runs", "gauge", "Runs that are ready to be claimed.");
    for (queue, ready) in &queues {
        text.sample("outlast_queue_ready_runs", &[("queue", queue)], ready.count as f64);
    }
    let help = "How long the oldest of them has been ready; 0 if there is none.";
    text.family("outlast_queue_oldest_ready_seconds", "gauge", help);
    for (queue, ready) in &queues {
        text.sample("outlast_queue_oldest_ready_seconds", &[("queue", queue)], ready.oldest_seconds);
    }
}

/// The queues by label; the last ones share the label `other`.
fn by_label(queues: &[QueueJson], now: Timestamp) -> BTreeMap<&str, ReadyRuns> {
    let mut by_label: BTreeMap<&str, ReadyRuns> = BTreeMap::new();
    for queue in queues {
        let is_full = by_label.len() >= METRIC_LABEL_VALUES_MAX;
        let ready = by_label.entry(if is_full { "other" } else { &queue.name }).or_default();
        ready.count += queue.ready;
        let age = queue.oldest_ready_at.map(|oldest| now.since(oldest.0).as_secs_f64());
        ready.oldest_seconds = ready.oldest_seconds.max(age.unwrap_or_default());
    }
    by_label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_beyond_the_limit_share_a_label() {
        let queue = |number: usize| QueueJson {
            name: format!("q{number:04}"),
            ready: 1,
            oldest_ready_at: Some(Timestamp::from_micros(number as i64 * 1_000_000).into()),
            stuck: 0,
            running: 0,
            workers: 0,
        };
        let queues: Vec<_> = (0..METRIC_LABEL_VALUES_MAX + 3).map(queue).collect();
        let labels = by_label(&queues, Timestamp::from_micros(1_000_000_000));
        assert_eq!(labels.len(), METRIC_LABEL_VALUES_MAX + 1);
        assert_eq!(labels["other"], ReadyRuns { count: 3, oldest_seconds: 800.0 });
        assert_eq!(labels["q0000"], ReadyRuns { count: 1, oldest_seconds: 1_000.0 });
    }
}
