//! What a failed rehearsal says: what is open, and what happened so far.

use outlast::rehearse::LoneRun;
use outlast_core::duration::duration_text;
use outlast_core::{Event, Timestamp, Wait};

use super::open;
use crate::TestClock;

/// Events that a report shows; the last ones matter.
const LINES_MAX: usize = 100;

/// What is open and what happened, for a person.
pub(super) fn report(run: &LoneRun) -> String {
    let mut text = match run.ended() {
        Some(status) => format!("the run is {status}\n"),
        None => {
            let open: String = open(run).iter().map(|line| format!("  {line}\n")).collect();
            format!("it waits for\n{open}")
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

/// What is open, by number of operation.
pub(super) fn open(run: &LoneRun) -> Vec<String> {
    let now = run.now();
    let steps = open::steps(run.history()).into_iter();
    let mut open: Vec<_> =
        steps.map(|step| (step.op.0, format!("step `{}` with {:?}", step.name, step.input))).collect();
    let wait = |wait| match wait {
        Wait::Timer { op, until } => Some((op, format!("timer, due in {}", time_until(until, now)))),
        Wait::Hook { op, name, until: None } => Some((op, format!("hook `{name}`"))),
        Wait::Hook { op, name, until: Some(until) } => {
            Some((op, format!("hook `{name}`, for {}", time_until(until, now))))
        }
        Wait::Child { op, workflow, until: None, .. } => Some((op, format!("child `{workflow}`"))),
        Wait::Child { op, workflow, until: Some(until), .. } => {
            Some((op, format!("child `{workflow}`, for {}", time_until(until, now))))
        }
        _ => None,
    };
    open.extend(open::waits(run).into_iter().filter_map(wait));
    open.sort();
    open.into_iter().map(|(_, text)| text).collect()
}

/// How long it is until a moment.
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
        Event::ChildStarted(child) => format!("{} {:?}", child.workflow, child.input),
        Event::TagsSet { tags, .. } => format!("{tags:?}"),
        Event::StepFailed { failure, .. }
        | Event::ChildFailed { failure, .. }
        | Event::ChildCancelled { failure, .. }
        | Event::RunTerminated { failure }
        | Event::RunFailed { failure }
        | Event::RunCancelled { failure } => failure.message.clone(),
        Event::TimerStarted { fire_at, .. } => time_until(*fire_at, at),
        Event::HookOpened { name, .. } => name.to_string(),
        Event::HookReceived { name, payload, .. } => format!("{name} {payload:?}"),
        Event::CancelRequested { reason, .. } => reason.clone(),
        _ => String::new(),
    };
    format!("{kind}{op} {detail}").trim_end().to_owned()
}
