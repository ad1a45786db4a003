//! Divergence: replay requires that the requests of the code match the recorded ones.

use outlast_core::duration::duration_text;
use outlast_core::{CompensationInput, Event, OpNumber, RunId, Stuck, StuckReason, Timestamp};

/// Whether a request of the code matches the recorded one. `was` are earlier names of the step.
pub(super) fn matches_recorded(recorded: &Event, requested: &Event, was: &[&str]) -> bool {
    if recorded.kind() != requested.kind() || recorded.op() != requested.op() {
        return false;
    }
    match (recorded, requested) {
        (Event::StepStarted { name: recorded, .. }, Event::StepStarted { name: requested, .. }) => {
            recorded == requested || was.contains(&&**recorded)
        }
        (
            Event::HookOpened { name: recorded, of: recorded_of, .. },
            Event::HookOpened { name: requested, of: requested_of, .. },
        ) => recorded == requested && recorded_of == requested_of,
        (Event::TokenRequested(recorded), Event::TokenRequested(requested)) => {
            recorded.name == requested.name
                && recorded.is_generated == requested.is_generated
                && recorded.webhook.is_some() == requested.webhook.is_some()
        }
        (Event::ReplySent { message: recorded, .. }, Event::ReplySent { message: requested, .. })
        | (Event::ReplyDropped { message: recorded }, Event::ReplyDropped { message: requested }) => {
            recorded == requested
        }
        (Event::LoopStarted { name: recorded, .. }, Event::LoopStarted { name: requested, .. })
        | (Event::ValueRecorded { name: recorded, .. }, Event::ValueRecorded { name: requested, .. }) => {
            recorded == requested
        }
        (Event::CompensationRegistered(recorded), Event::CompensationRegistered(requested)) => {
            let is_undo = |input: &CompensationInput| matches!(input, CompensationInput::Undo(_));
            recorded.step == requested.step && is_undo(&recorded.input) == is_undo(&requested.input)
        }
        (
            Event::CompensationStarted { of: recorded, .. },
            Event::CompensationStarted { of: requested, .. },
        ) => recorded == requested,
        (Event::IterationEnded(recorded), Event::IterationEnded(requested)) => recorded.of == requested.of,
        (Event::ChildStarted(recorded), Event::ChildStarted(requested)) => {
            recorded.workflow == requested.workflow && recorded.is_detached == requested.is_detached
        }
        _ => true,
    }
}

/// Why a run is stuck whose code no longer matches its history, with the remedy.
pub(super) fn diverged(
    run: RunId,
    at: Option<OpNumber>,
    recorded: Option<&Event>,
    requested: Option<&Event>,
    now: Timestamp,
) -> Stuck {
    let position = at.map_or("its end".to_owned(), |op| format!("operation {op}"));
    let recorded = recorded.map_or("nothing more".to_owned(), |event| describe(event, now));
    let requested = requested.map_or("nothing".to_owned(), |event| describe(event, now));
    let message = format!(
        "run {run} diverged at {position}: history has {recorded}, code asked for {requested}; \
         keep the old code for this run: put the change behind `ctx.patched(\"…\")`, or register the new code \
         as `version = 2`"
    );
    Stuck::new(StuckReason::Diverged, message)
}

/// A request in plain words.
pub(super) fn describe(event: &Event, now: Timestamp) -> String {
    match event {
        Event::StepStarted { name, .. } => format!("step `{name}`"),
        Event::StepDropped { op } => format!("the drop of step operation {op}"),
        Event::TimerStarted { fire_at, .. } => format!("timer {}", duration_text(fire_at.since(now))),
        Event::TimerCancelled { op } => format!("the drop of timer operation {op}"),
        Event::HookOpened { name, .. } => format!("hook `{name}`"),
        Event::HookClosed { op } => format!("the drop of hook operation {op}"),
        Event::TokenRequested(requested) => format!("a token for hook `{}`", requested.name),
        Event::TokenClosed { op } => format!("the end of the token of operation {op}"),
        Event::ReplySent { .. } => "a reply".into(),
        Event::ReplyDropped { .. } => "the drop of a message without a reply".into(),
        Event::ValueRecorded { name, .. } => format!("value `{name}`"),
        Event::CompensationRegistered(registered) => format!("compensation `{}`", registered.step),
        Event::CompensationsKept { .. } => "`keep`".into(),
        Event::CompensationStarted { of, .. } => format!("the compensation that operation {of} registered"),
        Event::ChildStarted(child) if child.is_detached => format!("abandoned child `{}`", child.workflow),
        Event::ChildStarted(child) => format!("child `{}`", child.workflow),
        Event::ChildDropped { op } => format!("the drop of child operation {op}"),
        Event::OperationCancelled { op } => format!("the cancel of operation {op}"),
        Event::TagsSet { tags, .. } => {
            format!("tags `{}`", tags.keys().map(String::as_str).collect::<Vec<_>>().join("`, `"))
        }
        Event::LoopStarted { name, .. } => format!("loop `{name}`"),
        Event::IterationEnded(ended) => format!("the end of iteration {} of a loop", ended.iteration),
        Event::RunContinued(_) => "the next generation of the run".into(),
        Event::RunCompleted { .. } => "the run's completion".into(),
        Event::RunFailed { failure } => format!("the run's failure ({})", failure.message),
        Event::RunCancelled { .. } => "the run's cancellation".into(),
        other => format!("`{}`", other.kind()),
    }
}
