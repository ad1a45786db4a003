//! Replay, tested with histories as text.
//!
//! A history is one event per line, `<operation> <kind> <rest>`, without `run_started`. The deliveries at its end, after
//! the last decision, are delivered live, and the case expects the requests that follow. Everything before them is
//! replayed, and the whole history is replayed once more at the end.

mod cancel;
mod cancel_operation;
mod children;
mod clock;
mod divergence;
mod generations;
mod history;
mod hooks;
mod limits;
mod parallel;
mod patches;
mod programs;
mod races;
mod report;
mod rules_1;
mod shield;
mod steps;
mod stuck;
mod values;

use std::sync::Arc;

use expect_test::Expect;
use outlast_core::event::RULES;
use outlast_core::{
    Codec, Event, MessageId, OpNumber, Payload, PlainJson, RunId, RunStarted, Stuck, Timestamp, TurnId,
    TurnRecord, Wait,
};
use serde_json::Value;

use super::{Delivery, Machine};
use crate::authoring::register::WorkflowMark;
use crate::authoring::registry::{Registered, Registry};
use crate::{Register, WorkflowDefinition, WorkflowFn};

/// When every run of the tests begins: 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);
const RUN: RunId = RunId::from_bits(0x019b_0000_0000_0000_0000_0000_0000_0001);

/// Checks the requests of a workflow after the deliveries of a history, as text.
fn check<F, Args>(workflow: F, history: &str, expected: Expect)
where
    F: WorkflowFn<Args>,
{
    check_with(workflow, Value::Null, history, expected);
}

/// The same, for a workflow with an input.
fn check_with<F, Args>(workflow: F, input: Value, history: &str, expected: Expect)
where
    F: WorkflowFn<Args>,
{
    let case = Case::new(workflow, input).with_rules(history::rules(history));
    expected.assert_eq(&case.run_live(history::parse(history)));
}

/// Checks the state after a strict replay of a whole history, as text.
fn check_replay<F, Args>(workflow: F, history: &str, expected: Expect)
where
    F: WorkflowFn<Args>,
{
    let case = Case::new(workflow, Value::Null).with_rules(history::rules(history));
    let mut turns = history::parse(history);
    turns[0].events.insert(0, case.started());
    let text = match case.replay(turns) {
        Ok(machine) => state_text(&machine, START),
        Err(stuck) => stuck_text(&stuck),
    };
    expected.assert_eq(&text);
}

/// A workflow, and the parameters of its runs.
struct Case {
    code: Arc<Registered>,
    codec: Arc<dyn Codec>,
    workflow: Arc<str>,
    input: Payload,
    rules: u32,
}

impl Case {
    fn new<F, Args>(workflow: F, input: Value) -> Self
    where
        F: WorkflowFn<Args>,
    {
        let codec: Arc<dyn Codec> = Arc::new(PlainJson);
        let mut registry = Registry::new(Arc::new(()), codec.clone());
        Register::<(), WorkflowMark<Args>>::register(workflow, &mut registry);
        Self {
            code: registry.finish().unwrap(),
            codec,
            workflow: <F::Definition as WorkflowDefinition>::NAME.into(),
            input: Payload::json(&input).unwrap(),
            rules: RULES,
        }
    }

    fn with_rules(self, rules: u32) -> Self {
        Self { rules, ..self }
    }

    fn started(&self) -> Event {
        Event::from(RunStarted {
            workflow: self.workflow.clone(),
            version: 1,
            rules: self.rules,
            queue: outlast_core::queue::default_queue(),
            priority: 0,
            key: None,
            input: self.input.clone(),
            headers: Default::default(),
            tags: Default::default(),
            parent: None,
            deadline: None,
            policy: None,
            requester: None,
            ending: None,
            forked: None,
        })
    }

    fn replay(&self, history: Vec<TurnRecord>) -> Result<Machine, Stuck> {
        let mut history = numbered(history);
        for event in history.iter_mut().flat_map(|turn| &mut turn.events) {
            if let Event::RunContinued(continued) = event {
                continued.started.workflow = self.workflow.clone();
                continued.started.rules = self.rules;
            }
        }
        Machine::replay(RUN, history, self.code.clone(), &self.codec)
    }

    /// A machine that was not polled, and the start of its first turn.
    fn fresh(&self) -> Result<(Machine, TurnRecord), Stuck> {
        let started = self.started();
        let Event::RunStarted(facts) = &started else { unreachable!() };
        let machine = Machine::new(RUN, facts, self.code.clone(), &self.codec, START)?;
        Ok((machine, turn(START, vec![started])))
    }

    /// Replays the recorded decisions, delivers the rest, and returns the result as text.
    fn run_live(&self, mut turns: Vec<TurnRecord>) -> String {
        let deliveries = history::split_deliveries(&mut turns);
        match self.run_live_from(turns, deliveries) {
            Ok(text) => text,
            Err(stuck) => stuck_text(&stuck),
        }
    }

    fn run_live_from(
        &self,
        mut turns: Vec<TurnRecord>,
        deliveries: Vec<TurnRecord>,
    ) -> Result<String, Stuck> {
        let mut requested = Vec::new();
        let mut machine = if turns.iter().all(|turn| turn.events.is_empty()) {
            let (mut machine, mut first) = self.fresh()?;
            machine.begin(&mut first.events)?;
            requested.extend(first.events[1..].iter().cloned());
            turns = vec![first];
            machine
        } else {
            turns[0].events.insert(0, self.started());
            self.replay(turns.clone())?
        };
        let mut at = turns.last().map_or(START, |turn| turn.at);
        machine.take_startable();
        for TurnRecord { at: then, events, .. } in deliveries {
            at = then;
            let mut added = Vec::new();
            machine.set_time(at);
            machine.set_first_event(turns.iter().map(|turn| turn.events.len() as u64).sum());
            for event in events {
                let before = added.len();
                machine.deliver(history::delivery(event), &mut added)?;
                requested.extend(added.iter().skip(before + 1).cloned());
            }
            turns.push(turn(at, added));
        }
        self.verify(&machine, turns);
        let requested = requested.iter().map(|event| history::line(event, at)).collect::<String>();
        let outbox = machine.take_outbox(|| MessageId::from_bits(0));
        Ok(requested + &state_text(&machine, at) + &history::outbox_text(outbox.as_deref()))
    }

    /// Checks that a replay of the whole history has the same state.
    fn verify(&self, live: &Machine, turns: Vec<TurnRecord>) {
        let mut replayed = self.replay(turns).unwrap_or_else(|stuck| panic!("{}", stuck.message));
        assert_eq!(replayed.summary(), live.summary(), "the replay differs from the live run");
        assert_eq!(replayed.ended(), live.ended());
        if live.ended().is_none() {
            assert_eq!(replayed.waits(), live.waits());
            assert_eq!(replayed.next_due(), live.next_due());
            assert_eq!(replayed.is_active(), live.is_active());
            let startable = replayed.take_startable().into_iter();
            let startable: Vec<_> =
                startable.map(|step| (step.op.0, step.name.to_string(), step.attempt)).collect();
            assert_eq!(startable, open_steps(live));
        }
    }
}

fn turn(at: Timestamp, events: Vec<Event>) -> TurnRecord {
    TurnRecord { id: TurnId::from_bits(0), seq: 0, at, build: "test".into(), events }
}

/// Turns with the numbers of their first events.
fn numbered(mut turns: Vec<TurnRecord>) -> Vec<TurnRecord> {
    let mut seq = 0;
    for turn in &mut turns {
        turn.seq = seq;
        seq += turn.events.len() as u64;
    }
    turns
}

/// The waits and kept payloads of a run; empty when it has ended.
fn state_text(machine: &Machine, now: Timestamp) -> String {
    if machine.ended().is_some() {
        return String::new();
    }
    let mut lines = Vec::new();
    for (op, name, attempt) in open_steps(machine) {
        let again = if attempt > 1 { format!(" attempt {attempt}") } else { String::new() };
        lines.push((op, format!("step {name}{again}")));
    }
    for wait in machine.waits() {
        lines.push(match wait {
            Wait::Timer { op, until } => (op, format!("timer {}", history::text_of(until, now))),
            Wait::Hook { op, name, until: None, token: _ } => (op, format!("hook {name}")),
            Wait::Hook { op, name, until: Some(until), token: _ } => {
                (op, format!("hook {name} for {}", history::text_of(until, now)))
            }
            Wait::Child { op, workflow, until: None, .. } => (op, format!("child {workflow}")),
            Wait::Child { op, workflow, until: Some(until), .. } => {
                (op, format!("child {workflow} for {}", history::text_of(until, now)))
            }
            Wait::Retry { op, name, until } => {
                (op, format!("retry of {name} in {}", history::text_of(until, now)))
            }
            _ => unreachable!(),
        });
    }
    lines.sort();
    let mut text: String = lines.iter().map(|(op, line)| format!("waits for {op} {line}\n")).collect();
    for kept in machine.summary().lines().filter_map(|line| line.strip_prefix("buffer ")) {
        text += &format!("keeps {kept}\n");
    }
    text
}

/// The open steps that are not paused between two attempts: number, name, attempt.
fn open_steps(machine: &Machine) -> Vec<(u64, String, u32)> {
    let open = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let [op, "step", name, "failed", failed, "retry", "None:", "open"] = words[..] else { return None };
        Some((op.parse().unwrap(), name.to_owned(), failed.parse::<u32>().unwrap() + 1))
    };
    machine.summary().lines().filter_map(open).collect()
}

fn stuck_text(stuck: &Stuck) -> String {
    let message = stuck.message.lines().next().unwrap_or_default();
    format!("stuck, {}: {}\n", stuck.reason, message.replace(&RUN.to_string(), "R"))
}
