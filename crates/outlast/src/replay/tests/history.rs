//! Histories as text.
//!
//! ```text
//! 0   step_started refund 4200        name, input (JSON, `null` if left out)
//! 0   step_completed "paid"
//! 0   step_failed fatal no money      kind, message
//! 0   step_retried 1 30s bank closed  failed attempt, pause, message
//! 1   timer_started 60s
//! 2   hook_opened review 3d           name, timeout if any
//! 3   value_recorded quote 4200
//! 4   child_started ship 42 wait 3d   workflow, input, what becomes of it, timeout if any
//! 4   child_completed "shipped"
//! 1,2 timer_woken                     the timers that end early
//! 5   tags_set tier gold
//! -   version_chosen new tax
//! -   hook_received review {"ok":true} name, payload; it is kept. The messages are numbered from 1
//! 2   hook_received review {"ok":true} operation 2 took it
//! !   hook_received review 7           it was rejected
//! 2   hook_taken 1                     operation 2 took the payload of message 1
//! -   hook_rejected review 1 no text   no hook can decode the payload of message 1: name, message, reason
//! 0,3 cancel_requested too late       the operations it ends (rules 1: the pauses), or `-`; `3?` for a step that
//!                                     a lost worker may have attempted
//! -   run_continued 2 7 "next"        generation, first operation, input
//! at 60s                              the turns from here on are this long after the start
//! -   run_completed "done"
//! ```
//!
//! Every delivery begins a turn. A first line `rules 1` makes it the history of a run with these rules.

use outlast_core::duration::duration_text;
use outlast_core::{
    ChildStarted, Failure, FailureKind, Headers, IntoDuration, Judgement, MessageBody, MessageId, NewChild,
    Outbox, Outcome, RunContinued,
};

use crate::replay::SentPayload;

use super::*;

/// The rules of the run whose history this is.
pub(super) fn rules(text: &str) -> u32 {
    let first = text.trim_start().lines().next().unwrap_or_default();
    first.strip_prefix("rules ").map_or(RULES, |rules| rules.trim().parse().unwrap())
}

pub(super) fn parse(text: &str) -> Vec<TurnRecord> {
    let rules = rules(text);
    let mut turns = vec![turn(START, Vec::new())];
    let mut names = std::collections::HashMap::new();
    let mut messages = 0;
    let is_event = |line: &&str| !line.is_empty() && !line.starts_with("rules ");
    for line in text.lines().map(str::trim).filter(is_event) {
        let now = turns[turns.len() - 1].at;
        if let Some(after) = line.strip_prefix("at ") {
            turns.push(turn(START.plus(after.into_duration().unwrap()), Vec::new()));
            continue;
        }
        if line.contains("hook_received") {
            messages += 1;
        }
        let mut event = event(line, now, messages, &mut names);
        if let Event::CancelRequested { pauses, ends, .. } = &mut event
            && rules == 1
        {
            std::mem::swap(pauses, ends);
        }
        let begins = !event.is_decision() && !turns[turns.len() - 1].events.is_empty();
        if begins || (turns.len() == 1 && !event.is_decision()) {
            turns.push(turn(now, Vec::new()));
        }
        turns.last_mut().unwrap().events.push(event);
    }
    turns
}

/// Takes what comes after the last decision.
pub(super) fn split_deliveries(turns: &mut Vec<TurnRecord>) -> Vec<TurnRecord> {
    let decides = |turn: &TurnRecord| turn.events.iter().any(Event::is_decision);
    let last = turns.iter().rposition(decides).unwrap_or(0);
    turns.split_off(last + 1)
}

fn event(
    line: &str,
    now: Timestamp,
    messages: u128,
    names: &mut std::collections::HashMap<OpNumber, String>,
) -> Event {
    let mut words = line.splitn(2, char::is_whitespace);
    let ops = words.next().unwrap();
    let (kind, rest) = cut(words.next().unwrap_or_default());
    let number = |op: &str| OpNumber(op.trim_end_matches('?').parse().unwrap());
    let numbers = || ops.split(',').filter(|op| !"-!".contains(op)).map(number);
    let op = numbers().next().unwrap_or(OpNumber(u64::MAX));
    let at = |text: &str| now.plus(text.into_duration().unwrap());
    let (first, more) = cut(rest);
    let message = MessageId::from_bits(0);
    let failed = |kind, message: &str, attempts| {
        let step = names.get(&op).cloned().unwrap_or_default();
        Failure::new(kind, message).of_step(step, attempts)
    };
    match kind {
        "step_started" => {
            names.insert(op, first.to_owned());
            Event::StepStarted {
                op,
                name: first.into(),
                input: payload(more),
                queued: None,
                is_once: false,
                is_transactional: false,
            }
        }
        "step_completed" => Event::StepCompleted { op, output: payload(rest) },
        "step_failed" => Event::StepFailed { op, failure: failed(failure_kind(first), more, 1) },
        "step_retried" => {
            let (pause, message) = cut(more);
            let attempt = first.parse().unwrap();
            let failure = failed(FailureKind::Error, message, attempt);
            Event::StepRetried { op, attempt, failure, retry_at: at(pause), details: None }
        }
        "step_dropped" => Event::StepDropped { op },
        "timer_started" => Event::TimerStarted { op, fire_at: at(rest) },
        "timer_fired" => Event::TimerFired { op },
        "timer_cancelled" => Event::TimerCancelled { op },
        "hook_opened" => {
            let timeout_at = Some(more).filter(|more| !more.is_empty()).map(at);
            Event::HookOpened { op, name: first.into(), timeout_at, of: None }
        }
        "hook_received" => Event::HookReceived {
            name: first.into(),
            message: MessageId::from_bits(messages),
            payload: payload(more),
            headers: Headers::new(),
            at: Some(START),
            judgement: match ops {
                "-" => Judgement::Kept,
                "!" => Judgement::Rejected("no".into()),
                _ => Judgement::TakenBy(op),
            },
            to: Default::default(),
        },
        "hook_taken" => Event::HookTaken { op, message: MessageId::from_bits(rest.parse().unwrap()) },
        "hook_rejected" => {
            let (message, reason) = cut(more);
            let message = MessageId::from_bits(message.parse().unwrap());
            Event::HookRejected { name: first.into(), message, reason: reason.into() }
        }
        "hook_closed" => Event::HookClosed { op },
        "child_started" => child_started(op, rest, now),
        "child_completed" => Event::ChildCompleted { op, output: payload(rest) },
        "child_failed" => Event::ChildFailed { op, failure: Failure::new(failure_kind(first), more) },
        "child_cancelled" => Event::ChildCancelled { op, failure: Failure::new(failure_kind(first), more) },
        "child_detached" => Event::ChildDetached { op, run: RunId::from_bits(rest.parse().unwrap()) },
        "child_dropped" => Event::ChildDropped { op },
        "operation_cancelled" => Event::OperationCancelled { op },
        "timer_woken" => Event::TimerWoken { message, ops: numbers().collect(), actor: None },
        "tags_set" => Event::TagsSet { op, tags: [(first.into(), more.into())].into() },
        "value_recorded" => Event::ValueRecorded { op, name: first.into(), value: Ok(payload(more)) },
        "version_chosen" => Event::VersionChosen { name: rest.into() },
        "cancel_requested" => Event::CancelRequested {
            message: Some(message),
            reason: rest.into(),
            actor: None,
            pauses: Vec::new(),
            ends: numbers().collect(),
            maybe_attempted: ops.split(',').filter(|op| op.ends_with('?')).map(number).collect(),
        },
        "run_continued" => {
            let (next_op, input) = cut(more);
            run_continued(first.parse().unwrap(), number(next_op), payload(input))
        }
        "run_completed" => Event::RunCompleted { output: payload(rest) },
        "run_failed" => Event::RunFailed { failure: Failure::new(failure_kind(first), more) },
        "run_cancelled" => Event::RunCancelled { failure: Failure::new(failure_kind(first), more) },
        "run_terminated" => {
            Event::RunTerminated { failure: outlast_core::Failure::terminated(rest), actor: None }
        }
        unknown => panic!("unknown kind `{unknown}` in: {line}"),
    }
}

/// The beginning of a generation. The case adds its workflow.
fn run_continued(generation: u64, next_op: OpNumber, input: Payload) -> Event {
    let started = RunStarted {
        workflow: "".into(),
        version: 1,
        rules: RULES,
        queue: outlast_core::queue::default_queue(),
        priority: 0,
        key: None,
        input,
        headers: Headers::new(),
        tags: Default::default(),
        parent: None,
        deadline: None,
        policy: None,
        requester: None,
        ending: None,
        forked: None,
    };
    let begin = RunContinued::of_start(started);
    Event::RunContinued(Box::new(RunContinued { generation, next_op, ..begin }))
}

/// `<workflow> <input> <what becomes of it> <timeout>`
fn child_started(op: OpNumber, rest: &str, now: Timestamp) -> Event {
    let mut words = rest.split_whitespace();
    let (workflow, input) = (words.next().unwrap(), payload(words.next().unwrap_or_default()));
    let on_parent_end = serde_json::from_value(words.next().unwrap_or("cancel").into()).unwrap();
    let timeout_at = words
        .next()
        .filter(|word| *word != "detached")
        .map(|timeout| now.plus(timeout.into_duration().unwrap()));
    Event::ChildStarted(Box::new(ChildStarted {
        op,
        run: RunId::of_child(RUN, op.0, now, RULES),
        workflow: workflow.into(),
        version: 1,
        queue: outlast_core::queue::default_queue(),
        priority: 0,
        key: None,
        input,
        timeout_at,
        on_parent_end,
        is_detached: rest.ends_with("detached"),
    }))
}

/// What a turn asks of others, as text.
pub(super) fn outbox_text(outbox: Option<&Outbox>) -> String {
    let Some(Outbox { children, messages, tags, writes, .. }) = outbox else { return String::new() };
    let mut text = String::new();
    for NewChild { start, notify_parent } in children {
        let parent = start.parent.unwrap();
        assert_eq!((parent.run, parent.root), (RUN, RUN));
        let answer = if *notify_parent { ", wants an answer" } else { "" };
        let awaits = if parent.awaits { "" } else { ", not awaited" };
        text += &format!("starts {} {} {:?}{awaits}{answer}\n", parent.op, start.workflow, start.input);
    }
    for message in messages {
        let (what, reason) = match &message.body {
            MessageBody::Cancel { reason } => ("cancels a child", reason),
            MessageBody::Terminate { reason } => ("terminates a queued step", reason),
            _ => panic!("{message:?}"),
        };
        text += &format!("{what}: {}\n", reason.replace(&RUN.to_string(), "R"));
    }
    for (name, value) in tags {
        text += &format!("tag {name} = {value}\n");
    }
    for append in &writes.streams {
        let chunks: Vec<_> = append.chunks.iter().map(|chunk| &chunk.payload).collect();
        text += &format!("writes {} {chunks:?}\n", append.stream);
    }
    if let Some(payload) = writes.state.as_ref().and_then(|state| state.payload.as_ref()) {
        text += &format!("publishes {payload:?}\n");
    }
    text
}

/// An event as a line of history.
pub(super) fn line(event: &Event, now: Timestamp) -> String {
    let rest = match event {
        Event::StepStarted { name, input, .. } => format!("{name} {input:?}"),
        Event::StepCompleted { output, .. } | Event::RunCompleted { output } => format!("{output:?}"),
        Event::ChildStarted(child) => {
            let until = child.timeout_at.map_or(String::new(), |at| text_of(at, now));
            let (workflow, input, end) = (&child.workflow, &child.input, child.on_parent_end.as_str());
            let detached = if child.is_detached { "detached" } else { "" };
            format!("{workflow} {input:?} {end} {until}{detached}")
        }
        Event::RunContinued(continued) => {
            let RunContinued { generation, next_op, started, children, kept, .. } = &**continued;
            let children: Vec<_> = children.iter().map(|child| child.op.0).collect();
            let kept: Vec<_> = kept.iter().map(|place| place.event).collect();
            let (input, tags) = (&started.input, &started.tags);
            format!("{generation} {next_op} {input:?} children {children:?} kept {kept:?} tags {tags:?}")
        }
        Event::TagsSet { tags, .. } => format!("{tags:?}"),
        Event::StepFailed { failure, .. }
        | Event::ChildFailed { failure, .. }
        | Event::RunFailed { failure }
        | Event::RunCancelled { failure } => failure_text(failure),
        Event::TimerStarted { fire_at, .. } => text_of(*fire_at, now),
        Event::HookOpened { name, timeout_at, .. } => {
            format!("{name} {}", timeout_at.map_or(String::new(), |at| text_of(at, now)))
        }
        Event::HookReceived { name, payload, judgement, .. } => format!("{name} {payload:?} {judgement:?}"),
        Event::HookTaken { message, .. } => message.bits().to_string(),
        Event::HookRejected { name, message, reason } => format!("{name} {} {reason}", message.bits()),
        Event::ValueRecorded { name, value: Ok(value), .. } => format!("{name} {value:?}"),
        Event::ValueRecorded { name, value: Err(failure), .. } => {
            format!("{name} failed: {}", failure_text(failure))
        }
        Event::VersionChosen { name } => name.to_string(),
        Event::CancelRequested { reason, pauses, ends, .. } => format!("{reason} {pauses:?} {ends:?}"),
        _ => String::new(),
    };
    let op = event.op().map_or("-".to_owned(), |op| op.to_string());
    format!("{op} {} {rest}", event.kind()).trim_end().to_owned() + "\n"
}

/// What a worker would have said for a delivery to become this event.
pub(super) fn delivery(event: Event) -> Delivery {
    match event {
        Event::HookReceived { name, message, payload, headers, at, to, .. } => {
            let at = at.unwrap_or(START);
            Delivery::Hook(SentPayload { name, message, payload, headers, at, to })
        }
        Event::CancelRequested { message, reason, actor, .. } => {
            Delivery::Cancel { message, reason, actor, at: START }
        }
        Event::StepCompleted { op, output } => Delivery::StepEnded { op, outcome: Ok(output) },
        Event::StepFailed { op, failure } => Delivery::StepEnded { op, outcome: Err(failure) },
        Event::StepRetried { op, attempt, failure, retry_at, details } => {
            Delivery::StepRetried { op, attempt, failure, retry_at, details }
        }
        Event::TimerFired { op } => Delivery::Timer { op },
        Event::TimerWoken { message, ops, actor } => {
            Delivery::Wake { message, op: ops.first().copied(), actor, at: Timestamp::NEVER }
        }
        Event::ChildCompleted { op, output } => {
            Delivery::ChildEnded { op, outcome: Outcome::Completed(output) }
        }
        Event::ChildFailed { op, failure } => Delivery::Refused { op, failure },
        Event::ChildCancelled { op, failure } => {
            Delivery::ChildEnded { op, outcome: Outcome::Cancelled(failure) }
        }
        Event::ChildDetached { op, run } => Delivery::ChildDetached { op, run },
        Event::RunTerminated { failure, actor } => {
            Delivery::Terminate { reason: failure.message.replace("terminated: ", ""), actor }
        }
        decision => panic!("`{}` is no delivery", decision.kind()),
    }
}

pub(super) fn text_of(at: Timestamp, now: Timestamp) -> String {
    duration_text(at.since(now))
}

fn failure_text(failure: &Failure) -> String {
    let kind = serde_json::to_value(failure.kind).unwrap();
    let step =
        failure.step.as_ref().map_or(String::new(), |step| format!(" (step {step} x{})", failure.attempts));
    format!("{} {}{step}", kind.as_str().unwrap(), failure.message)
}

fn failure_kind(text: &str) -> FailureKind {
    serde_json::from_value(text.into()).unwrap()
}

fn payload(text: &str) -> Payload {
    let value: Value = if text.is_empty() { Value::Null } else { serde_json::from_str(text).unwrap() };
    Payload::json(&value).unwrap()
}

fn cut(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace).map_or((text, ""), |(first, rest)| (first, rest.trim()))
}
