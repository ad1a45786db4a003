//! What a run is after a part of its history, and what it does next, as text: for the frozen histories of
//! `outlast-conformance`. Not a promise.
//!
//! The text contains only stored data and what follows from it, in a form that does not depend on the types of this
//! crate. So it can be compared with the text that an older build produced from the same history.

use std::fmt::Write;
use std::sync::Arc;

use outlast_core::{
    Codec, Event, MessageBody, MessageId, Outbox, Outcome, PlainJson, RunId, Stuck, TurnRecord,
};

use crate::authoring::register::Register;
use crate::authoring::registry::{Registered, Registry};
use crate::error::Error;
use crate::replay::{Delivery, Machine, SentPayload};
use crate::testing::history::was_polled;
use crate::testing::rehearse::stuck;

/// The code that frozen histories are replayed with.
pub struct FrozenCode {
    code: Arc<Registered>,
    codec: Arc<dyn Codec>,
}

impl FrozenCode {
    /// From the same code as for `.register(…)`.
    ///
    /// # Errors
    ///
    /// `Invalid` when a workflow or step is registered twice.
    pub fn new<R: Register<(), M>, M>(code: R) -> Result<Self, Error> {
        let codec: Arc<dyn Codec> = Arc::new(PlainJson);
        let mut registry = Registry::new(Arc::new(()), codec.clone());
        code.register(&mut registry);
        Ok(Self { code: registry.finish()?, codec })
    }

    /// The state after a replay of these turns: operations, waits, and due times.
    pub fn state_after(&self, run: RunId, turns: &[TurnRecord]) -> String {
        if !was_polled(turns) {
            return "not polled\n".into();
        }
        match Machine::replay(run, turns.to_vec(), self.code.clone(), &self.codec) {
            Ok(machine) => state_of(&machine),
            Err(stuck) => stuck_line(&stuck),
        }
    }

    /// The turn that the run computes after these turns from the deliveries of `next`: its events, one per line in
    /// their stored form, and its outbox.
    pub fn turn_after(&self, run: RunId, turns: &[TurnRecord], next: &TurnRecord) -> (String, String) {
        if !was_polled(turns) && !was_polled(std::slice::from_ref(next)) {
            // A start, or an end without code: no machine computes it.
            return (lines_of(&next.events), String::new());
        }
        match self.live(run, turns, next) {
            Ok((mut machine, events)) => {
                let mut message = 0;
                let outbox = machine.take_outbox(|| {
                    message += 1;
                    MessageId::from_bits(message)
                });
                (lines_of(&events), outbox.as_deref().map(outbox_text).unwrap_or_default())
            }
            Err(stuck) => (stuck_line(&stuck), String::new()),
        }
    }

    /// Computes the turn `next` as a worker does.
    fn live(
        &self,
        run: RunId,
        turns: &[TurnRecord],
        next: &TurnRecord,
    ) -> Result<(Machine, Vec<Event>), Stuck> {
        let mut events = Vec::new();
        let first = turns.first().unwrap_or(next).events.first();
        let mut machine = match first {
            _ if was_polled(turns) => Machine::replay(run, turns.to_vec(), self.code.clone(), &self.codec)?,
            Some(Event::RunStarted(started)) => {
                let mut machine = Machine::new(run, started, self.code.clone(), &self.codec, next.at)?;
                if turns.is_empty() {
                    events.push(Event::RunStarted(started.clone()));
                }
                machine.begin(&mut events)?;
                machine
            }
            _ => return Err(stuck("the history does not begin with `run_started`")),
        };
        machine.set_time(next.at);
        // The end of a pause between attempts is not recorded, unless a cancel came first.
        let has_pauses =
            |event: &Event| matches!(event, Event::CancelRequested { pauses, .. } if !pauses.is_empty());
        if !next.events.iter().any(has_pauses) {
            let _timers = machine.take_due(next.at);
        }
        for delivery in next.events.iter().filter_map(|event| delivery_of(event, next)) {
            machine.deliver(delivery, &mut events)?;
        }
        Ok((machine, events))
    }
}

impl std::fmt::Debug for FrozenCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrozenCode")
    }
}

fn state_of(machine: &Machine) -> String {
    let mut text = match machine.ended() {
        Some(status) => format!("ended {status}\n"),
        None => "open\n".to_owned(),
    };
    text += &machine.summary();
    if machine.ended().is_some() {
        return text;
    }
    for wait in machine.all_waits() {
        let _ = writeln!(text, "waits {}", serde_json::to_string(&wait).unwrap_or_default());
    }
    for step in machine.startable() {
        let _ = writeln!(text, "attempts {step}");
    }
    if let Some(due) = machine.next_due() {
        let _ = writeln!(text, "due {}", due.as_micros());
    }
    if let Some(deadline) = machine.deadline() {
        let _ = writeln!(text, "deadline {}", deadline.as_micros());
    }
    text
}

/// The events in their stored form, one per line.
pub fn lines_of(events: &[Event]) -> String {
    let mut text = String::new();
    for event in events {
        Event::write_all(std::slice::from_ref(event), &mut text);
        text.push('\n');
    }
    text
}

fn outbox_text(outbox: &Outbox) -> String {
    let mut text = String::new();
    for child in &outbox.children {
        let start = &child.start;
        let parent = start.parent.as_ref().map(|parent| (parent.op, parent.awaits));
        let (op, awaits) = parent.map_or((None, false), |(op, awaits)| (Some(op), awaits));
        let op = op.map(|op| op.to_string()).unwrap_or_default();
        let _ = writeln!(text, "starts {} {} for {op}, awaits {awaits}", start.run, start.workflow);
    }
    for message in &outbox.messages {
        let kind = kind_of(&message.body);
        let _ = writeln!(text, "tells {} {kind}", message.run);
    }
    if !outbox.tags.is_empty() {
        let _ = writeln!(text, "tags {:?}", outbox.tags);
    }
    text
}

/// The delivery that a worker records as this event; `None` for decisions of the workflow.
fn delivery_of(event: &Event, turn: &TurnRecord) -> Option<Delivery> {
    let at = turn.at;
    Some(match event.clone() {
        Event::HookReceived { name, message, payload, headers, to, .. } => {
            Delivery::Hook(SentPayload { name, message, payload, headers, at, to })
        }
        Event::CancelRequested { message, reason, actor, .. } => {
            Delivery::Cancel { message, reason, actor, at }
        }
        Event::RunTerminated { failure, actor } => {
            let reason = failure.message.strip_prefix("terminated: ").unwrap_or_default().to_owned();
            Delivery::Terminate { reason, actor }
        }
        Event::TimerWoken { message, actor, .. } => Delivery::Wake { message, op: None, actor, at },
        Event::StepCompleted { op, output } => Delivery::StepEnded { op, outcome: Ok(output) },
        Event::StepFailed { op, failure } => Delivery::StepEnded { op, outcome: Err(failure) },
        Event::StepRetried { op, attempt, failure, retry_at, details } => {
            Delivery::StepRetried { op, attempt, failure, retry_at, details }
        }
        Event::TimerFired { op } => Delivery::Timer { op },
        Event::ChildCompleted { op, output } => {
            Delivery::ChildEnded { op, outcome: Outcome::Completed(output) }
        }
        // Delivered in the same way as the failure to start a child.
        Event::ChildFailed { op, failure } => Delivery::Refused { op, failure },
        Event::ChildCancelled { op, failure } => {
            Delivery::ChildEnded { op, outcome: Outcome::Cancelled(failure) }
        }
        Event::ChildDetached { op, run } => Delivery::ChildDetached { op, run },
        _ => return None,
    })
}

fn stuck_line(stuck: &Stuck) -> String {
    format!("stuck, {}: {}\n", stuck.reason, stuck.message.lines().next().unwrap_or_default())
}

fn kind_of(body: &MessageBody) -> &'static str {
    match body {
        MessageBody::Hook { .. } => "hook",
        MessageBody::Cancel { .. } => "cancel",
        MessageBody::Terminate { .. } => "terminate",
        MessageBody::Wake { .. } => "wake",
        MessageBody::ChildStarted { .. } => "child_started",
        MessageBody::ChildEnded { .. } => "child_ended",
        MessageBody::Refused { .. } => "refused",
        _ => "other",
    }
}
