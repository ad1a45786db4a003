//! What must be true in the end, whatever went wrong before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outlast_core::{
    Clock, Event, History, OpNumber, Outcome, QueuedSteps, RunId, RunQuery, RunView, Status, Timestamp,
    TurnRecord,
};
use parking_lot::Mutex;

use super::census::count_situations;
use super::client::Promises;
use super::coverage::Coverage;
use super::hooks::check_hooks;
use super::program::{play, rare};
use super::stage::Stage;
use super::values::token_of;

/// A run at the end.
pub(super) struct Life {
    pub(super) view: RunView,
    pub(super) turns: Vec<TurnRecord>,
}

impl Life {
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.turns.iter().flat_map(|turn| &turn.events)
    }

    /// The rules that decide what its history means.
    pub(super) fn rules(&self) -> u32 {
        match self.events().next() {
            Some(Event::RunStarted(started)) => started.rules,
            _ => 1,
        }
    }

    fn outcome(&self) -> Option<Outcome> {
        self.events().last().and_then(Outcome::of_final)
    }
}

type Lives = BTreeMap<RunId, Life>;

/// Looks at everything once more, when all is quiet.
pub(super) async fn check(stage: &Arc<Stage>, promises: &Mutex<Promises>) {
    let queued_steps = QueuedSteps::Listed;
    let query = RunQuery { limit: 1_000, queued_steps, ..RunQuery::default() };
    let Ok(page) = stage.inner.runs(query).await else { return };
    let mut lives = Lives::new();
    for view in page.runs {
        let turns = stage.history(view.id).await;
        lives.insert(view.id, Life { view, turns });
    }
    let (mut wrongs, mut coverage) = (Vec::new(), Coverage::default());
    check_counts(stage, &lives, &mut wrongs).await;
    for life in lives.values() {
        check_end(life, &mut wrongs);
        check_shape(life, &mut wrongs);
        check_steps(stage, life, &mut wrongs);
        check_timers(life, &mut wrongs);
        check_cancel(stage, life, &mut wrongs);
        if !stage.is_earnest {
            check_witness(stage, life, &mut wrongs);
            check_hooks(stage, life, &mut wrongs, &mut coverage);
        }
        count_situations(life, &mut coverage);
        check_replay(life, &mut wrongs);
        check_children(stage, life, &lives, &mut wrongs);
        check_queued(life, &lives, &mut wrongs);
    }
    check_promises(&promises.lock(), &lives, &mut wrongs);
    wrongs.into_iter().for_each(|wrong| stage.wrong(wrong));
    for life in lives.values() {
        stage.note("end", format_args!("{:?} {:?}", life.view, life.turns));
    }
    let mut witness = stage.witness.lock();
    witness.tally.coverage.add(&coverage);
    witness.tally.runs = lives.len() as u64;
    witness.tally.events = lives.values().map(|life| life.events().count() as u64).sum();
}

async fn check_counts(stage: &Stage, lives: &Lives, wrongs: &mut Vec<String>) {
    let Ok(counts) = stage.inner.counts().await else { return };
    for status in Status::ALL {
        let counted = lives.values().filter(|life| life.view.status == status).count() as u64;
        let said = counts.get(&status).copied().unwrap_or_default();
        if counted != said {
            wrongs.push(format!("{counted} runs are {status}, and the world counts {said}"));
        }
    }
    let left = stage.sessions().await;
    // A session that joined once more after it left holds nothing, and expires.
    if lives.values().any(|life| life.view.owner.is_some()) {
        wrongs.push(format!("runs are held when all workers are gone, sessions left: {left:?}"));
    }
}

/// Every run ends, once, and nothing follows.
fn check_end(life: &Life, wrongs: &mut Vec<String>) {
    let view = &life.view;
    if !view.status.is_final() {
        let waits = &view.waits;
        wrongs
            .push(format!("run {} is {} for ever, waits {waits:?}, {:?}", view.id, view.status, view.stuck));
        return;
    }
    let ends = life.events().filter(|event| Status::of_final(event).is_some()).count();
    let status = life.events().last().and_then(Status::of_final);
    if ends != 1 || status != Some(view.status) {
        wrongs.push(format!(
            "run {} is {} and has {ends} final events, the last {status:?}",
            view.id, view.status
        ));
    }
}

/// Histories have no gaps, and each operation is asked for once and ends at most once.
fn check_shape(life: &Life, wrongs: &mut Vec<String>) {
    let (run, mut next) = (life.view.id, 0);
    for turn in &life.turns {
        if turn.seq != next {
            wrongs.push(format!("the history of run {run} has a gap before event {}", turn.seq));
        }
        next = turn.seq + turn.events.len() as u64;
    }
    let mut ops: BTreeMap<OpNumber, (u32, u32)> = BTreeMap::new();
    for event in life.events() {
        let Some(op) = event.op() else { continue };
        let (begins, ends) = ops.entry(op).or_default();
        match event {
            Event::StepStarted { .. }
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
        // A child that timed out fires, and ends later too.
        if begins > 1 || ends > 2 || (begins == 0 && ends > 0) {
            wrongs.push(format!("operation {op} of run {run} began {begins} times and ended {ends} times"));
        }
    }
}

/// The world has what it acknowledged, and nothing else.
fn check_witness(stage: &Stage, life: &Life, wrongs: &mut Vec<String>) {
    let witness = stage.witness.lock();
    let Some(seen) = witness.runs.get(&life.view.id) else {
        wrongs.push(format!("nobody saw run {} begin", life.view.id));
        return;
    };
    if seen.turns != life.turns {
        wrongs.push(format!(
            "the history of run {} is not what was committed: {:?} is not {:?}",
            life.view.id, life.turns, seen.turns
        ));
    }
}

/// Outcomes of steps are what attempts returned, and come once.
fn check_steps(stage: &Stage, life: &Life, wrongs: &mut Vec<String>) {
    let run = life.view.id;
    let ledger = stage.ledger.lock();
    let mut names = BTreeMap::new();
    let mut ended = BTreeMap::new();
    for event in life.events() {
        match event {
            Event::StepStarted { op, name, .. } => drop(names.insert(*op, name.clone())),
            Event::StepCompleted { op, output } => {
                *ended.entry(*op).or_insert(0) += 1;
                let is_call = names.get(op).is_some_and(|name| name.starts_with("call-"));
                let token: u64 = output.decode().unwrap_or_default();
                let asker = life.view.parent.filter(|_| life.view.is_queued_step());
                let asked = asker.map_or((run, *op), |asker| (asker.run, asker.op));
                let is_known = ledger.returned.get(&asked).is_some_and(|known| known.contains(&token));
                if !is_call && !is_known {
                    wrongs.push(format!("step {op} of run {run} has an output that no attempt returned"));
                }
            }
            Event::StepFailed { op, .. } => *ended.entry(*op).or_insert(0) += 1,
            _ => {}
        }
    }
    for (op, count) in ended.into_iter().filter(|(_, count)| *count > 1) {
        wrongs.push(format!("step {op} of run {run} has {count} outcomes"));
    }
}

/// From rules 2 on a cancel records what it ends: nothing more is heard of that, and what it does not say may have
/// been attempted was not.
fn check_cancel(stage: &Stage, life: &Life, wrongs: &mut Vec<String>) {
    let run = life.view.id;
    if life.rules() < 2 {
        return;
    }
    let mut events = life.events();
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
            wrongs.push(format!("operation {op} of run {run} was ended by the cancel, and then {event:?}"));
        }
    }
    let asker = life.view.parent.filter(|_| life.view.is_queued_step());
    let ledger = stage.ledger.lock();
    for op in ends.iter().filter(|op| steps.contains(op) && !maybe_attempted.contains(op)) {
        let known = failed.get(op).copied().unwrap_or_default();
        let asked = asker.map_or((run, *op), |asker| (asker.run, asker.op));
        if ledger.begun.contains_key(&(asked.0, asked.1, known + 1)) {
            wrongs.push(format!("step {op} of run {run} was attempted, and its cancel does not say so"));
        }
    }
}

/// Timers do not fire early.
fn check_timers(life: &Life, wrongs: &mut Vec<String>) {
    let mut due: BTreeMap<OpNumber, Timestamp> = BTreeMap::new();
    for turn in &life.turns {
        for event in &turn.events {
            match event {
                Event::TimerStarted { op, fire_at } => drop(due.insert(*op, *fire_at)),
                Event::HookOpened { op, timeout_at, .. } => due.extend(timeout_at.map(|at| (*op, at))),
                Event::ChildStarted(child) => due.extend(child.timeout_at.map(|at| (child.op, at))),
                Event::TimerFired { op } if due.get(op).is_none_or(|due| *due > turn.at) => {
                    let run = life.view.id;
                    wrongs.push(format!(
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

/// Same code and same history give the same operations, for the whole and for a part.
fn check_replay(life: &Life, wrongs: &mut Vec<String>) {
    let run = life.view.id;
    if life.view.is_queued_step() {
        // Its code is the engine's own.
        return;
    }
    for turns in [life.turns.len(), life.turns.len() / 2] {
        let history = History { run, turns: life.turns[..turns].to_vec() };
        if history.turns.is_empty() {
            continue;
        }
        if let Err(error) = outlast::replay((play, rare), history) {
            wrongs.push(format!("run {run} does not replay {turns} turns: {}", error.message()));
        }
    }
}

/// Parents and children agree.
fn check_children(stage: &Stage, life: &Life, lives: &Lives, wrongs: &mut Vec<String>) {
    let parent = life.view.id;
    let mut children = BTreeMap::new();
    for event in life.events() {
        let (op, outcome) = match event {
            Event::ChildStarted(child) => {
                children.insert(child.op, child);
                continue;
            }
            Event::ChildCompleted { op, output } => (op, Outcome::Completed(output.clone())),
            Event::ChildFailed { op, failure } => (op, Outcome::Failed(failure.clone())),
            Event::ChildCancelled { op, failure } => (op, Outcome::Cancelled(failure.clone())),
            _ => continue,
        };
        let Some(child) = children.get(op) else { continue };
        match lives.get(&child.run) {
            // Its start was refused.
            None if matches!(outcome, Outcome::Failed(_)) => {}
            None => wrongs.push(format!("run {parent} heard of the end of a child that never was")),
            Some(child) if child.outcome() == Some(outcome.clone()) => {}
            Some(child) => wrongs.push(format!(
                "run {parent} was told {outcome:?} of its child {}, which ended {:?}",
                child.view.id,
                child.outcome()
            )),
        }
    }
    let now = stage.clock.now();
    for child in children.values().filter(|child| child.key.is_none()) {
        if !lives.contains_key(&child.run) {
            wrongs.push(format!("child {} of run {parent} was never started, and it is {now}", child.run));
        }
    }
}

/// Runs and their queued steps agree.
fn check_queued(life: &Life, lives: &Lives, wrongs: &mut Vec<String>) {
    let run = life.view.id;
    let mut queued = BTreeMap::new();
    for event in life.events() {
        let (op, outcome) = match event {
            Event::StepStarted { op, queued: Some(step), .. } => {
                queued.insert(*op, step.run);
                continue;
            }
            Event::StepCompleted { op, output } => (op, Ok(output)),
            Event::StepFailed { op, failure } => (op, Err(&failure.message)),
            _ => continue,
        };
        let Some(step) = queued.get(op) else { continue };
        let ended = lives.get(step).and_then(Life::outcome);
        let is_same = match (&ended, &outcome) {
            (Some(Outcome::Completed(output)), Ok(told)) => output == *told,
            (Some(Outcome::Failed(failure) | Outcome::Cancelled(failure)), Err(told)) => {
                failure.message == **told
            }
            _ => false,
        };
        if !is_same {
            wrongs.push(format!("run {run} was told {outcome:?} of its step {op}, which ended {ended:?}"));
        }
    }
    for step in queued.into_values().filter(|step| !lives.contains_key(step)) {
        wrongs.push(format!("queued step {step} of run {run} was never started"));
    }
}

/// Nothing that was acknowledged is lost.
fn check_promises(promises: &Promises, lives: &Lives, wrongs: &mut Vec<String>) {
    let mut keys = BTreeMap::new();
    for (run, key) in &promises.starts {
        if !lives.contains_key(run) {
            wrongs.push(format!("the start of run {run} was acknowledged, and there is none"));
        }
        if let Some(key) = key
            && *keys.entry(key).or_insert(run) != run
        {
            wrongs.push(format!("key `{key}` is the key of two runs"));
        }
    }
    for ((sender, run), tokens) in &promises.sends {
        let Some(life) = lives.get(run) else { continue };
        let told = life.events().filter_map(|event| match event {
            Event::HookReceived { payload, .. } => token_of(payload),
            _ => None,
        });
        let told: Vec<u64> = told.filter(|token| tokens.contains(token)).collect();
        // Whoever ended did not read the rest.
        if !tokens.starts_with(&told) {
            wrongs.push(format!("{sender} sent run {run} {tokens:?}, and it was told {told:?}"));
        }
        if !life.view.status.is_final() && told.len() < tokens.len() {
            wrongs.push(format!("{sender} sent run {run} {tokens:?}, and it was told {told:?}"));
        }
    }
    let of_workflows = |run: &RunId| lives.get(run).is_none_or(|life| !life.view.is_queued_step());
    // What a queued step returns is no text.
    for (run, output) in promises.outputs.iter().filter(|(run, _)| of_workflows(run)) {
        let said = lives.get(run).and_then(Life::outcome).map(|outcome| match outcome {
            Outcome::Completed(output) => output.decode().map_err(|error| error.to_string()),
            Outcome::Failed(failure) | Outcome::Cancelled(failure) => Err(failure.message),
        });
        if said.as_ref() != Some(output) {
            wrongs.push(format!("a waiter was told {output:?} of run {run}, which ended {said:?}"));
        }
    }
}
