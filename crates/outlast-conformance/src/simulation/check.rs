//! The checks at the end of a simulation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outlast_core::queue::BUILT_IN_PREFIX;
use outlast_core::{
    BuiltInRuns, Clock, Event, ForkOrigin, History, OpNumber, Outcome, QueuedSteps, RestartedRun, RunId,
    RunQuery, RunStarted, RunView, Status, Timestamp, TurnRecord,
};
use parking_lot::Mutex;

use super::asks::{check_asks, check_asks_of_run};
use super::client::Acknowledged;
use super::compensations::check_compensations;
use super::coverage::Coverage;
use super::effective::{Counting, effective, fork_origin};
use super::ends::check_run_end;
use super::environment::Environment;
use super::forks::{check_fork, check_restart, given_outcomes, not_started_again};
use super::hooks::check_hooks;
use super::orchestration::{cascading, retried};
use super::program::{play, rare};
use super::retries::check_retries;
use super::schedules::check_schedules;
use super::situations::count_situations;
use super::streams::check_streams;
use super::values::token_of;

/// A run at the end of the simulation.
pub(super) struct FinalRun {
    pub(super) view: RunView,
    /// Its turns, and those of the other run that a fork has left behind because a replay skips them.
    pub(super) turns: Vec<TurnRecord>,
    /// The turns that the world has.
    pub(super) stored: Vec<TurnRecord>,
}

impl FinalRun {
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.turns.iter().flat_map(|turn| &turn.events)
    }

    /// The events that no retry has made forgotten.
    pub(super) fn effective(&self) -> Vec<Counting<'_>> {
        effective(&self.turns)
    }

    /// Where its first events come from, if it is a fork.
    pub(super) fn fork(&self) -> Option<&ForkOrigin> {
        fork_origin(&self.turns)
    }

    /// The number of its first event that is not a copy.
    pub(super) fn copied(&self) -> u64 {
        self.fork().map_or(0, |origin| origin.at)
    }

    /// Whether it has been retried by a client.
    pub(super) fn is_retried(&self) -> bool {
        let copied = self.copied();
        let mut events = self.turns.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
        events.any(|(number, event)| number >= copied && matches!(event, Event::RunRetried(_)))
    }

    /// How it has ended, each time. A fork may have copied ends of the other run.
    pub(super) fn ends(&self) -> impl Iterator<Item = &Event> {
        let copied = self.copied();
        let numbered = self.turns.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
        let own = numbered.filter(move |(number, _)| *number >= copied).map(|(_, event)| event);
        own.filter(|event| Status::of_final(event).is_some())
    }

    /// The run that has recorded an event, if this one has copied it.
    pub(super) fn recorder_of<'a>(&'a self, number: u64, final_runs: &'a FinalRuns) -> RunId {
        match self.fork() {
            Some(origin) if number < origin.at => {
                final_runs.get(&origin.of).map_or(origin.of, |of| of.recorder_of(number, final_runs))
            }
            _ => self.view.id,
        }
    }

    /// Whether its workflow is one of the simulation, and not a queued step or a schedule.
    fn has_text_output(&self) -> bool {
        !self.view.is_queued_step() && !self.view.is_built_in()
    }

    /// How it was started.
    pub(super) fn started(&self) -> Option<&RunStarted> {
        match self.events().next() {
            Some(Event::RunStarted(started)) => Some(started),
            _ => None,
        }
    }

    /// The rules of its history.
    pub(super) fn rules(&self) -> u32 {
        match self.events().next() {
            Some(Event::RunStarted(started)) => started.rules,
            _ => 1,
        }
    }

    /// The outcome without what a parent does not get: the list of failed compensations, and the operation of the child that
    /// the failure came from.
    /// A child that was retried has one for each of its ends.
    fn outcomes_for_parent(&self) -> Vec<Outcome> {
        let mut outcomes: Vec<_> = self.ends().filter_map(Outcome::of_final).collect();
        for outcome in &mut outcomes {
            if let Outcome::Failed(failure) | Outcome::Cancelled(failure) = outcome {
                failure.failed_compensations = Default::default();
                failure.op = None;
            }
        }
        outcomes
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.events().last().and_then(Outcome::of_final)
    }
}

pub(super) type FinalRuns = BTreeMap<RunId, FinalRun>;

/// Runs all checks when all runs have ended.
pub(super) async fn check(env: &Arc<Environment>, acknowledged: &Mutex<Acknowledged>) {
    let queued_steps = QueuedSteps::Listed;
    let built_in = BuiltInRuns::Listed;
    let query = RunQuery { limit: 1_000, queued_steps, built_in, ..RunQuery::default() };
    let Ok(page) = env.inner.runs(query).await else { return };
    let mut final_runs = FinalRuns::new();
    for view in page.runs {
        let stored = env.history(view.id).await;
        final_runs.insert(view.id, FinalRun { view, turns: stored.clone(), stored });
    }
    add_turns_left_behind(&mut final_runs);
    let (mut violations, mut coverage) = (Vec::new(), Coverage::default());
    check_counts(env, &final_runs, &mut violations).await;
    for final_run in final_runs.values() {
        check_end(final_run, &mut violations);
        check_history(final_run, &mut violations);
        check_steps(env, final_run, &final_runs, &mut violations);
        check_timers(final_run, &mut violations);
        check_cancel(env, final_run, &final_runs, &mut violations);
        if !env.is_real_time {
            check_observed(env, final_run, &mut violations);
            check_hooks(env, final_run, &final_runs, &mut violations, &mut coverage);
        }
        count_situations(final_run, &mut coverage);
        check_replay(final_run, &mut violations);
        check_children(env, final_run, &final_runs, &mut violations);
        check_compensations(final_run, &mut violations, &mut coverage);
        check_run_end(env, final_run, &final_runs, &mut violations, &mut coverage);
        check_streams(env, final_run, &mut violations, &mut coverage).await;
        check_queued(final_run, &final_runs, &mut violations);
        if env.is_controlled {
            check_asks_of_run(final_run, &final_runs, &mut violations, &mut coverage);
            check_retries(env, final_run, &mut violations, &mut coverage);
            check_fork(env, final_run, &final_runs, &mut violations, &mut coverage);
            check_restart(env, final_run, &final_runs, &mut violations);
        }
    }
    if env.is_controlled {
        check_asks(env, &final_runs, &mut violations, &mut coverage).await;
    }
    check_schedules(&final_runs, &mut violations, &mut coverage);
    check_acknowledged(&acknowledged.lock(), &final_runs, &mut violations);
    violations.into_iter().for_each(|violation| env.report_violation(violation));
    for final_run in final_runs.values() {
        env.log("end", format_args!("{:?} {:?}", final_run.view, final_run.turns));
    }
    let mut observer = env.observer.lock();
    observer.statistics.coverage.add(&coverage);
    observer.statistics.runs = final_runs.len() as u64;
    observer.statistics.events = final_runs.values().map(|final_run| final_run.events().count() as u64).sum();
}

/// Adds to forks the turns of the other runs that they have not copied.
fn add_turns_left_behind(final_runs: &mut FinalRuns) {
    let complete = |run: &RunId| (*run, with_turns_left_behind(*run, final_runs));
    let forks = final_runs.iter().filter(|(_, final_run)| final_run.fork().is_some());
    let complete: Vec<_> = forks.map(|(run, _)| complete(run)).collect();
    for (run, turns) in complete {
        final_runs.entry(run).and_modify(|final_run| final_run.turns = turns);
    }
}

fn with_turns_left_behind(run: RunId, final_runs: &FinalRuns) -> Vec<TurnRecord> {
    let Some(final_run) = final_runs.get(&run) else { return Vec::new() };
    let mut turns = final_run.stored.clone();
    let Some(origin) = fork_origin(&turns).cloned() else { return turns };
    let others = with_turns_left_behind(origin.of, final_runs).into_iter();
    let has = |seq: u64| final_run.stored.iter().any(|turn| turn.seq == seq);
    turns.extend(others.filter(|turn| turn.seq < origin.at && !has(turn.seq)));
    turns.sort_by_key(|turn| turn.seq);
    turns
}

async fn check_counts(env: &Environment, final_runs: &FinalRuns, violations: &mut Vec<String>) {
    let Ok(counts) = env.inner.counts().await else { return };
    for status in Status::ALL {
        let counted = final_runs.values().filter(|final_run| final_run.view.status == status).count() as u64;
        let counted_by_world = counts.get(&status).copied().unwrap_or_default();
        if counted != counted_by_world {
            violations.push(format!("{counted} runs are {status}, but the world counts {counted_by_world}"));
        }
    }
    let left = env.sessions().await;
    // A session that joined once more after it left holds nothing, and expires.
    if final_runs.values().any(|final_run| final_run.view.owner.is_some()) {
        violations.push(format!("runs are held when all workers are gone, sessions left: {left:?}"));
    }
}

/// Every run ends once, and no event follows the end.
fn check_end(final_run: &FinalRun, violations: &mut Vec<String>) {
    let view = &final_run.view;
    if !view.status.is_final() {
        let waits = &view.waits;
        violations.push(format!(
            "run {} never ended: it is {}, waits {waits:?}, {:?}",
            view.id, view.status, view.stuck
        ));
        return;
    }
    let effective = final_run.effective();
    let ends = effective.iter().filter(|counting| Status::of_final(counting.event).is_some()).count();
    let status = final_run.events().last().and_then(Status::of_final);
    if ends != 1 || status != Some(view.status) {
        violations.push(format!(
            "run {} is {} and has {ends} final events, the last {status:?}",
            view.id, view.status
        ));
    }
}

/// Histories have no gaps, and each operation begins once and ends at most once.
fn check_history(final_run: &FinalRun, violations: &mut Vec<String>) {
    let (run, mut next) = (final_run.view.id, 0);
    for turn in &final_run.turns {
        if turn.seq != next {
            violations.push(format!("the history of run {run} has a gap before event {}", turn.seq));
        }
        next = turn.seq + turn.events.len() as u64;
    }
    let mut ops: BTreeMap<OpNumber, (u32, u32)> = BTreeMap::new();
    for Counting { event, .. } in final_run.effective() {
        let Some(op) = event.op() else { continue };
        let (begins, ends) = ops.entry(op).or_default();
        match event {
            Event::StepStarted { .. }
            | Event::CompensationStarted { .. }
            | Event::TimerStarted { .. }
            | Event::HookOpened { .. }
            | Event::ChildStarted(_) => *begins += 1,
            Event::StepCompleted { .. }
            | Event::StepFailed { .. }
            | Event::ChildCompleted { .. }
            | Event::ChildFailed { .. }
            | Event::ChildCancelled { .. }
            | Event::TimerFired { .. } => *ends += 1,
            _ => {}
        }
    }
    for (op, (begins, ends)) in ops {
        // The timer of a child fires, and the child ends later too.
        if begins > 1 || ends > 2 || (begins == 0 && ends > 0) {
            violations
                .push(format!("operation {op} of run {run} began {begins} times and ended {ends} times"));
        }
    }
}

/// The world has what it acknowledged, and nothing else.
fn check_observed(env: &Environment, final_run: &FinalRun, violations: &mut Vec<String>) {
    let observer = env.observer.lock();
    let Some(observed) = observer.runs.get(&final_run.view.id) else {
        violations.push(format!("nobody saw run {} begin", final_run.view.id));
        return;
    };
    if observed.turns != final_run.stored {
        violations.push(format!(
            "the history of run {} is not what was committed: {:?} is not {:?}",
            final_run.view.id, final_run.stored, observed.turns
        ));
    }
}

/// Outcomes of steps are what attempts returned, and come once.
fn check_steps(
    env: &Environment,
    final_run: &FinalRun,
    final_runs: &FinalRuns,
    violations: &mut Vec<String>,
) {
    let run = final_run.view.id;
    let attempt_log = env.attempt_log.lock();
    let mut names = BTreeMap::new();
    let mut ended = BTreeMap::new();
    for Counting { number, event, .. } in final_run.effective() {
        match event {
            Event::StepStarted { op, name, .. } => drop(names.insert(*op, name.clone())),
            Event::StepCompleted { op, output } => {
                *ended.entry(*op).or_insert(0) += 1;
                // Their outputs are not those of attempts in the log.
                let is_call = names.get(op).is_some_and(|name| {
                    name.starts_with("call-") || name.starts_with(BUILT_IN_PREFIX) || &**name == "finished"
                });
                let token: u64 = output.decode().unwrap_or_default();
                let requested_by = final_run.view.parent.filter(|_| final_run.view.is_queued_step());
                let recorder = final_run.recorder_of(number, final_runs);
                let requested =
                    requested_by.map_or((recorder, *op), |requested_by| (requested_by.run, requested_by.op));
                let is_known =
                    attempt_log.returned.get(&requested).is_some_and(|known| known.contains(&token));
                if !is_call && !is_known {
                    violations.push(format!("step {op} of run {run} has an output that no attempt returned"));
                }
            }
            Event::StepFailed { op, .. } => *ended.entry(*op).or_insert(0) += 1,
            _ => {}
        }
    }
    for (op, count) in ended.into_iter().filter(|(_, count)| *count > 1) {
        violations.push(format!("step {op} of run {run} has {count} outcomes"));
    }
}

/// From rules 2 on, a cancel records the operations that it ends. They have no later outcome, and steps that the cancel
/// does not list as maybe attempted were not attempted.
fn check_cancel(
    env: &Environment,
    final_run: &FinalRun,
    final_runs: &FinalRuns,
    violations: &mut Vec<String>,
) {
    let run = final_run.view.id;
    if final_run.rules() < 2 {
        return;
    }
    let effective = final_run.effective();
    let mut events = effective.iter().map(|counting| counting.event);
    let (mut steps, mut failed) = (BTreeSet::new(), BTreeMap::new());
    let ended = events.by_ref().find_map(|event| match event {
        Event::StepStarted { op, queued: None, .. } => {
            steps.insert(*op);
            None
        }
        Event::StepRetried { op, attempt, .. } => {
            failed.insert(*op, *attempt);
            None
        }
        Event::CancelRequested { ends, maybe_attempted, .. } => Some((ends, maybe_attempted)),
        _ => None,
    });
    let Some((ends, maybe_attempted)) = ended else { return };
    for event in events {
        let is_outcome = matches!(
            event,
            Event::StepCompleted { .. }
                | Event::StepFailed { .. }
                | Event::StepRetried { .. }
                | Event::TimerFired { .. }
        );
        if let Some(op) = event.op().filter(|op| is_outcome && ends.contains(op)) {
            violations.push(format!(
                "operation {op} of run {run} was ended by the cancel, but later there is {event:?}"
            ));
        }
    }
    // The attempts before a retry do not count, and those of the run from which it was forked are its own.
    if final_run.is_retried() || final_run.fork().is_some() {
        return;
    }
    let requested_by = final_run.view.parent.filter(|_| final_run.view.is_queued_step());
    // A retry of the run that requested the step has started it again: the log does not tell the attempts apart.
    if requested_by.and_then(|by| final_runs.get(&by.run)).is_some_and(FinalRun::is_retried) {
        return;
    }
    let attempt_log = env.attempt_log.lock();
    for op in ends.iter().filter(|op| steps.contains(op) && !maybe_attempted.contains(op)) {
        let known = failed.get(op).copied().unwrap_or_default();
        let requested = requested_by.map_or((run, *op), |requested_by| (requested_by.run, requested_by.op));
        if attempt_log.begun.contains_key(&(requested.0, requested.1, 0, known + 1)) {
            violations.push(format!("step {op} of run {run} was attempted, but its cancel does not say so"));
        }
    }
}

/// Timers do not fire early.
fn check_timers(final_run: &FinalRun, violations: &mut Vec<String>) {
    let mut due: BTreeMap<OpNumber, Timestamp> = BTreeMap::new();
    // A retry records again what had fired.
    let mut fired = BTreeSet::new();
    for turn in &final_run.turns {
        for event in &turn.events {
            match event {
                Event::TimerStarted { op, fire_at } => drop(due.insert(*op, *fire_at)),
                Event::HookOpened { op, timeout_at, .. } => due.extend(timeout_at.map(|at| (*op, at))),
                Event::ChildStarted(child) => due.extend(child.timeout_at.map(|at| (child.op, at))),
                Event::RunRetried(retried) => {
                    fired.remove(&retried.reopens);
                    due.extend(retried.renews.iter().map(|wait| (wait.op, wait.until)));
                }
                Event::RunForked(forked) => {
                    due.extend(forked.renews.iter().map(|wait| (wait.op, wait.until)));
                }
                Event::TimerFired { op } if fired.contains(op) => {}
                Event::TimerFired { op } if due.get(op).is_some_and(|due| *due <= turn.at) => {
                    fired.insert(*op);
                }
                Event::TimerFired { op } => {
                    let run = final_run.view.id;
                    violations.push(format!(
                        "timer {op} of run {run} fired early: {} < {:?}",
                        turn.at,
                        due.get(op)
                    ));
                }
                _ => {}
            }
        }
    }
}

/// The same code and history give the same operations, for the complete history and for half of it.
fn check_replay(final_run: &FinalRun, violations: &mut Vec<String>) {
    let run = final_run.view.id;
    if final_run.view.is_queued_step() {
        // Its code is part of the engine.
        return;
    }
    for turns in [final_run.stored.len(), final_run.stored.len() / 2] {
        let history = History { run, turns: final_run.stored[..turns].to_vec() };
        let last = history.turns.last();
        if last.is_none_or(|last| last.seq + last.events.len() as u64 <= final_run.copied()) {
            continue;
        }
        if let Err(error) = outlast::replay((play, rare, retried, cascading), history) {
            violations.push(format!("run {run} does not replay {turns} turns: {}", error.message()));
        }
    }
}

/// The history of a parent has the outcomes of its children.
fn check_children(
    env: &Environment,
    final_run: &FinalRun,
    final_runs: &FinalRuns,
    violations: &mut Vec<String>,
) {
    let parent = final_run.view.id;
    let mut children = BTreeMap::new();
    let (effective, given) = (final_run.effective(), given_outcomes(final_run, final_runs));
    for Counting { event, .. } in &effective {
        let (op, outcome) = match event {
            Event::ChildStarted(child) => {
                children.insert(child.op, (child.run, child.key.is_none()));
                continue;
            }
            Event::RunRetried(retried) => {
                restart(&mut children, &retried.restarts);
                continue;
            }
            Event::RunForked(forked) => {
                restart(&mut children, &forked.restarts);
                continue;
            }
            Event::ChildCompleted { op, output } => (op, Outcome::Completed(output.clone())),
            Event::ChildFailed { op, failure } => (op, Outcome::Failed(failure.clone())),
            Event::ChildCancelled { op, failure } => (op, Outcome::Cancelled(failure.clone())),
            _ => continue,
        };
        let Some((child, _)) = children.get(op) else { continue };
        if given.contains(op) {
            continue;
        }
        match final_runs.get(child) {
            // The start of the child was refused.
            None if matches!(outcome, Outcome::Failed(_)) => {}
            None => violations.push(format!("run {parent} has the outcome of a child that does not exist")),
            Some(child) if child.outcomes_for_parent().contains(&outcome) => {}
            Some(child) => violations.push(format!(
                "run {parent} has the outcome {outcome:?} of its child {}, which ended with {:?}",
                child.view.id,
                child.outcome()
            )),
        }
    }
    let now = env.clock.now();
    let not_started = not_started_again(final_run, final_runs);
    children.retain(|op, _| !not_started.contains(op));
    for (child, _) in children.values().filter(|(_, has_no_key)| *has_no_key) {
        if !final_runs.contains_key(child) {
            violations.push(format!("child {child} of run {parent} was never started; it is {now} now"));
        }
    }
}

/// Sets the runs that a retry or fork has started again. Those of queued steps are not among the children.
fn restart(children: &mut BTreeMap<OpNumber, (RunId, bool)>, restarts: &[RestartedRun]) {
    for restarted in restarts {
        if let Some(child) = children.get_mut(&restarted.op) {
            *child = (restarted.run, true);
        }
    }
}

/// The history of a run has the outcomes of its queued steps.
fn check_queued(final_run: &FinalRun, final_runs: &FinalRuns, violations: &mut Vec<String>) {
    let run = final_run.view.id;
    let mut queued: BTreeMap<OpNumber, RunId> = BTreeMap::new();
    let given = given_outcomes(final_run, final_runs);
    for Counting { event, .. } in final_run.effective() {
        let (op, outcome) = match event {
            Event::StepStarted { op, queued: Some(step), .. }
            | Event::CompensationStarted { op, queued: Some(step), .. } => {
                queued.insert(*op, step.run);
                continue;
            }
            Event::RunRetried(retried) => {
                restart_steps(&mut queued, &retried.restarts);
                continue;
            }
            Event::RunForked(forked) => {
                restart_steps(&mut queued, &forked.restarts);
                continue;
            }
            Event::StepCompleted { op, output } => (op, Ok(output)),
            Event::StepFailed { op, failure } => (op, Err(&failure.message)),
            _ => continue,
        };
        let Some(step) = queued.get(op) else { continue };
        if given.contains(op) {
            continue;
        }
        let ended = final_runs.get(step).and_then(FinalRun::outcome);
        let is_same = match (&ended, &outcome) {
            (Some(Outcome::Completed(output)), Ok(received)) => output == *received,
            (Some(Outcome::Failed(failure) | Outcome::Cancelled(failure)), Err(received)) => {
                failure.message == **received
            }
            _ => false,
        };
        if !is_same {
            violations.push(format!(
                "run {run} has the outcome {outcome:?} of its step {op}, which ended with {ended:?}"
            ));
        }
    }
    let not_started = not_started_again(final_run, final_runs);
    queued.retain(|op, _| !not_started.contains(op));
    for step in queued.into_values().filter(|step| !final_runs.contains_key(step)) {
        violations.push(format!("queued step {step} of run {run} was never started"));
    }
}

/// Sets the runs of queued steps that a retry or fork has started again.
fn restart_steps(queued: &mut BTreeMap<OpNumber, RunId>, restarts: &[RestartedRun]) {
    for restarted in restarts {
        if let Some(step) = queued.get_mut(&restarted.op) {
            *step = restarted.run;
        }
    }
}

/// Nothing acknowledged is lost.
fn check_acknowledged(acknowledged: &Acknowledged, final_runs: &FinalRuns, violations: &mut Vec<String>) {
    let mut keys = BTreeMap::new();
    for (run, key) in &acknowledged.starts {
        if !final_runs.contains_key(run) {
            violations.push(format!("the start of run {run} was acknowledged, but the run does not exist"));
        }
        if let Some(key) = key
            && *keys.entry(key).or_insert(run) != run
        {
            violations.push(format!("key `{key}` is the key of two runs"));
        }
    }
    for ((sender, run), tokens) in &acknowledged.sends {
        let Some(final_run) = final_runs.get(run) else { continue };
        let effective = final_run.effective();
        let received = effective.iter().filter_map(|counting| match counting.event {
            Event::HookReceived { payload, .. } => token_of(payload),
            _ => None,
        });
        let received: Vec<u64> = received.filter(|token| tokens.contains(token)).collect();
        // A retry forgets what the reopened hook had taken.
        let mut left = tokens.iter();
        let is_in_order = received.iter().all(|token| left.any(|sent| sent == token));
        // A run that has ended did not read the rest.
        let is_right = if final_run.is_retried() { is_in_order } else { tokens.starts_with(&received) };
        if !is_right {
            violations.push(format!("{sender} sent run {run} {tokens:?}, but its history has {received:?}"));
        }
        if !final_run.view.status.is_final() && received.len() < tokens.len() {
            violations.push(format!("{sender} sent run {run} {tokens:?}, but its history has {received:?}"));
        }
    }
    let of_workflows = |run: &RunId| final_runs.get(run).is_none_or(|final_run| final_run.has_text_output());
    // The output of a queued step or schedule is no text.
    for (run, output) in acknowledged.outputs.iter().filter(|(run, _)| of_workflows(run)) {
        // A run that was retried has ended several times.
        let ends = final_runs.get(run).into_iter().flat_map(FinalRun::ends).filter_map(Outcome::of_final);
        let ended: Vec<_> = ends
            .map(|outcome| match outcome {
                Outcome::Completed(output) => output.decode().map_err(|error| error.to_string()),
                Outcome::Failed(failure) | Outcome::Cancelled(failure) => Err(failure.message),
            })
            .collect();
        if !ended.contains(output) {
            violations
                .push(format!("a client got the output {output:?} of run {run}, which ended with {ended:?}"));
        }
    }
}
