//! Strict matching: what the code asks for must be what history has.

use outlast_core::duration::duration_text;
use outlast_core::{Event, OpNumber, RunId, Stuck, StuckReason, Timestamp};

/// Whether a decision of the code is the one that history has.
pub(super) fn is_same(recorded: &Event, asked: &Event, was: &[&str]) -> bool {
    if recorded.kind() != asked.kind() || recorded.op() != asked.op() {
        return false;
    }
    match (recorded, asked) {
        (Event::StepStarted { name: then, .. }, Event::StepStarted { name: today, .. }) => {
            then == today || was.contains(&&**then)
        }
        (Event::HookOpened { name: then, .. }, Event::HookOpened { name: today, .. })
        | (Event::ValueRecorded { name: then, .. }, Event::ValueRecorded { name: today, .. }) => {
            then == today
        }
        (Event::ChildStarted(then), Event::ChildStarted(today)) => {
            then.workflow == today.workflow && then.is_detached == today.is_detached
        }
        _ => true,
    }
}

/// The report of a run whose code no longer matches its history.
pub(super) fn report(
    run: RunId,
    at: Option<OpNumber>,
    recorded: Option<&Event>,
    asked: Option<&Event>,
    now: Timestamp,
) -> Stuck {
    let place = at.map_or("its end".to_owned(), |op| format!("operation {op}"));
    let recorded = recorded.map_or("nothing more".to_owned(), |event| words(event, now));
    let asked = asked.map_or("nothing".to_owned(), |event| words(event, now));
    Stuck {
        reason: StuckReason::Diverged,
        message: format!(
            "run {run} diverged at {place}: history has {recorded}, code asked for {asked}; \
             deploy code that matches the history, then it goes on"
        ),
        build: String::new(),
    }
}

/// A decision as a person would say it.
pub(super) fn words(event: &Event, now: Timestamp) -> String {
    match event {
        Event::StepStarted { name, .. } => format!("step `{name}`"),
        Event::StepDropped { op } => format!("the drop of step operation {op}"),
        Event::TimerStarted { fire_at, .. } => format!("timer {}", duration_text(fire_at.since(now))),
        Event::TimerCancelled { op } => format!("the drop of timer operation {op}"),
        Event::HookOpened { name, .. } => format!("hook `{name}`"),
        Event::HookClosed { op } => format!("the drop of hook operation {op}"),
        Event::ValueRecorded { name, .. } => format!("value `{name}`"),
        Event::ChildStarted(child) if child.is_detached => format!("abandoned child `{}`", child.workflow),
        Event::ChildStarted(child) => format!("child `{}`", child.workflow),
        Event::ChildDropped { op } => format!("the drop of child operation {op}"),
        Event::TagsSet { tags, .. } => {
            format!("tags `{}`", tags.keys().map(String::as_str).collect::<Vec<_>>().join("`, `"))
        }
        Event::RunCompleted { .. } => "the run's completion".into(),
        Event::RunFailed { failure } => format!("the run's failure ({})", failure.message),
        Event::RunCancelled { .. } => "the run's cancellation".into(),
        other => format!("`{}`", other.kind()),
    }
}
