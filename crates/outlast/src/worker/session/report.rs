//! The report: a worker's description of itself, sent with every beat.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::limits::REPORT_STEPS_MAX;
use outlast_core::{Report, WorkerStatus};

use super::Session;

impl Session {
    /// Returns the current report.
    pub(in crate::worker) fn report(&self) -> Report {
        let meter = &self.settings.meter;
        let is_stopping = self.stopping.is_cancelled();
        let running: Vec<u64> = meter.running_attempts().collect();
        let mut report = Report::default();
        report.status = if is_stopping { WorkerStatus::Draining } else { WorkerStatus::Working };
        report.live = self.live_count() as u64;
        report.attempts = running.iter().sum();
        report.steps = busiest(&self.settings.step_names, running.get(1..).unwrap_or_default());
        report.waiting_futures = self.cache.lock().len() as u64;
        report.turns = meter.turns.get();
        report.replays = meter.replays.get();
        report.completed = meter.runs_completed.get();
        report.failed = meter.runs_failed.get();
        report.uncommitted = self.committer.uncommitted.report();
        report
    }
}

/// The steps with the most running attempts.
fn busiest(names: &[Arc<str>], counts: &[u64]) -> BTreeMap<String, u64> {
    let mut busy: Vec<_> = names.iter().zip(counts).filter(|(_, count)| **count > 0).collect();
    busy.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
    busy.into_iter().take(REPORT_STEPS_MAX).map(|(name, count)| (name.to_string(), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_contains_only_the_busiest_steps() {
        let names: Vec<Arc<str>> = (0..100).map(|step| format!("step {step:02}").into()).collect();
        let counts: Vec<u64> = (0..100).collect();
        let steps = busiest(&names, &counts);
        assert_eq!(steps.len(), REPORT_STEPS_MAX);
        assert_eq!((steps.get("step 99"), steps.get("step 00")), (Some(&99), None));
    }
}
