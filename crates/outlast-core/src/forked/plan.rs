//! What a fork of a run would do, computed from its history alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::outputs::replaced_outcomes;
use super::{ForkOrigin, ForkRefusal, forked_tags, rewritten_turn};
use crate::cut::{ReplayHistory, missing_turns, replay_from, retried_ranges};
use crate::event::{Event, OpNumber, RunStarted, TurnRecord};
use crate::id::RunId;
use crate::payload::Payload;
use crate::retried::PlannedOperation;
use crate::retried::plan::{EffectiveEvents, apply};
use crate::run::{Status, Tags};
use crate::view::OperationKind;

/// Where a fork begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkPoint<'a> {
    /// The fork has the events before this one.
    At(u64),
    /// These operations get other outcomes, and everything after the earliest of them is dropped.
    Outputs(&'a [OpNumber]),
}

/// What a fork of a run would do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForkPlan {
    /// The number of the first event that is not copied.
    pub at: u64,
    /// The number of events in the history.
    pub events: u64,
    /// The operations that are open at the cut and get no other outcome: the steps among them run again, the waits begin
    /// again. Operations that the workflow requests afterwards are not known.
    pub open: Vec<PlannedOperation>,
    /// The operations of the other run that it requested behind the cut: the workflow decides anew about them.
    pub later: Vec<PlannedOperation>,
    /// The operations that get other outcomes, in the order of the recorded ones.
    pub outputs: Vec<PlannedOutput>,
    /// The numbers of the events that requested the open operations.
    requested_at: BTreeMap<OpNumber, u64>,
    /// The start of the run, as the generation of the cut has it. Its input may be missing.
    started: RunStarted,
    /// The first events of the turns that the fork does not copy as they are.
    rewrites: Vec<u64>,
    /// The turns that are copied as they are, by the numbers of their first events.
    ranges: Vec<RangeInclusive<u64>>,
    /// The number of turns in these ranges.
    copied: u64,
    /// The first event that a replay needs.
    replay_from: u64,
    /// The generation of the cut.
    generation: u64,
}

/// An operation that gets another outcome.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlannedOutput {
    /// The operation.
    pub op: OpNumber,
    /// Its kind; `None` for a recorded value.
    pub kind: Option<OperationKind>,
    /// The name of the step, hook, workflow or value.
    pub name: Arc<str>,
    /// The number of the first event that is replaced.
    pub from: u64,
}

impl ForkPlan {
    /// What a fork would do. `history` must be complete, except for turns that are deleted; payloads may be missing. The
    /// caller also refuses a fork if an open [child](Self::children) had begun.
    ///
    /// # Errors
    ///
    /// Why the run cannot be forked there.
    pub fn of(history: &[TurnRecord], point: ForkPoint<'_>, is_forced: bool) -> Result<Self, ForkRefusal> {
        let events = history.last().map_or(0, |turn| turn.seq + turn.events.len() as u64);
        let (at, outputs) = match point {
            ForkPoint::At(at) => (before_last_drops(history, before_retry(history, at)), Vec::new()),
            ForkPoint::Outputs(ops) => replaced_outcomes(history, events, ops)?,
        };
        let before = events_before(history, at, events)?;
        let replayed = check_replayable(&before, at)?;
        let effective = EffectiveEvents::of(&before);
        check_running(&effective)?;
        check_begun(history, at)?;
        let (mut open, mut requested_at) = (BTreeMap::new(), BTreeMap::new());
        for (number, event) in &effective.events {
            if let Some(op) = event.op().filter(|_| event.is_decision()) {
                requested_at.entry(op).or_insert(*number);
            }
            apply(&mut open, event);
        }
        check_askable(&replayed, &effective, &requested_at)?;
        open.retain(|op, _| !outputs.iter().any(|output| output.op == *op));
        requested_at.retain(|op, _| open.contains_key(op));
        if let Some(once) = open.values().find(|open| open.is_once && !is_forced) {
            return Err(ForkRefusal::AtMostOnce(once.op, once.name.clone()));
        }
        let rewrites = rewrites(&before, &replayed);
        let replay_from = replay_from(&before, at);
        let (ranges, copied) = copied_turns(&before, replay_from, &rewrites);
        Ok(Self {
            at,
            events,
            open: open.into_values().collect(),
            later: later_operations(history, at),
            outputs,
            requested_at,
            ranges,
            copied,
            rewrites,
            replay_from,
            generation: replayed.begin.generation,
            started: replayed.begin.started,
        })
    }

    /// The steps that run again.
    pub fn steps(&self) -> impl Iterator<Item = &PlannedOperation> {
        self.open.iter().filter(|open| open.kind == OperationKind::Step)
    }

    /// The open children, which the fork starts again. It is refused if one of them had begun.
    pub fn children(&self) -> impl Iterator<Item = &PlannedOperation> {
        self.open.iter().filter(|open| open.kind == OperationKind::Child)
    }

    /// The number of the event that requested an open operation.
    pub fn requested_at(&self, op: OpNumber) -> Option<u64> {
        self.requested_at.get(&op).copied()
    }

    /// The number of events that are not copied.
    pub fn dropped(&self) -> u64 {
        self.events.saturating_sub(self.at)
    }

    /// How the run was started, as the generation of the cut has it. Its input may be missing.
    pub fn started(&self) -> &RunStarted {
        &self.started
    }

    /// The tags of the fork of this run. Its worker adds those that the workflow has set since.
    pub fn tags(&self, of: RunId) -> Tags {
        forked_tags(&self.started.tags, of)
    }

    /// The first events of the turns that [`rewrite`](Self::rewrite) needs, with their payloads.
    pub fn rewrites(&self) -> &[u64] {
        &self.rewrites
    }

    /// The turns that are copied as they are, by the numbers of their first events.
    pub fn ranges(&self) -> &[RangeInclusive<u64>] {
        &self.ranges
    }

    /// The number of turns in these ranges.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// The number of the first event that a replay of the fork needs.
    pub fn replay_from(&self) -> u64 {
        self.replay_from
    }

    /// How often the run had continued as a new generation at the cut.
    pub fn continued(&self) -> u64 {
        self.generation - 1
    }

    /// Where the events of the fork come from, without the digest of other outcomes.
    pub fn origin(&self, of: RunId, actor: Option<String>) -> ForkOrigin {
        let seed = self.started.forked.as_ref().map_or(of, |origin| origin.seed);
        let outputs = self.outputs.iter().filter(|output| output.kind.is_some()).map(|output| output.op.0);
        ForkOrigin { of, at: self.at, seed, outputs: outputs.collect(), digest: None, actor }
    }

    /// The turns as the fork records them, of the turns of the other run. `values` replace recorded values.
    pub fn rewrite(
        &self,
        turns: Vec<TurnRecord>,
        origin: &ForkOrigin,
        values: &BTreeMap<OpNumber, Payload>,
    ) -> Vec<TurnRecord> {
        turns.into_iter().map(|turn| rewritten_turn(turn, origin, values)).collect()
    }
}

/// The cut for a fork at an event: events between the end of a run and the retry that opened it again have no effect, so
/// a fork there begins at the cut point of the retry.
fn before_retry(history: &[TurnRecord], mut at: u64) -> u64 {
    let numbered = || history.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
    let has_ended = |from: u64, at: u64| {
        numbered().any(|(number, event)| (from..at).contains(&number) && Status::of_final(event).is_some())
    };
    for (number, event) in numbered().collect::<Vec<_>>().into_iter().rev() {
        if let Event::RunRetried(retried) = event
            && retried.from < at
            && at <= number
            && has_ended(retried.from, at)
        {
            at = retried.from;
        }
    }
    at
}

/// The cut for a fork at an event: before a run continues as a new generation, or begins again, it drops what its workflow
/// has left open. A fork between these drops begins before them: its workflow returns as well, and drops the same.
fn before_last_drops(history: &[TurnRecord], at: u64) -> u64 {
    let is_drop = |event: &Event| {
        matches!(
            event,
            Event::StepDropped { .. }
                | Event::TimerCancelled { .. }
                | Event::HookClosed { .. }
                | Event::ChildDropped { .. }
                | Event::TokenClosed { .. }
                | Event::OperationCancelled { .. }
        )
    };
    let Some(turn) = history.iter().rfind(|turn| turn.seq <= at) else { return at };
    let before = usize::try_from(at - turn.seq).unwrap_or(usize::MAX).min(turn.events.len());
    let (copied, rest) = turn.events.split_at(before);
    let next = rest.iter().find(|event| !is_drop(event));
    if !matches!(next, Some(Event::RunContinued(_) | Event::RunRetrying(_))) {
        return at;
    }
    at - copied.iter().rev().take_while(|event| is_drop(event)).count() as u64
}

/// The turns before an event, the last one as far as it.
fn events_before(history: &[TurnRecord], at: u64, events: u64) -> Result<Vec<TurnRecord>, ForkRefusal> {
    if at == 0 {
        return Err(ForkRefusal::Nothing);
    }
    if at > events {
        return Err(ForkRefusal::NoSuchEvent { at, events });
    }
    let mut before: Vec<_> = history.iter().filter(|turn| turn.seq < at).cloned().collect();
    let last = before.last_mut().ok_or(ForkRefusal::Deleted(at))?;
    let kept = usize::try_from(at - last.seq).unwrap_or(usize::MAX);
    if kept > last.events.len() {
        return Err(ForkRefusal::Deleted(at));
    }
    last.events.truncate(kept);
    Ok(before)
}

/// The replayed part of the copied events, if nothing that it needs is deleted.
fn check_replayable(before: &[TurnRecord], at: u64) -> Result<ReplayHistory, ForkRefusal> {
    let deleted = || ForkRefusal::Deleted(at);
    if !missing_turns(before).is_empty() {
        return Err(deleted());
    }
    let replayed = ReplayHistory::of(before.to_vec()).map_err(|_| deleted())?;
    let mut skips = replayed.skips.clone();
    skips.extend(retried_ranges(before));
    let mut next = replayed.turns.first().map_or(0, |turn| turn.seq);
    for turn in &replayed.turns {
        let is_skipped = skips.iter().any(|skip| skip.start <= next && turn.seq <= skip.end);
        if turn.seq > next && !is_skipped {
            return Err(deleted());
        }
        next = turn.seq + turn.events.len() as u64;
    }
    Ok(replayed)
}

/// Refuses a fork of a run whose code does not run any more.
fn check_running(effective: &EffectiveEvents<'_>) -> Result<(), ForkRefusal> {
    for (number, event) in &effective.events {
        match event {
            Event::RunCompensating { .. } | Event::RunRetrying(_) => {
                return Err(ForkRefusal::Compensating(*number));
            }
            event if Status::of_final(event).is_some() => return Err(ForkRefusal::Ended(*number)),
            _ => {}
        }
    }
    Ok(())
}

/// Refuses a fork behind the start of a run that was cancelled before its first turn: its code has not seen these events.
fn check_begun(history: &[TurnRecord], at: u64) -> Result<(), ForkRefusal> {
    let mut decisions = history.iter().flat_map(|turn| &turn.events).filter(|event| event.is_decision());
    match decisions.next() {
        Some(Event::RunCancelled { .. }) if at > 1 => Err(ForkRefusal::Ended(1)),
        _ => Ok(()),
    }
}

/// Refuses a fork if an open operation is one that cannot be asked for again.
fn check_askable(
    replayed: &ReplayHistory,
    effective: &EffectiveEvents<'_>,
    requested_at: &BTreeMap<OpNumber, u64>,
) -> Result<(), ForkRefusal> {
    let begin = replayed.skips.first().map_or(0, |skip| skip.end.saturating_sub(1));
    let token = |hook: &str| format!("it holds a token of hook `{hook}`, which one run holds at a time");
    let mut open: BTreeMap<OpNumber, String> = BTreeMap::new();
    open.extend(replayed.begin.tokens.iter().map(|carried| (carried.op, token(&carried.hook))));
    for (_, event) in &effective.events {
        match event {
            Event::TokenRequested(requested) => drop(open.insert(requested.op, token(&requested.name))),
            Event::ChildStarted(child) if child.is_detached && child.key.is_some() => {
                let workflow = &child.workflow;
                let why = format!("it is not recorded yet which run of `{workflow}` its key names");
                open.insert(child.op, why);
            }
            Event::CompensationStarted { op, .. } => {
                open.insert(*op, "it undoes a step of the other run".into());
            }
            Event::TokenRefused { op, .. }
            | Event::TokenClosed { op }
            | Event::ChildDetached { op, .. }
            | Event::ChildFailed { op, .. }
            | Event::ChildDropped { op }
            | Event::StepCompleted { op, .. }
            | Event::StepFailed { op, .. } => drop(open.remove(op)),
            _ => {}
        }
    }
    match open.into_iter().next() {
        Some((op, why)) => {
            let before = requested_at.get(&op).copied().unwrap_or(begin);
            Err(ForkRefusal::NotAskable { op, why, before })
        }
        None => Ok(()),
    }
}

/// The operations that a run requested behind a cut.
fn later_operations(history: &[TurnRecord], at: u64) -> Vec<PlannedOperation> {
    let mut later = BTreeMap::new();
    for (number, event) in &EffectiveEvents::of(history).events {
        if *number >= at && event.is_decision() {
            let mut requested = BTreeMap::new();
            apply(&mut requested, event);
            later.extend(requested);
        }
    }
    later.into_values().collect()
}

/// The turns that a fork does not copy as they are: those with a beginning that is read again, and the last one.
fn rewrites(before: &[TurnRecord], replayed: &ReplayHistory) -> Vec<u64> {
    let begin = replayed.turns.first().map(|turn| turn.seq);
    let first = before.first().filter(|turn| turn.seq == 0).map(|turn| turn.seq);
    let last = before.last().map(|turn| turn.seq);
    BTreeSet::from_iter([first, begin, last].into_iter().flatten()).into_iter().collect()
}

/// The turns that a fork copies as they are, and their number: those that a replay needs. What it skips stays behind, so
/// that a fork of a run with a long past costs as little as a claim of that run.
fn copied_turns(
    before: &[TurnRecord],
    replay_from: u64,
    rewrites: &[u64],
) -> (Vec<RangeInclusive<u64>>, u64) {
    let mut needed: Vec<_> = before.iter().filter(|turn| turn.seq >= replay_from).cloned().collect();
    // Turns that are added may need others, once.
    for _ in 0..2 {
        let missing = missing_turns(&needed);
        let is_missing = |seq: u64| {
            missing.single.contains(&seq) || missing.ranges.iter().any(|range| range.contains(&seq))
        };
        needed.extend(before.iter().filter(|turn| is_missing(turn.seq)).cloned());
        needed.sort_by_key(|turn| turn.seq);
        needed.dedup_by_key(|turn| turn.seq);
    }
    let needed: BTreeSet<u64> = needed.iter().map(|turn| turn.seq).collect();
    let is_copied = |turn: &TurnRecord| needed.contains(&turn.seq) && !rewrites.contains(&turn.seq);
    let parts = before.chunk_by(|one, other| is_copied(one) == is_copied(other));
    let copied = parts.filter(|part| is_copied(&part[0]));
    let range = |part: &[TurnRecord]| part[0].seq..=part[part.len() - 1].seq;
    let (ranges, counts): (Vec<_>, Vec<_>) = copied.map(|part| (range(part), part.len() as u64)).unzip();
    (ranges, counts.into_iter().sum())
}
