//! Counts the situations that a history shows.

use std::collections::BTreeMap;

use outlast_core::{Event, OpNumber, Payload};
use serde_json::Value;

use super::check::Life;
use super::coverage::{Coverage, Situation};

/// Counts what the history of a run shows.
pub(super) fn count_situations(life: &Life, coverage: &mut Coverage) {
    coverage.saw(if life.rules() < 2 { Situation::Rules1 } else { Situation::Rules2 });
    if life.rules() < 2 {
        return count_rules_1(life, coverage);
    }
    // The steps that are open and are not queued, with whether they are shielded.
    let mut steps: BTreeMap<OpNumber, bool> = BTreeMap::new();
    for event in life.events() {
        match event {
            Event::StepStarted { op, input, queued: None, .. } => {
                steps.insert(*op, is_shielded(input));
            }
            Event::StepStarted { queued: Some(_), .. } => coverage.saw(Situation::QueuedStep),
            Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } | Event::StepDropped { op } => {
                steps.remove(op);
            }
            Event::CancelRequested { message, ends, maybe_attempted, .. } => {
                steps.retain(|op, _| !ends.contains(op));
                for is_shielded in steps.values() {
                    coverage.saw(match (is_shielded, message) {
                        (true, _) => Situation::ShieldedDuringCancel,
                        (false, Some(_)) => Situation::CancelDuringStep,
                        (false, None) => Situation::DeadlineDuringStep,
                    });
                }
                maybe_attempted.iter().for_each(|_| coverage.saw(Situation::MaybeAttempted));
            }
            _ => {}
        }
    }
}

/// Under rules 1 a payload that a hook cannot read is an error of the wait.
fn count_rules_1(life: &Life, coverage: &mut Coverage) {
    for event in life.events() {
        match event {
            Event::HookReceived { payload, .. } if is_object(payload) => {
                coverage.saw(Situation::UnreadableUnderRules1);
            }
            _ => {}
        }
    }
}

/// Whether no hook can read it.
fn is_object(payload: &Payload) -> bool {
    payload.decode::<Value>().is_ok_and(|value| value.is_object())
}

fn is_shielded(input: &Payload) -> bool {
    let input = input.decode::<Value>().unwrap_or_default();
    input.get("is_shielded").and_then(Value::as_bool).unwrap_or_default()
}
