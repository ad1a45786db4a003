//! The open operations of a rehearsed run.

use std::sync::Arc;

use outlast::test_support::rehearse::LoneRun;
use outlast_core::{Compensations, Event, OpNumber, Payload, Status, Timestamp, TurnRecord, Wait};

/// A requested step or child that has not ended.
#[derive(Clone, Debug)]
pub(super) struct OpenWork {
    pub(super) op: OpNumber,
    pub(super) name: Arc<str>,
    pub(super) input: Payload,
}

/// The open steps, in the order of their requests.
pub(super) fn steps(history: &[TurnRecord]) -> Vec<OpenWork> {
    let mut open: Vec<OpenWork> = Vec::new();
    let mut compensations = Compensations::default();
    for event in history.iter().flat_map(|turn| &turn.events) {
        compensations.read(event);
        match event {
            Event::CompensationStarted { op, of, .. } => {
                open.extend(compensations.get(*of).map(|compensation| OpenWork {
                    op: *op,
                    name: compensation.step.clone(),
                    input: compensation.plain_input(),
                }));
            }
            Event::StepStarted { op, name, input, .. } => {
                open.push(OpenWork { op: *op, name: name.clone(), input: input.clone() });
            }
            Event::StepCompleted { op: over, .. }
            | Event::StepFailed { op: over, .. }
            | Event::StepDropped { op: over } => open.retain(|step| step.op != *over),
            Event::CancelRequested { ends, .. } => open.retain(|step| !ends.contains(&step.op)),
            ended if Status::of_final(ended).is_some() => open.clear(),
            _ => {}
        }
    }
    open
}

/// The awaited children that have not ended, in the order of their requests.
pub(super) fn children(run: &LoneRun) -> Vec<OpenWork> {
    let waits = waits(run);
    let started = run.history().iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
        Event::ChildStarted(child) => Some(child),
        _ => None,
    });
    let open = started.filter(|child| waits.iter().any(|wait| wait.op() == child.op));
    open.map(|child| OpenWork { op: child.op, name: child.workflow.clone(), input: child.input.clone() })
        .collect()
}

/// The names of the open hooks.
pub(super) fn hooks(run: &LoneRun) -> Vec<String> {
    let name = |wait| if let Wait::Hook { name, .. } = wait { Some(name) } else { None };
    waits(run).into_iter().filter_map(name).collect()
}

/// The due times of the open timers.
pub(super) fn timers(run: &LoneRun) -> Vec<Timestamp> {
    let due = |wait| if let Wait::Timer { until, .. } = wait { Some(until) } else { None };
    waits(run).into_iter().filter_map(due).collect()
}

/// The open waits; none when the run has ended.
pub(super) fn waits(run: &LoneRun) -> Vec<Wait> {
    if run.ended().is_some() { Vec::new() } else { run.waits() }
}
