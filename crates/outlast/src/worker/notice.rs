//! Notices: what a worker tells the program about its retries.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{AttemptId, ErrorClass, Event, RunId, Turn};

use super::attempts::FailedAttempt;
use crate::replay::panic_text;

/// An attempt that failed and will be followed by another, as
/// [`on_retry`](crate::WorkerBuilder::on_retry) is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetryNotice {
    /// The run that asked for the step.
    pub run: RunId,
    /// The step's name.
    pub step: String,
    /// The number of the failed attempt, from 1.
    pub attempt: u32,
    /// The id of the failed attempt, as its step was told. `None` where that is not known any more: when another
    /// worker made the attempt, or the world did not take the turn at first.
    pub attempt_id: Option<AttemptId>,
    /// How it ended, for a person.
    pub message: String,
    /// Where the fault lies, when that is known.
    pub class: Option<ErrorClass>,
    /// How long until the next attempt.
    pub pause: Duration,
}

/// Whom to tell about retries.
#[derive(Clone)]
pub(super) struct OnRetry(Arc<dyn Fn(&RetryNotice) + Send + Sync>);

impl OnRetry {
    pub(super) fn new(told: impl Fn(&RetryNotice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }

    /// Tells, whatever the listener does.
    pub(super) fn tell(&self, notices: &[RetryNotice]) {
        for notice in notices {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.0)(notice))) {
                let (run, message) = (notice.run, panic_text(&*panic));
                tracing::error!(%run, step = notice.step, panic = message, "`on_retry` panicked");
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
    /// What there is to tell once a turn is committed, whose steps this run asked for. `failed` are the attempts
    /// that it was computed from.
    pub(super) fn all_of(turn: &Turn, run: RunId, failed: &[FailedAttempt]) -> Vec<Self> {
        let id = |op, attempt| failed.iter().find(|failed| (failed.op, failed.attempt) == (op, attempt));
        let notice = |event: &Event| match event {
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
        turn.events.iter().filter_map(notice).collect()
    }
}
