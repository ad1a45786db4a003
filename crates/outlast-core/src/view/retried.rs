//! Operations of runs that were retried or forked.

use super::{AttemptView, HistoryReader, OperationStatus, OperationView};
use crate::event::{Event, TurnRecord};
use crate::forked::RunForked;
use crate::retried::{RenewedWait, RestartedRun, RunRetried};
use crate::time::Timestamp;

impl HistoryReader {
    /// Applies a retry: the reader has read the events before its cut point.
    pub(super) fn reopen(&mut self, history: &[TurnRecord], retried: &RunRetried, at: Timestamp) {
        let outcome = event_at(history, retried.from);
        self.renew_waits(&retried.renews, at);
        if let Some(reopened) = self.operations.get_mut(&retried.reopens) {
            reopened.renew_attempts(outcome, at);
        }
        self.restart(&retried.restarts, at);
    }

    /// Applies the end of the copied events: what is open begins again.
    pub(super) fn fork(&mut self, forked: &RunForked, at: Timestamp) {
        self.renew_waits(&forked.renews, at);
        let copied = self.operations.range_mut(..forked.next_op).map(|(_, operation)| operation);
        copied.filter(|operation| operation.is_open()).for_each(|open| open.renew_attempts(None, at));
        self.restart(&forked.restarts, at);
    }

    fn renew_waits(&mut self, renews: &[RenewedWait], at: Timestamp) {
        for renewed in renews {
            if let Some(wait) = self.operations.get_mut(&renewed.op) {
                (wait.until, wait.changed_at) = (Some(renewed.until), at);
            }
        }
    }

    fn restart(&mut self, restarts: &[RestartedRun], at: Timestamp) {
        for restarted in restarts {
            if let Some(operation) = self.operations.get_mut(&restarted.op) {
                operation.child = Some(restarted.run);
                operation.changed_at = at;
            }
        }
    }

    /// Adds the operations that only skipped events contain.
    pub(super) fn add_skipped(&mut self, history: &[TurnRecord]) {
        let mut all = Self::default();
        all.read_all(history, &[]);
        for (op, mut operation) in all.operations {
            operation.is_skipped = true;
            self.operations.entry(op).or_insert(operation);
        }
    }
}

impl OperationView {
    /// The step has all its attempts again. `outcome` is the event with which it had ended.
    fn renew_attempts(&mut self, outcome: Option<(&Event, Timestamp)>, at: Timestamp) {
        self.changed_at = at;
        if self.attempts.is_empty() {
            return;
        }
        if let Some((Event::StepFailed { failure, .. }, ended_at)) = outcome {
            self.failure = Some(failure.clone());
            self.status = OperationStatus::Failed;
            self.attempt_count = failure.attempts;
            self.end_attempt(ended_at);
        }
        self.attempts.retain(|attempt| attempt.ended_at.is_some());
        self.attempts.push(AttemptView::new(1, at));
        (self.status, self.failure, self.retry_at) = (OperationStatus::Open, None, None);
        self.attempt_count = 1;
    }
}

/// The event with a number, and the time of its turn.
fn event_at(history: &[TurnRecord], number: u64) -> Option<(&Event, Timestamp)> {
    let after = history.partition_point(|turn| turn.seq <= number);
    let turn = history[..after].last()?;
    let index = usize::try_from(number - turn.seq).ok()?;
    Some((turn.events.get(index)?, turn.at))
}
