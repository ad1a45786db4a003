//! The attempts of a step, as its history describes them.

use std::sync::Arc;

use super::{OperationStatus, OperationView};
use crate::failure::Failure;
use crate::time::Timestamp;

/// One attempt of a step.
///
/// A history records when an attempt was due and when its end was committed, not when the step's code began.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttemptView {
    /// Its number, from 1.
    pub number: u32,
    /// When it could begin: when the step was requested, or when the pause after the attempt before it ended.
    pub due_at: Timestamp,
    /// When its end was recorded; `None` while it is due later or in progress.
    pub ended_at: Option<Timestamp>,
    /// Why it failed; `None` if it succeeded, has not ended, or its outcome was discarded.
    pub failure: Option<Failure>,
    /// The build that recorded its outcome; `None` if there is none.
    pub build: Option<Arc<str>>,
}

impl AttemptView {
    pub(super) fn new(number: u32, due_at: Timestamp) -> Self {
        Self { number, due_at, ended_at: None, failure: None, build: None }
    }
}

impl OperationView {
    /// The first attempt of a step that the holder of the run attempts can begin. Attempts of a queued step are in the
    /// history of its own run.
    pub(super) fn begin_attempts(&mut self, is_queued: bool) {
        if !is_queued {
            self.attempt_count = 1;
            self.attempts = vec![AttemptView::new(1, self.started_at)];
        }
    }

    /// An attempt failed, and another one follows.
    pub(super) fn retry_attempt(
        &mut self,
        number: u32,
        failure: &Failure,
        retry_at: Timestamp,
        at: Timestamp,
    ) {
        self.attempt_count = number;
        self.failure = Some(failure.clone());
        self.retry_at = Some(retry_at);
        self.changed_at = at;
        if let Some(failed) = self.attempts.last_mut() {
            // The number in the event counts.
            failed.number = number;
            failed.ended_at = Some(at);
            failed.failure = Some(failure.clone());
            self.attempts.push(AttemptView::new(number + 1, retry_at));
        }
    }

    /// Ends the last attempt together with the operation. An attempt that never began is removed.
    pub(super) fn end_attempt(&mut self, at: Timestamp) {
        let Some(last) = self.attempts.last_mut().filter(|last| last.ended_at.is_none()) else { return };
        if self.status == OperationStatus::Dropped && last.due_at <= at {
            // It was in progress, and its outcome is discarded.
            self.attempt_count = self.attempt_count.max(last.number);
        }
        if self.attempt_count < last.number {
            self.attempts.pop();
            return;
        }
        last.ended_at = Some(at);
        if matches!(self.status, OperationStatus::Failed | OperationStatus::Cancelled) {
            last.failure.clone_from(&self.failure);
        }
    }

    /// Sets the build that recorded the outcome of the attempt that has just ended.
    pub(super) fn set_attempt_build(&mut self, build: &Arc<str>) {
        let ended = self.attempts.iter_mut().rfind(|attempt| attempt.ended_at.is_some());
        if let Some(ended) = ended.filter(|ended| ended.build.is_none()) {
            ended.build = Some(build.clone());
        }
    }
}
