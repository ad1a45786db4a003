//! The report of a failed rehearsal: the open operations, and the events so far.

use std::collections::BTreeMap;

use outlast::test_support::rehearse::LoneRun;
use outlast_core::duration::duration_text;
use outlast_core::{Event, Judgement, Timestamp, Wait};

use super::open::{self, OpenWork};
use crate::TestClock;

/// The maximum number of events in a report; the last ones are shown.
const LINES_MAX: usize = 100;

/// The text for a run that only waits for children with `ParentEnd::Wait`.
const RETURNED: &str = "the workflow has returned; the run ends when these children have";

/// The open operations and the events, as text.
pub(super) fn report(run: &LoneRun) -> String {
    let mut text = match run.ended() {
        Some(status) => format!("the run is {status}\n"),
        None => {
            let open: String = open(run).iter().map(|line| format!("  {line}\n")).collect();
            let head = if run.is_lingering() { RETURNED } else { "it waits for" };
            format!("{head}\n{open}")
        }
    };
    text += "what happened\n";
    let events = run.history().iter().flat_map(|turn| turn.events.iter().map(|event| (turn.at, event)));
    let events: Vec<_> = events.collect();
    let left_out = events.len().saturating_sub(LINES_MAX);
    if left_out > 0 {
        text += &format!("  … {left_out} events before\n");
    }
    for (at, event) in &events[left_out..] {
        let time = time_until(*at, TestClock::BEGIN);
        text += &format!("  {time:<6} {}\n", line(event, *at));
    }
    text
}

/// The open operations, by number.
pub(super) fn open(run: &LoneRun) -> Vec<String> {
    let now = run.now();
    let work =
        |kind: &str, open: OpenWork| (open.op.0, format!("{kind} `{}` with {:?}", open.name, open.input));
    let mut open: Vec<_> = open::steps(run.history()).into_iter().map(|step| work("step", step)).collect();
    let children: BTreeMap<_, _> =
        open::children(run).into_iter().map(|child| work("child", child)).collect();
    let wait = |wait: Wait| {
        let (op, what, until) = match wait {
            Wait::Timer { op, until } => {
                return Some((op, format!("timer, due in {}", time_until(until, now))));
            }
            Wait::Hook { op, name, until, token: _ } => (op, format!("hook `{name}`"), until),
            Wait::Child { op, until, .. } => (op, children.get(&op)?.clone(), until),
            _ => return None,
        };
        let time = until.map(|until| format!(", for {}", time_until(until, now)));
        Some((op, what + &time.unwrap_or_default()))
    };
    open.extend(open::waits(run).into_iter().filter_map(wait));
    open.sort();
    open.into_iter().map(|(_, text)| text).collect()
}

/// The time until a moment, as text.
pub(super) fn time_until(moment: Timestamp, now: Timestamp) -> String {
    duration_text(moment.since(now))
}

fn line(event: &Event, at: Timestamp) -> String {
    let kind = event.kind();
    let op = event.op().map(|op| format!(" {op}")).unwrap_or_default();
    let detail = match event {
        Event::RunStarted(started) => format!("{} {:?}", started.workflow, started.input),
        Event::StepStarted { name, input, .. } => format!("{name} {input:?}"),
        Event::StepCompleted { output, .. }
        | Event::ChildCompleted { output, .. }
        | Event::RunCompleted { output } => format!("{output:?}"),
        Event::CompensationRegistered(registered) => registered.step.to_string(),
        Event::CompensationStarted { of, .. } => format!("of {of}"),
        Event::RunCompensating { failure, .. } => failure.message.clone(),
        Event::RunRetrying(retrying) => {
            format!("{}: {}", time_until(retrying.retry_at, at), retrying.failure.message)
        }
        Event::ChildStarted(child) => format!("{} {:?}", child.workflow, child.input),
        Event::TagsSet { tags, .. } => format!("{tags:?}"),
        Event::StepFailed { failure, .. }
        | Event::ChildFailed { failure, .. }
        | Event::ChildCancelled { failure, .. }
        | Event::RunTerminated { failure, .. }
        | Event::RunFailed { failure }
        | Event::RunCancelled { failure } => failure.message.clone(),
        Event::TimerStarted { fire_at, .. } => time_until(*fire_at, at),
        Event::HookOpened { name, .. } => name.to_string(),
        Event::HookReceived { name, payload, judgement: Judgement::Rejected(reason), .. } => {
            format!("{name} {payload:?} rejected: {reason}")
        }
        Event::HookReceived { name, payload, .. } => format!("{name} {payload:?}"),
        Event::HookRejected { name, reason, .. } => format!("{name}: {reason}"),
        Event::CancelRequested { reason, .. } => reason.clone(),
        _ => String::new(),
    };
    format!("{kind}{op} {detail}").trim_end().to_owned()
}
