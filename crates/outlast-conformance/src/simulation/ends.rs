//! The checks of ends: one step follows the end of a run, and a failure reaches the parent after its cancel.

use outlast_core::{Event, OpNumber, RunEnd, RunId, Status};

use super::check::{FinalRun, FinalRuns};
use super::coverage::{Coverage, Situation};
use super::environment::Environment;

/// Checks what follows the end of a run.
pub(super) fn check_run_end(
    env: &Environment,
    final_run: &FinalRun,
    final_runs: &FinalRuns,
    violations: &mut Vec<String>,
    coverage: &mut Coverage,
) {
    let run = final_run.view.id;
    if has_step_after_end(final_run) {
        let of_run = |step: &&FinalRun| step.view.parent.is_some_and(|parent| parent.run == run);
        let steps: Vec<_> = final_runs.values().filter(|step| is_after_end(step)).filter(of_run).collect();
        let ends: Vec<_> = steps.iter().filter_map(|step| told_end(step)).collect();
        let is_told = env.attempt_log.lock().finished.contains(&(run, final_run.view.status.as_str()));
        let is_completed = steps.iter().all(|step| step.view.status == Status::Completed);
        if let Err(violation) = check_steps_after_end(final_run.view.status, &ends, is_completed, is_told) {
            violations.push(format!("run {run}: {violation}"));
        }
        coverage.record(Situation::StepAfterEnd);
    }
    for (op, child) in failed_children(final_run) {
        let is_cascading = final_runs.get(&child).is_some_and(|child| &*child.view.workflow == "cascading");
        if !is_cascading {
            continue;
        }
        coverage.record(Situation::Cascaded);
        if !is_told_before(final_run.events(), op) {
            violations
                .push(format!("run {run} learned that its child {child} failed, and was not cancelled"));
        }
    }
}

/// Whether a run has a step after its end.
fn has_step_after_end(final_run: &FinalRun) -> bool {
    let plan = final_run.started().and_then(|started| started.ending.as_ref());
    plan.is_some_and(|plan| plan.on_end.is_some()) && final_run.view.status.is_final()
}

fn is_after_end(step: &FinalRun) -> bool {
    &*step.view.workflow == "step:finished"
}

/// What the step after an end was told.
fn told_end(step: &FinalRun) -> Option<Status> {
    step.started()?.input.decode::<RunEnd>().ok().map(|end| end.status)
}

/// Exactly one step follows the end of a run, and its input says how the run ended.
fn check_steps_after_end(
    status: Status,
    ends: &[Status],
    is_completed: bool,
    is_told: bool,
) -> Result<(), String> {
    if ends != [status] {
        return Err(format!("it is {status}, but the steps after its end got {ends:?}"));
    }
    if is_completed && !is_told {
        return Err("the step after its end was not attempted, but has completed".into());
    }
    Ok(())
}

/// The children of a run that failed, with their operations.
fn failed_children(final_run: &FinalRun) -> Vec<(OpNumber, RunId)> {
    let started = |wanted: OpNumber| {
        final_run.events().find_map(|event| match event {
            Event::ChildStarted(child) if child.op == wanted => Some(child.run),
            _ => None,
        })
    };
    let failed = final_run.events().filter_map(|event| match event {
        Event::ChildFailed { op, .. } => Some(*op),
        _ => None,
    });
    failed.filter_map(|op| Some((op, started(op)?))).collect()
}

/// Whether a run was cancelled, or had decided about its end, before it learned that a child failed.
fn is_told_before<'a>(events: impl Iterator<Item = &'a Event>, child: OpNumber) -> bool {
    let mut is_told = false;
    for event in events {
        match event {
            Event::CancelRequested { .. } | Event::RunCompensating { .. } | Event::RunRetrying(_) => {
                is_told = true;
            }
            Event::ChildFailed { op, .. } if *op == child => return is_told,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use outlast_core::{Failure, FailureKind};

    use super::*;

    #[test]
    fn one_step_follows_the_end_of_a_run() {
        let failed = Status::Failed;
        assert_eq!(check_steps_after_end(failed, &[failed], true, true), Ok(()));
        check_steps_after_end(failed, &[], true, true).unwrap_err();
        check_steps_after_end(failed, &[failed, failed], true, true).unwrap_err();
        check_steps_after_end(failed, &[Status::Completed], true, true).unwrap_err();
        check_steps_after_end(failed, &[failed], true, false).unwrap_err();
    }

    #[test]
    fn a_cascade_cancels_before_the_failure_arrives() {
        let op = OpNumber(3);
        let failure = Failure::new(FailureKind::Error, "no");
        let cancel = Event::CancelRequested {
            message: None,
            reason: "its child failed".into(),
            actor: None,
            pauses: Vec::new(),
            ends: Vec::new(),
            maybe_attempted: Vec::new(),
        };
        let events = [cancel, Event::ChildFailed { op, failure }];
        assert!(is_told_before(events.iter(), op));
        assert!(!is_told_before(events.iter().rev(), op));
    }
}
