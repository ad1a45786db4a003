//! The next try of a run that failed, as part of an explanation.

use outlast_core::{Event, FailureStrategy, RunStarted, Timestamp, TurnRecord};
use serde::Serialize;

/// The next try of a run whose workflow failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NextTry {
    /// Its number, from 2.
    pub attempt: u32,
    /// The highest number that a try can have, if the start of the run has recorded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_max: Option<u32>,
    /// It does not begin before this time, nor before the children and compensations of the last try are over.
    pub not_before: Timestamp,
    /// Why the last try failed.
    pub reason: String,
}

impl NextTry {
    /// The next try according to a history; `None` if the run is not about to begin again.
    pub(super) fn of(history: &[TurnRecord]) -> Option<Self> {
        let events = || history.iter().rev().flat_map(|turn| turn.events.iter().rev());
        let since_begin = events().take_while(|event| !matches!(event, Event::RunContinued(_)));
        let mut is_cancelled = false;
        for event in since_begin {
            match event {
                Event::CancelRequested { .. } => is_cancelled = true,
                Event::RunRetrying(retrying) if !is_cancelled => {
                    return Some(Self {
                        attempt: retrying.attempt + 1,
                        attempts_max: events().find_map(begin).and_then(attempts_max),
                        not_before: retrying.retry_at,
                        reason: retrying.failure.message.clone(),
                    });
                }
                _ => {}
            }
        }
        None
    }

    /// The state as a sentence.
    pub(super) fn sentence(&self) -> String {
        let Self { attempt, attempts_max, not_before, reason } = self;
        let of = attempts_max.map(|max| format!(" of {max}")).unwrap_or_default();
        format!(
            " Its last try failed ({reason}); try {attempt}{of} begins at {not_before}, when everything that the last \
             one began is over."
        )
    }
}

fn begin(event: &Event) -> Option<&RunStarted> {
    match event {
        Event::RunContinued(continued) => Some(&continued.started),
        Event::RunStarted(started) => Some(started),
        _ => None,
    }
}

fn attempts_max(started: &RunStarted) -> Option<u32> {
    match started.ending.as_ref()?.on_failure? {
        FailureStrategy::Retry(policy) => Some(policy.attempts_max()),
        _ => None,
    }
}
