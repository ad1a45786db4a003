//! Exported histories: readable JSON, and its parser.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::event::{Event, EventError, RunStarted, TurnRecord};
use crate::id::{RunId, TurnId};
use crate::time::Timestamp;

/// The whole history of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The run.
    pub run: RunId,
    /// Its turns, in order.
    pub turns: Vec<TurnRecord>,
}

#[derive(Serialize, Deserialize)]
struct Exported {
    run: RunId,
    #[serde(default)]
    workflow: Option<String>,
    #[serde(default)]
    version: Option<u32>,
    turns: Vec<ExportedTurn>,
}

#[derive(Serialize, Deserialize)]
struct ExportedTurn {
    id: TurnId,
    /// The number of its first event, if turns before it are deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    at: Timestamp,
    build: String,
    // In their stored form, one per line: a JSON value would round large numbers in payloads.
    events: Vec<Box<RawValue>>,
}

impl History {
    /// The parameters of the run's start.
    pub fn started(&self) -> Option<&RunStarted> {
        match self.turns.first()?.events.first()? {
            Event::RunStarted(started) => Some(started),
            _ => None,
        }
    }

    /// The history as JSON: the run, its workflow and version, and its turns with one event per line.
    pub fn to_json(&self) -> String {
        let mut next = 0;
        let turn = |turn: &TurnRecord| ExportedTurn {
            id: turn.id,
            seq: (std::mem::replace(&mut next, turn.seq + turn.events.len() as u64) != turn.seq)
                .then_some(turn.seq),
            at: turn.at,
            build: turn.build.to_string(),
            events: turn.events.iter().filter_map(raw).collect(),
        };
        let exported = Exported {
            run: self.run,
            workflow: self.started().map(|started| started.workflow.to_string()),
            version: self.started().map(|started| started.version),
            turns: self.turns.iter().map(turn).collect(),
        };
        // It contains only types of this crate, which can all be serialized.
        serde_json::to_string_pretty(&exported).unwrap_or_default() + "\n"
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    ///
    /// [`EventError`] when the text is not an exported history, or contains a kind of event that this build does not
    /// know.
    pub fn from_json(text: &str) -> Result<Self, EventError> {
        let exported: Exported =
            serde_json::from_str(text).map_err(|error| EventError::Damaged(error.to_string()))?;
        let mut turns = Vec::with_capacity(exported.turns.len());
        let mut seq = 0;
        for ExportedTurn { id, seq: first, at, build, events } in exported.turns {
            seq = first.unwrap_or(seq);
            let texts: Vec<_> = events.iter().map(|event| event.get()).collect();
            let events = Event::read_all(&format!("[{}]", texts.join(",")))?;
            let next = seq + events.len() as u64;
            turns.push(TurnRecord { id, seq, at, build: build.into(), events });
            seq = next;
        }
        Ok(Self { run: exported.run, turns })
    }
}

fn raw(event: &Event) -> Option<Box<RawValue>> {
    let mut text = String::new();
    Event::write_all(std::slice::from_ref(event), &mut text);
    // Without the brackets of the array.
    RawValue::from_string(text[1..text.len() - 1].to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::event::OpNumber;
    use crate::message::Headers;
    use crate::payload::Payload;
    use crate::queue::default_queue;
    use crate::run::Tags;

    fn history() -> History {
        let started = RunStarted {
            workflow: "checkout".into(),
            version: 2,
            rules: 1,
            queue: default_queue(),
            priority: 0,
            key: None,
            input: Payload::json(&u128::MAX).unwrap(),
            headers: Headers::new(),
            tags: Tags::new(),
            parent: None,
            deadline: None,
            policy: None,
            requester: None,
            ending: None,
            forked: None,
        };
        let at = Timestamp::from_micros(1_767_225_600_000_001);
        let first =
            vec![Event::from(started), Event::TimerStarted { op: OpNumber(0), fire_at: Timestamp::NEVER }];
        let turn =
            |id, seq, events| TurnRecord { id: TurnId::from_bits(id), seq, at, build: "b".into(), events };
        History {
            run: RunId::from_bits(1),
            turns: vec![turn(2, 0, first), turn(3, 2, vec![Event::TimerFired { op: OpNumber(0) }])],
        }
    }

    #[test]
    fn an_exported_history_can_be_read_by_people_and_read_back() {
        let text = history().to_json();
        expect![[r#"
            {
              "run": "run_00000000000000000000000001",
              "workflow": "checkout",
              "version": 2,
              "turns": [
                {
                  "id": "turn_00000000000000000000000002",
                  "at": 1767225600000001,
                  "build": "b",
                  "events": [
                    {"kind":"run_started","workflow":"checkout","version":2,"format":1,"input":340282366920938463463374607431768211455},
                    {"kind":"timer_started","op":0,"fire_at":9223372036854775807}
                  ]
                },
                {
                  "id": "turn_00000000000000000000000003",
                  "at": 1767225600000001,
                  "build": "b",
                  "events": [
                    {"kind":"timer_fired","op":0}
                  ]
                }
              ]
            }
        "#]].assert_eq(&text);
        assert_eq!(History::from_json(&text), Ok(history()));
    }

    #[test]
    fn a_text_that_is_no_history_is_refused() {
        for text in ["", "[]", "{}", r#"{"run":"run_00000000000000000000000001"}"#] {
            assert!(matches!(History::from_json(text), Err(EventError::Damaged(_))), "{text}");
        }
        let later = history().to_json().replace("timer_fired", "timer_teased");
        assert_eq!(History::from_json(&later), Err(EventError::UnknownKind("timer_teased".into())));
    }
}
