//! What is logged and reported of a turn, after it was committed: a turn that the world refuses is computed again.

use outlast_core::{Event, Judgement, MessageId, OpNumber, RunId, Turn};

use crate::worker::attempts::attempt_end::FailedAttempt;
use crate::worker::attempts::retry_events::RetryNotice;
use crate::worker::settings::Settings;

/// The retries, failures and rejected payloads of one turn.
pub(super) struct TurnLog {
    run: RunId,
    retries: Vec<RetryNotice>,
    /// The events about failures and rejected payloads.
    events: Vec<Event>,
}

impl TurnLog {
    /// Collects what is to be logged of a turn; `None` if there is nothing, as for most turns. `requested_by` is the
    /// operation that requested the run if it is a queued step; `failed` are the failed attempts that the turn was
    /// computed from.
    pub(super) fn of(
        turn: &Turn,
        requested_by: Option<(RunId, OpNumber)>,
        failed: &[FailedAttempt],
    ) -> Option<Box<Self>> {
        let retries = RetryNotice::all_of(turn, requested_by.map_or(turn.run, |(run, _)| run), failed);
        // The failure of a queued step is logged by the run that requested it.
        let is_logged = |event: &&Event| match event {
            Event::StepFailed { failure, .. } => failure.is_exhausted && requested_by.is_none(),
            Event::RunFailed { .. } => requested_by.is_none(),
            event => rejection(event).is_some(),
        };
        let events: Vec<_> = turn.events.iter().filter(is_logged).cloned().collect();
        let is_empty = retries.is_empty() && events.is_empty();
        (!is_empty).then(|| Box::new(Self { run: turn.run, retries, events }))
    }

    /// Writes the log lines, and calls the listener of `on_retry`.
    pub(super) fn write(&self, settings: &Settings) {
        for retry in &self.retries {
            settings.run_logs.retried(retry);
        }
        if let Some(on_retry) = &settings.on_retry {
            on_retry.call(&self.retries);
        }
        for event in &self.events {
            match event {
                Event::StepFailed { failure, .. } => settings.run_logs.exhausted(self.run, failure),
                Event::RunFailed { failure } => settings.run_logs.failed(self.run, failure),
                event => self.log_rejection(event),
            }
        }
    }

    fn log_rejection(&self, event: &Event) {
        if let Some((hook, message_id, reason)) = rejection(event) {
            let run = self.run;
            tracing::warn!(%run, hook, %message_id, reason, "rejected a payload that no open hook can decode");
        }
    }
}

/// The hook, the message and the reason of a payload that was rejected.
fn rejection(event: &Event) -> Option<(&str, MessageId, &str)> {
    match event {
        Event::HookReceived { name, message, judgement: Judgement::Rejected(reason), .. }
        | Event::HookRejected { name, message, reason } => Some((name, *message, reason)),
        _ => None,
    }
}
