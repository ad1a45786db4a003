//! Retry events: what the program's listener for retries receives.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{AttemptId, ErrorClass, Event, RunId, Turn};

use super::attempt_end::FailedAttempt;
use crate::replay::panic_text;

/// An attempt that failed and is followed by another; the argument of
/// [`on_retry`](crate::WorkerBuilder::on_retry).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetryNotice {
    /// The run that requested the step.
    pub run: RunId,
    /// The step's name.
    pub step: String,
    /// The number of the failed attempt, from 1.
    pub attempt: u32,
    /// The id of the failed attempt, as from [`StepContext::attempt_id`](crate::StepContext::attempt_id). `None` if it
    /// is not known any more: another worker made the attempt, or the turn was computed again after a conflict.
    pub attempt_id: Option<AttemptId>,
    /// The error message of the attempt.
    pub message: String,
    /// The class of the error, if it is known.
    pub class: Option<ErrorClass>,
    /// The time until the next attempt.
    pub pause: Duration,
}

/// The program's listener for retries.
#[derive(Clone)]
pub(in crate::worker) struct OnRetry(Arc<dyn Fn(&RetryNotice) + Send + Sync>);

impl OnRetry {
    pub(in crate::worker) fn new(listener: impl Fn(&RetryNotice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    /// Calls the listener for each retry, and logs its panics.
    pub(in crate::worker) fn call(&self, retries: &[RetryNotice]) {
        for retry in retries {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.0)(retry))) {
                let (run, message) = (retry.run, panic_text(&*panic));
                tracing::error!(%run, step = retry.step, panic = message, "the listener of `on_retry` panicked");
            }
        }
    }
}

impl fmt::Debug for OnRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnRetry")
    }
}

impl RetryNotice {
    /// The retries that a turn records. `run` is the run that requested the steps; `failed` are the failed attempts
    /// that the turn was computed from.
    pub(in crate::worker) fn all_of(turn: &Turn, run: RunId, failed: &[FailedAttempt]) -> Vec<Self> {
        let id = |op, attempt| failed.iter().find(|failed| (failed.op, failed.attempt) == (op, attempt));
        let retry = |event: &Event| match event {
            Event::StepRetried { op, attempt, failure, retry_at, .. } => Some(Self {
                run,
                attempt_id: id(*op, *attempt).map(|failed| failed.id),
                step: failure.step.as_deref().unwrap_or_default().into(),
                attempt: *attempt,
                message: failure.message.clone(),
                class: failure.class(),
                pause: retry_at.since(turn.at),
            }),
            _ => None,
        };
        turn.events.iter().filter_map(retry).collect()
    }
}
