//! Histories that were frozen before the semantics of new runs changed: they still replay in the same way.
//!
//! `golden/rules1` has 1,000 histories of runs with rules 1 from an earlier engine, with the results of replaying them and
//! their prefixes. A run with rules 1 never changes its behaviour. **These files are never written again**:
//! `generate.rs` shows how they were generated.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod generate;
mod program;
mod record;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use outlast::test_support::frozen::FrozenCode;
use outlast_core::{Event, FailureKind};

use self::program::{hasty, once, play, rare, work};
use self::record::Frozen;

/// The number of histories.
const HISTORIES: usize = 1_000;

/// The golden files: histories of the simulation, and of programs that also read values of another type.
const FILES: [&str; 4] = ["simulation-1", "simulation-2", "values-1", "values-2"];

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/rules1").join(file).with_extension("jsonl")
}

fn read(file: &str) -> Vec<Frozen> {
    let path = path(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn code() -> FrozenCode {
    FrozenCode::new((play, rare, work, once, hasty)).unwrap()
}

/// Compares all histories of a file, and shows the first that differ.
#[track_caller]
fn compare(file: &str) {
    let (code, histories) = (code(), read(file));
    let differences: Vec<_> = histories.iter().filter_map(|frozen| frozen.difference(&code)).collect();
    let (found, all) = (differences.len(), histories.len());
    let shown: Vec<_> = differences.into_iter().take(3).collect();
    assert!(found == 0, "{found} of {all} histories in {file} differ; the first:\n\n{}", shown.join("\n\n"));
}

#[test]
fn the_first_histories_of_the_simulation_replay_as_before() {
    compare("simulation-1");
}

#[test]
fn the_other_histories_of_the_simulation_replay_as_before() {
    compare("simulation-2");
}

#[test]
fn the_first_histories_with_values_of_another_type_replay_as_before() {
    compare("values-1");
}

#[test]
fn the_other_histories_with_values_of_another_type_replay_as_before() {
    compare("values-2");
}

/// The number of occurrences in the frozen histories: kinds of events, and cases that the semantics depend on.
fn occurrences() -> BTreeMap<String, usize> {
    let mut occurrences = BTreeMap::new();
    for frozen in FILES.iter().flat_map(|file| read(file)) {
        let mut has = |what: &str| *occurrences.entry(what.to_owned()).or_default() += 1;
        has("history");
        for event in frozen.history().turns.iter().flat_map(|turn| &turn.events) {
            has(event.kind());
            match event {
                Event::RunStarted(started) => {
                    started.deadline.iter().for_each(|_| has("a deadline"));
                    started.parent.iter().for_each(|_| has("a child's or a step's own run"));
                    started.tags.keys().take(1).for_each(|_| has("a tag at the start"));
                }
                Event::StepStarted { queued: Some(_), .. } => has("a queued step"),
                Event::StepRetried { details: Some(_), .. } => has("a heartbeat's details"),
                Event::CancelRequested { message: None, .. } => has("a deadline that passed"),
                Event::CancelRequested { pauses, .. } if !pauses.is_empty() => has("a cancel in a pause"),
                Event::HookReceived { payload, .. } if payload.decode::<u64>().is_err() => {
                    has("a payload of another type");
                }
                Event::RunFailed { failure } if failure.kind == FailureKind::Invalid => {
                    has("a run that failed by a value of another type");
                }
                _ => {}
            }
        }
    }
    occurrences
}

#[test]
fn the_frozen_histories_cover_all_cases_that_semantics_depend_on() {
    let occurrences = occurrences();
    let count = |what: &str| occurrences.get(what).copied().unwrap_or_default();
    assert_eq!(count("history"), HISTORIES, "{occurrences:#?}");
    let wanted = [
        ("run_completed", 300),
        ("run_failed", 100),
        ("run_cancelled", 50),
        ("run_terminated", 25),
        ("step_retried", 100),
        ("step_failed", 100),
        ("step_dropped", 50),
        ("timer_fired", 100),
        ("timer_woken", 25),
        ("timer_cancelled", 50),
        ("hook_received", 200),
        ("hook_closed", 50),
        ("child_started", 200),
        ("child_completed", 50),
        ("child_failed", 50),
        ("child_cancelled", 20),
        ("child_detached", 20),
        ("child_dropped", 20),
        ("tags_set", 25),
        ("value_recorded", 25),
        ("version_chosen", 50),
        ("cancel_requested", 100),
        ("a deadline", 100),
        ("a deadline that passed", 25),
        ("a cancel in a pause", 5),
        ("a child's or a step's own run", 200),
        ("a tag at the start", 100),
        ("a queued step", 100),
        ("a heartbeat's details", 20),
        ("a payload of another type", 100),
        ("a run that failed by a value of another type", 50),
    ];
    let missing: Vec<_> = wanted.iter().filter(|(what, least)| count(what) < *least).collect();
    assert!(missing.is_empty(), "too few of {missing:?} in {occurrences:#?}");
}

/// Tests the comparison itself.
#[test]
fn a_history_that_replays_differently_is_reported_with_its_first_difference() {
    let code = code();
    let line = std::fs::read_to_string(path("values-1")).unwrap().lines().next().unwrap().to_owned();
    let frozen: Frozen = serde_json::from_str(&line.replacen("\"next ", "\"next 9", 1)).unwrap();
    let difference = frozen.difference(&code).unwrap();
    assert!(difference.contains("history `values "), "{difference}");
    assert!(difference.contains("\n  frozen next 9"), "{difference}");
    assert!(difference.contains("\n  now    next "), "{difference}");
}
