//! Counts the situations that a history shows.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::{Event, OpNumber, Payload};
use serde_json::Value;

use super::check::FinalRun;
use super::coverage::{Coverage, Situation};

/// Counts the situations in the history of a run.
pub(super) fn count_situations(final_run: &FinalRun, coverage: &mut Coverage) {
    coverage.record(if final_run.rules() < 2 { Situation::Rules1 } else { Situation::Rules2 });
    if final_run.rules() < 2 {
        return count_rules_1(final_run, coverage);
    }
    // The open steps that are not queued, and whether they are shielded.
    let mut steps: BTreeMap<OpNumber, bool> = BTreeMap::new();
    let mut cancelled: BTreeSet<OpNumber> = BTreeSet::new();
    for event in final_run.events() {
        match event {
            Event::StepStarted { op, input, queued: None, .. } => {
                steps.insert(*op, is_shielded(input));
            }
            Event::RunContinued(continued) => {
                coverage.record(Situation::Continued);
                if !continued.kept.is_empty() {
                    coverage.record(Situation::KeptForNextGeneration);
                }
                if !continued.children.is_empty() {
                    coverage.record(Situation::ChildOfEarlierGeneration);
                }
            }
            Event::IterationEnded(ended) if ended.cut.is_some() => {
                coverage.record(Situation::SkippedIteration);
            }
            Event::StepStarted { queued: Some(_), .. } => coverage.record(Situation::QueuedStep),
            Event::OperationCancelled { op } if steps.contains_key(op) => {
                cancelled.insert(*op);
            }
            Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } | Event::StepDropped { op } => {
                steps.remove(op);
                let is_cancelled = cancelled.remove(op);
                end_of_cancelled(event)
                    .filter(|_| is_cancelled)
                    .into_iter()
                    .for_each(|end| coverage.record(end));
            }
            Event::CancelRequested { message, ends, maybe_attempted, .. } => {
                steps.retain(|op, _| !ends.contains(op));
                for is_shielded in steps.values() {
                    coverage.record(match (is_shielded, message) {
                        (true, _) => Situation::ShieldedDuringCancel,
                        (false, Some(_)) => Situation::CancelDuringStep,
                        (false, None) => Situation::DeadlineDuringStep,
                    });
                }
                maybe_attempted.iter().for_each(|_| coverage.record(Situation::MaybeAttempted));
            }
            _ => {}
        }
    }
}

/// How a step ended that its workflow had cancelled.
fn end_of_cancelled(event: &Event) -> Option<Situation> {
    match event {
        Event::StepDropped { .. } => None,
        Event::StepFailed { failure, .. } if failure.is_cancelled() => {
            Some(Situation::CancelledBetweenAttempts)
        }
        _ => Some(Situation::CancelledDuringAttempt),
    }
}

/// Under rules 1, a payload that a hook cannot decode is an error of the wait.
fn count_rules_1(final_run: &FinalRun, coverage: &mut Coverage) {
    for event in final_run.events() {
        match event {
            Event::HookReceived { payload, .. } if is_object(payload) => {
                coverage.record(Situation::UnreadableUnderRules1);
            }
            _ => {}
        }
    }
}

/// Whether it is an object, which no hook can decode.
fn is_object(payload: &Payload) -> bool {
    payload.decode::<Value>().is_ok_and(|value| value.is_object())
}

fn is_shielded(input: &Payload) -> bool {
    let input = input.decode::<Value>().unwrap_or_default();
    input.get("is_shielded").and_then(Value::as_bool).unwrap_or_default()
}
