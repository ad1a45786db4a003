//! A frozen history as it stands in a golden file: one JSON object per line.
//!
//! | field | what it is |
//! |---|---|
//! | `from` | where it comes from |
//! | `run` | the run's id, on which its random numbers depend |
//! | `turns` | the history: for each turn its time and its events as they are stored; the first event holds the program |
//! | `state` | what a replay of the whole history comes to, line by line: operations, waits, what is due |
//! | `before` | the same without the last turn |
//! | `prefixes` | for each part of the history that ends with a turn, the shortest first: the digest of its state |
//! | `turned` | for each turn: the digest of what the run does when it is told once more what it was told then, as a worker tells it: the events of the turn, which are those recorded, and what it asks of other runs |

use outlast::RunId;
use outlast::test_support::frozen::{FrozenCode, lines_of};
use outlast_core::{Event, History, Timestamp, TurnId, TurnRecord};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A history, and the results of its replay when it was frozen.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Frozen {
    pub(crate) from: String,
    pub(crate) run: RunId,
    turns: Vec<(i64, Box<RawValue>)>,
    state: Vec<String>,
    before: Vec<String>,
    prefixes: Vec<String>,
    turned: Vec<String>,
}

impl Frozen {
    /// Computes the results of this build.
    pub(crate) fn of(code: &FrozenCode, from: String, history: &History) -> Self {
        let History { run, turns } = history;
        let (run, count) = (*run, turns.len());
        let state = |turns: &[TurnRecord]| code.state_after(run, turns);
        let lines = |text: String| text.lines().map(str::to_owned).collect();
        let stored = |turn: &TurnRecord| {
            let mut text = String::new();
            Event::write_all(&turn.events, &mut text);
            (turn.at.as_micros(), RawValue::from_string(text).expect("stored events are JSON"))
        };
        let turned = |at: usize| {
            let (events, asked) = code.turn_after(run, &turns[..at], &turns[at]);
            digest(&format!("{events}{asked}"))
        };
        Self {
            from,
            run,
            turns: turns.iter().map(stored).collect(),
            state: lines(state(turns)),
            before: lines(state(&turns[..count - 1])),
            prefixes: (1..count).map(|end| digest(&state(&turns[..end]))).collect(),
            turned: (0..count).map(turned).collect(),
        }
    }

    /// The history. Ids and builds of turns are not kept: no run can see them.
    pub(crate) fn history(&self) -> History {
        let mut turns = Vec::new();
        let mut seq = 0;
        for (index, (at, events)) in self.turns.iter().enumerate() {
            let events =
                Event::read_all(events.get()).unwrap_or_else(|error| panic!("{}: {error}", self.from));
            let (id, at) = (TurnId::from_bits(index as u128), Timestamp::from_micros(*at));
            let next = seq + events.len() as u64;
            turns.push(TurnRecord { id, seq, at, build: "frozen".into(), events });
            seq = next;
        }
        History { run: self.run, turns }
    }

    /// How this build differs from the one that froze the history; `None` when it does not.
    pub(crate) fn difference(&self, code: &FrozenCode) -> Option<String> {
        let history = self.history();
        let now = Self::of(code, self.from.clone(), &history);
        let found = self.first_difference(&now, code, &history)?;
        Some(format!("history `{}`, run {}:\n{found}", self.from, self.run))
    }

    fn first_difference(&self, now: &Self, code: &FrozenCode, history: &History) -> Option<String> {
        let turns = &history.turns;
        for (index, (old, new)) in self.turns.iter().zip(&now.turns).enumerate() {
            if old.1.get() != new.1.get() {
                return Some(format!(
                    "turn {index} is written in another way:\n  frozen {}\n  now    {}",
                    old.1, new.1
                ));
            }
        }
        if let Some(line) = first_line(&self.before, &now.before) {
            return Some(format!("the state before its last turn differs first in:\n{line}"));
        }
        if let Some(line) = first_line(&self.state, &now.state) {
            return Some(format!("the state after all {} turns differs first in:\n{line}", turns.len()));
        }
        if let Some(at) = first_other(&self.prefixes, &now.prefixes) {
            let state = code.state_after(self.run, &turns[..=at]);
            return Some(format!("the state after {} turns is now another:\n{state}", at + 1));
        }
        let at = first_other(&self.turned, &now.turned)?;
        let (events, asked) = code.turn_after(self.run, &turns[..at], &turns[at]);
        let recorded = lines_of(&turns[at].events);
        Some(format!(
            "turn {at} is now another when it is computed again:\nrecorded:\n{recorded}now:\n{events}{asked}"
        ))
    }
}

fn first_line(old: &[String], new: &[String]) -> Option<String> {
    let at = first_other(old, new)?;
    let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(nothing)".into());
    Some(format!("  frozen {}\n  now    {}", line(old), line(new)))
}

fn first_other(old: &[String], new: &[String]) -> Option<usize> {
    (0..old.len().max(new.len())).find(|at| old.get(*at) != new.get(*at))
}

/// A digest that no release of Rust changes: FNV-1a.
fn digest(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}
