//! Histories that were frozen when format 3 was: with compensations, sagas, generations, loops, tokens, replies, streams,
//! strategies, pauses, retries and forks. Later builds replay them in the same way.
//!
//! `golden/format3` has histories of the simulation, each with the results of replaying it and its prefixes. **These files
//! are never written again.** [`freeze`] shows how they were generated.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod exchange;
mod feature;
mod program;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use outlast::RunId;
use outlast::test_support::frozen::FrozenCode;
use outlast_conformance::simulation::{self, CONTROLLED_SEEDS, ORCHESTRATED_SEEDS};
use outlast_core::{Event, History, Timestamp, TurnId, TurnRecord};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use self::feature::{cascading, finished, retried, stream_work, undo_plain, undo_work};
use self::program::{once, play, rare, time_limited, work};

/// The files, and the first seed of each.
const FILES: [(&str, u64); 2] = [("orchestrated", ORCHESTRATED_SEEDS), ("controlled", CONTROLLED_SEEDS)];

/// The number of histories in each file.
const HISTORIES: usize = 120;

/// The maximum size of a line: larger histories cover nothing more.
const BYTES_MAX: usize = 12_000;

/// The maximum number of histories per seed: the more seeds, the more rare events.
const PER_SEED_MAX: usize = 1;

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/format3").join(file).with_extension("jsonl")
}

fn code() -> FrozenCode {
    let steps = (work, once, time_limited, undo_work, undo_plain, stream_work, finished);
    FrozenCode::new(((play, rare, retried, cascading), steps)).unwrap()
}

/// A history as it is in a golden file: one JSON object per line.
#[derive(Debug, Serialize, Deserialize)]
struct Frozen {
    /// Where it comes from.
    from: String,
    run: RunId,
    /// The id of each turn, its time, and its events as they are stored.
    turns: Vec<(TurnId, i64, Box<RawValue>)>,
    /// The result of a replay of the whole history, line by line: operations, waits, what is due.
    state: Vec<String>,
    /// The digest of the result for each part of the history that ends with a turn, the shortest first.
    prefixes: Vec<String>,
}

impl Frozen {
    /// Computes the results of this build.
    fn of(code: &FrozenCode, from: String, History { run, turns }: &History) -> Self {
        let stored = |turn: &TurnRecord| {
            let mut text = String::new();
            Event::write_all(&turn.events, &mut text);
            (turn.id, turn.at.as_micros(), RawValue::from_string(text).unwrap())
        };
        let state = |end: usize| code.state_after(*run, &turns[..end]);
        Self {
            from,
            run: *run,
            turns: turns.iter().map(stored).collect(),
            state: state(turns.len()).lines().map(str::to_owned).collect(),
            prefixes: (1..turns.len()).map(|end| digest(&state(end))).collect(),
        }
    }

    fn history(&self) -> History {
        let (mut turns, mut seq) = (Vec::new(), 0);
        for (id, at, events) in &self.turns {
            let events =
                Event::read_all(events.get()).unwrap_or_else(|error| panic!("{}: {error}", self.from));
            let (build, next) = ("frozen".into(), seq + events.len() as u64);
            turns.push(TurnRecord { id: *id, seq, at: Timestamp::from_micros(*at), build, events });
            seq = next;
        }
        History { run: self.run, turns }
    }

    /// How this build differs from the one that froze the history; `None` if it does not.
    fn difference(&self, code: &FrozenCode) -> Option<String> {
        let history = self.history();
        let now = Self::of(code, self.from.clone(), &history);
        let events = self.turns.iter().zip(&now.turns).position(|(old, new)| old.2.get() != new.2.get());
        let what = if let Some(turn) = events {
            format!("turn {turn} is written in another way:\n{}\n{}", self.turns[turn].2, now.turns[turn].2)
        } else if self.state != now.state {
            format!("its state is another:\nfrozen\n{}\nnow\n{}", self.state.join("\n"), now.state.join("\n"))
        } else {
            let at = self.prefixes.iter().zip(&now.prefixes).position(|(old, new)| old != new)?;
            let state = code.state_after(self.run, &history.turns[..=at]);
            format!("the state after {} turns is now another:\n{state}", at + 1)
        };
        Some(format!("history `{}`, run {}: {what}", self.from, self.run))
    }
}

/// A digest that no release of Rust changes: FNV-1a.
fn digest(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

fn read(file: &str) -> Vec<Frozen> {
    let path = path(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn compare(file: &str) {
    let (code, histories) = (code(), read(file));
    assert_eq!(histories.len(), HISTORIES);
    let differences: Vec<_> = histories.iter().filter_map(|frozen| frozen.difference(&code)).collect();
    let (found, shown) = (differences.len(), differences.into_iter().take(3).collect::<Vec<_>>());
    assert!(found == 0, "{found} histories in {file} differ; the first:\n\n{}", shown.join("\n\n"));
}

#[test]
fn histories_of_orchestrated_programs_replay_as_before() {
    compare("orchestrated");
}

#[test]
fn histories_of_controlled_programs_replay_as_before() {
    compare("controlled");
}

#[test]
fn the_frozen_histories_contain_every_kind_of_event_of_formats_2_and_3() {
    let mut kinds = BTreeMap::<String, usize>::new();
    for frozen in FILES.iter().flat_map(|(file, _)| read(file)) {
        for event in frozen.history().turns.iter().flat_map(|turn| &turn.events) {
            *kinds.entry(event.kind().to_owned()).or_default() += 1;
        }
    }
    let wanted = [
        ("run_continued", 20),
        ("run_retrying", 5),
        ("run_compensating", 20),
        ("run_retried", 5),
        ("run_forked", 5),
        ("compensation_registered", 50),
        ("compensation_started", 50),
        ("compensations_kept", 10),
        ("loop_started", 10),
        ("iteration_ended", 20),
        ("hook_received", 50),
        ("hook_rejected", 5),
        ("operation_cancelled", 10),
        ("child_completed", 10),
        ("step_retried", 20),
        ("timer_fired", 20),
        ("value_recorded", 10),
        ("version_chosen", 5),
        ("cancel_requested", 10),
    ];
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or_default();
    let missing: Vec<_> = wanted.iter().filter(|(kind, least)| count(kind) < *least).collect();
    assert!(missing.is_empty(), "too few of {missing:?} in {kinds:#?}");
}

/// Tests the comparison itself.
#[test]
fn a_history_that_replays_differently_is_reported() {
    let code = code();
    let mut frozen = read("orchestrated").into_iter().find(|frozen| frozen.state.len() > 1).unwrap();
    assert_eq!(frozen.difference(&code), None);
    frozen.state[1].push('9');
    let difference = frozen.difference(&code).unwrap();
    assert!(difference.contains("history `simulation 3") && difference.contains("its state is another"));
}

#[test]
#[ignore = "the histories are frozen: this wrote them once"]
fn freeze() {
    for (file, first_seed) in FILES {
        let path = path(file);
        assert!(!path.exists(), "{} is there, and is not written again", path.display());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, choose(first_seed).join("")).unwrap();
    }
}

/// Takes some histories of each seed: those that cover most.
fn choose(first_seed: u64) -> Vec<String> {
    let (code, mut chosen) = (code(), Vec::new());
    for seed in first_seed.. {
        // A seed on which a check of the simulation fails is left out.
        let Ok(mut histories) = std::panic::catch_unwind(|| simulation::histories(seed)) else { continue };
        histories.sort_by_key(|history| std::cmp::Reverse(coverage(history)));
        let from = format!("simulation {seed}");
        let lines = histories.iter().filter_map(|history| {
            // A history that this interpreter does not know, or that an older build has continued, proves nothing.
            let frozen = (history.turns.len() >= 2).then(|| Frozen::of(&code, from.clone(), history))?;
            let is_replayed = !frozen.state.iter().any(|line| line.starts_with("stuck"));
            let line = serde_json::to_string(&frozen).unwrap() + "\n";
            (is_replayed && line.len() <= BYTES_MAX && frozen.difference(&code).is_none()).then_some(line)
        });
        chosen.extend(lines.take(PER_SEED_MAX));
        if chosen.len() >= HISTORIES {
            chosen.truncate(HISTORIES);
            break;
        }
    }
    chosen
}

/// Kinds of events that few histories have.
const RARE: [&str; 5] = ["run_retried", "run_retrying", "reply_sent", "token_refused", "timer_woken"];

/// How much a history covers: the number of its kinds of events, and first of all of rare ones.
fn coverage(history: &History) -> (usize, usize) {
    let events = history.turns.iter().flat_map(|turn| &turn.events);
    let kinds: BTreeSet<_> = events.map(Event::kind).collect();
    (RARE.iter().filter(|kind| kinds.contains(**kind)).count(), kinds.len())
}
