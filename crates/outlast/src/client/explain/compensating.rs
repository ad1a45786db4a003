//! How far the compensations of a run are, as part of an explanation.

use outlast_core::{CompensationState, Compensations, Event, Status, TurnRecord};
use serde::Serialize;

/// The compensations of a run that is about to end.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Compensating {
    /// How the run ends when they are over.
    pub ends_as: Status,
    /// Why it ends.
    pub reason: String,
    /// The number of compensations that have completed.
    pub completed: usize,
    /// The steps of those that failed for good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// The step of the one that is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
    /// The steps of those that have not begun, in the order in which they run.
    pub left: Vec<String>,
}

impl Compensating {
    /// The compensations according to a history; `None` if the run does not compensate.
    pub(super) fn of(history: &[TurnRecord]) -> Option<Self> {
        let mut events = history.iter().rev().flat_map(|turn| turn.events.iter().rev());
        let (ends_as, reason) = events.find_map(|event| match event {
            Event::RunCompensating { ends_as, failure, .. } => Some((*ends_as, failure.message.clone())),
            _ => None,
        })?;
        let compensations = Compensations::of(history);
        let mut this =
            Self { ends_as, reason, completed: 0, failed: Vec::new(), running: None, left: Vec::new() };
        for entry in compensations.iter().rev() {
            let step = entry.step.to_string();
            match &entry.state {
                CompensationState::Completed => this.completed += 1,
                CompensationState::Failed(_) => this.failed.push(step),
                CompensationState::Started(_) => this.running = Some(step),
                CompensationState::Registered => this.left.push(step),
                _ => {}
            }
        }
        Some(this)
    }

    /// The state as a sentence.
    pub(super) fn sentence(&self) -> String {
        let Self { ends_as, reason, completed, failed, running, left } = self;
        let mut parts = vec![format!("{completed} done")];
        if !failed.is_empty() {
            parts.push(format!("{} failed for good (`{}`)", failed.len(), failed.join("`, `")));
        }
        match (running, left.first()) {
            (Some(running), _) => parts.push(format!("`{running}` is running")),
            (None, Some(next)) => {
                parts.push(format!("`{next}` is next, when everything that the run began is over"))
            }
            (None, None) => {}
        }
        if !left.is_empty() {
            parts.push(format!("{} left", left.len()));
        }
        format!(" It will end as {ends_as} ({reason}) after its compensations: {}.", parts.join(", "))
    }
}
