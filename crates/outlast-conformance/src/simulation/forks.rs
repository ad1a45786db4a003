//! The checks of forks and restarts: a fork has the events of the other run, repeats no copied step that has ended,
//! and has children of its own.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::cut::replay_from;
use outlast_core::{Event, Fork, OpNumber, RunId, Status, TurnRecord};
use serde_json::Value;

use super::check::{FinalRun, FinalRuns};
use super::coverage::{Coverage, Situation};
use super::effective::{OpenSteps, effective, fork_origin};
use super::environment::Environment;

/// Checks a fork against the other run.
pub(super) fn check_fork(
    env: &Environment,
    final_run: &FinalRun,
    final_runs: &FinalRuns,
    violations: &mut Vec<String>,
    coverage: &mut Coverage,
) {
    let run = final_run.view.id;
    let controlled = env.controlled.lock();
    let Some(fork) = controlled.forks.get(&run) else {
        if final_run.fork().is_some() {
            violations.push(format!("run {run} is a fork that nobody made"));
        }
        return;
    };
    coverage.record(if controlled.outputs.keys().any(|(of, _)| *of == run) {
        Situation::ForkedWithOutput
    } else {
        Situation::ForkedAtEvent
    });
    let open = open_at_cut(&final_run.turns, fork.origin.at);
    if !open.open.is_empty() {
        coverage.record(Situation::ForkWithOpenSteps);
    }
    let origin = final_runs.get(&fork.origin.of);
    let outputs = |op: OpNumber| controlled.outputs.get(&(run, op));
    let is_forced = controlled.forced_forks.contains(&run);
    let asked = controlled.forked_at.get(&run).filter(|asked| **asked < fork.origin.at);
    let problems = [
        asked.map(|asked| format!("a client has asked for the events before {asked}")),
        origin.and_then(|origin| changed_copy(final_run, origin, fork, outputs)),
        own_part(final_run, fork),
        repeated_step(env, final_run, &open, is_forced),
        other_output(final_run, fork, outputs),
        foreign_child(final_run, final_runs, fork),
    ];
    for problem in problems.into_iter().flatten() {
        violations.push(format!("fork {run} of {} at {}: {problem}", fork.origin.of, fork.origin.at));
    }
}

/// The steps that were open before an event.
pub(super) fn open_at_cut(turns: &[TurnRecord], at: u64) -> OpenSteps {
    let mut open = OpenSteps::default();
    for counting in effective(turns).into_iter().filter(|counting| counting.number < at) {
        if matches!(counting.event, Event::RunContinued(_)) {
            open = OpenSteps::default();
        }
        open.apply(counting.event);
    }
    open
}

/// The copied events are those of the other run, except for how the run began and recorded values that were given. Only
/// turns before the last cut, which a replay skips, may be left behind.
fn changed_copy<'a>(
    final_run: &FinalRun,
    origin: &FinalRun,
    fork: &Fork,
    given: impl Fn(OpNumber) -> Option<&'a Value>,
) -> Option<String> {
    let at = fork.origin.at;
    let before = events_before(&origin.turns, at);
    let (own, others) = (by_number(&events_before(&final_run.stored, at)), by_number(&before));
    if let Some(missing) = (replay_from(&before, at)..at).find(|number| !own.contains_key(number)) {
        return Some(format!("it lacks event {missing}"));
    }
    own.into_iter().find_map(|(number, own)| match (&own, others.get(&number)) {
        (Event::RunStarted(_), Some(Event::RunStarted(_)))
        | (Event::RunContinued(_), Some(Event::RunContinued(_))) => None,
        (Event::ValueRecorded { op, value: Ok(value), .. }, Some(Event::ValueRecorded { .. }))
            if given(*op).is_some_and(|given| value.decode::<Value>().ok().as_ref() == Some(given)) =>
        {
            None
        }
        (own, other) => (Some(own) != other).then(|| format!("event {number} is {own:?}, and was {other:?}")),
    })
}

/// The turns before an event, the last one as far as it.
fn events_before(turns: &[TurnRecord], at: u64) -> Vec<TurnRecord> {
    let mut before: Vec<_> = turns.iter().filter(|turn| turn.seq < at).cloned().collect();
    if let Some(last) = before.last_mut() {
        last.events.truncate(usize::try_from(at - last.seq).unwrap_or(usize::MAX));
    }
    before
}

fn by_number(turns: &[TurnRecord]) -> BTreeMap<u64, Event> {
    turns.iter().flat_map(|turn| (turn.seq..).zip(turn.events.clone())).collect()
}

/// Whether a fork has ended before a worker has executed its code.
fn ended_without_code(events: &[(u64, &Event)]) -> bool {
    let is_decision = |event: &Event| event.is_decision() && Status::of_final(event).is_none();
    events.last().is_some_and(|(_, last)| Status::of_final(last).is_some())
        && !events.iter().any(|(_, event)| is_decision(event))
}

/// The part of its own begins with `run_forked`, once. Only a run that was ended without its code has none.
fn own_part(final_run: &FinalRun, fork: &Fork) -> Option<String> {
    let own: Vec<_> = numbered(final_run).filter(|(number, _)| *number >= fork.origin.at).collect();
    let forked = own.iter().filter(|(_, event)| matches!(event, Event::RunForked(_))).count();
    match own.first() {
        Some((_, Event::RunForked(forked_event))) if forked == 1 => (forked_event.of != fork.origin.of)
            .then(|| format!("it says that it is one of {}", forked_event.of)),
        Some(_) if forked == 0 && ended_without_code(&own) => None,
        first => Some(format!("its own part begins with {first:?}, and it has been forked {forked} times")),
    }
}

fn numbered(final_run: &FinalRun) -> impl Iterator<Item = (u64, &Event)> {
    final_run.turns.iter().flat_map(|turn| (turn.seq..).zip(&turn.events))
}

/// A copied step that had ended, or got another output, and that the fork attempts.
fn repeated_step(
    env: &Environment,
    final_run: &FinalRun,
    open: &OpenSteps,
    is_forced: bool,
) -> Option<String> {
    let (run, next_op) = (final_run.view.id, next_own_op(final_run)?);
    let given: BTreeSet<u64> = final_run.fork()?.outputs.iter().copied().collect();
    let attempt_log = env.attempt_log.lock();
    let attempted: BTreeSet<_> =
        attempt_log.begun.keys().filter(|key| key.0 == run).map(|key| key.1).collect();
    attempted.into_iter().find_map(|op| {
        if op >= next_op {
            return None;
        }
        if !open.open.contains(&op) || given.contains(&op.0) {
            return Some(format!("it attempts the copied step {op}, which had ended"));
        }
        (open.once.contains(&op) && !is_forced)
            .then(|| format!("it attempts step {op}, which is attempted at most once"))
    })
}

/// The operations of a fork, and of the forks from which it has copied events, that were given an outcome.
pub(super) fn given_outcomes(final_run: &FinalRun, final_runs: &FinalRuns) -> BTreeSet<OpNumber> {
    let Some(origin) = final_run.fork() else { return BTreeSet::new() };
    let of = final_runs.get(&origin.of);
    let mut given = of.map(|of| given_outcomes(of, final_runs)).unwrap_or_default();
    given.extend(origin.outputs.iter().map(|op| OpNumber(*op)));
    given
}

/// The operations whose runs a fork does not start again, although it has ids for them: they were given an outcome,
/// dropped in the turn in which it was forked, or their workflow returned in that turn.
pub(super) fn not_started_again(final_run: &FinalRun, final_runs: &FinalRuns) -> BTreeSet<OpNumber> {
    let mut ops = given_outcomes(final_run, final_runs);
    for turn in &final_run.turns {
        let restarted = turn.events.iter().filter_map(|event| match event {
            Event::RunForked(forked) => Some(forked.restarts.iter().map(|restarted| restarted.op)),
            _ => None,
        });
        let restarted: BTreeSet<_> = restarted.flatten().collect();
        for event in &turn.events {
            match event {
                Event::StepDropped { op } | Event::ChildDropped { op } if restarted.contains(op) => {
                    ops.insert(*op);
                }
                Event::RunContinued(_) | Event::RunRetrying(_) | Event::RunCompensating { .. } => {
                    ops.extend(&restarted);
                }
                event if Status::of_final(event).is_some() => ops.extend(&restarted),
                _ => {}
            }
        }
    }
    ops
}

/// The number of the first operation that is not copied.
fn next_own_op(final_run: &FinalRun) -> Option<OpNumber> {
    let at = final_run.copied();
    numbered(final_run).find_map(|(number, event)| match event {
        Event::RunForked(forked) if number >= at => Some(forked.next_op),
        _ => None,
    })
}

/// An operation with a given output that has another outcome.
fn other_output<'a>(
    final_run: &FinalRun,
    fork: &Fork,
    given: impl Fn(OpNumber) -> Option<&'a Value>,
) -> Option<String> {
    let own = numbered(final_run).filter(|(number, _)| *number >= fork.origin.at);
    let mut seen = BTreeSet::new();
    for (_, event) in own {
        let (op, output) = match event {
            Event::RunRetried(_) => return None,
            Event::StepCompleted { op, output } | Event::ChildCompleted { op, output } => (*op, Some(output)),
            Event::StepFailed { op, .. }
            | Event::ChildFailed { op, .. }
            | Event::ChildCancelled { op, .. } => (*op, None),
            _ => continue,
        };
        let Some(given) = given(op).filter(|_| fork.origin.outputs.contains(&op.0)) else { continue };
        let output = output.and_then(|output| output.decode::<Value>().ok());
        if output.as_ref() != Some(given) || !seen.insert(op) {
            return Some(format!("operation {op} was given {given}, and has the outcome {event:?}"));
        }
    }
    None
}

/// A child of its own that has another parent, or a child of the other run that has this one.
fn foreign_child(final_run: &FinalRun, final_runs: &FinalRuns, fork: &Fork) -> Option<String> {
    let run = final_run.view.id;
    let started = |wanted: RunId| final_runs.get(&wanted).and_then(|child| child.view.parent);
    numbered(final_run).find_map(|(number, event)| {
        let (own, children): (_, Vec<RunId>) = match event {
            Event::ChildStarted(child) if child.key.is_none() => (number >= fork.origin.at, vec![child.run]),
            Event::StepStarted { queued: Some(queued), .. } => (number >= fork.origin.at, vec![queued.run]),
            Event::RunForked(forked) if number >= fork.origin.at => {
                (true, forked.restarts.iter().map(|restarted| restarted.run).collect())
            }
            _ => return None,
        };
        children.into_iter().find_map(|child| {
            let parent = started(child)?;
            (own != (parent.run == run)).then(|| format!("run {child} has the parent {}", parent.run))
        })
    })
}

/// Checks a restarted run against the other one.
pub(super) fn check_restart(
    env: &Environment,
    final_run: &FinalRun,
    final_runs: &FinalRuns,
    violations: &mut Vec<String>,
) {
    let run = final_run.view.id;
    let given = env.controlled.lock().restarts.get(&run).cloned();
    // A call whose answer was lost has started a run as well.
    let Some(of) = final_run.view.restarted_from() else {
        if given.is_some() {
            violations.push(format!("run {run} was restarted, and does not say from which run"));
        }
        return;
    };
    // The tag of a restart stays in a fork of it, or is a fork's own.
    if fork_origin(&final_run.turns).is_some() {
        return;
    }
    let (Some(own), Some(other)) = (final_run.started(), final_runs.get(&of).and_then(FinalRun::started))
    else {
        return violations.push(format!("run {run} is a restart of {of}, which does not exist"));
    };
    let Some(given) = given else { return };
    let expected = given.as_ref().unwrap_or(&other.input);
    if own.input != *expected || own.workflow != other.workflow || own.headers != other.headers {
        violations
            .push(format!("run {run} is a restart of {of}, and began with {own:?} instead of {other:?}"));
    }
    if own.key.is_some() || own.parent.is_some() {
        violations.push(format!("run {run} is a restart of {of}, and has its key or parent"));
    }
}
