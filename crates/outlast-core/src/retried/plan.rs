//! What a retry of a run would do, computed from its history alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{RetryRequest, next_op_before};
use crate::cut::{is_skipped, last_generation, replay_from, skipped_events};
use crate::event::{Event, Judgement, OpNumber, TurnRecord};
use crate::failure::{Failure, FailureKind};
use crate::forked::forked_at;
use crate::id::RunId;
use crate::run::{ParentEnd, Status};
use crate::time::Timestamp;
use crate::view::OperationKind;

/// What a retry of a run would do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetryPlan {
    /// The operation that is open again.
    pub reopens: OpNumber,
    /// The cut point: the number of the first event that a replay skips.
    pub from: u64,
    /// The number of events in the history.
    pub events: u64,
    /// The operations that are open after the retry, in order: the steps among them run again, the waits begin again.
    /// Operations that the workflow requests afterwards are not known.
    pub open: Vec<PlannedOperation>,
    /// The number of outcomes and payloads behind the cut point that are recorded again.
    pub recorded_again: usize,
    /// The first event that a replay needs.
    pub replay_from: u64,
    /// The children that the end of the run has cancelled. A retry is refused if one of them had begun.
    pub cancelled_children: Vec<EndedChild>,
    /// The operations whose children are started again, if they had not begun.
    pub restarts: Vec<OpNumber>,
}

/// An operation that is open after a retry.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlannedOperation {
    /// The operation.
    pub op: OpNumber,
    /// Its kind.
    pub kind: OperationKind,
    /// The name of the step, hook or workflow; empty for a timer.
    pub name: Arc<str>,
    /// Whether it is the one that the retry reopens. Others were open at the cut point.
    pub is_reopened: bool,
    /// The queue of a queued step.
    pub queue: Option<Arc<str>>,
    /// Whether it is a step that is attempted at most once.
    pub is_once: bool,
    /// The run of a child or queued step.
    pub run: Option<RunId>,
    /// The key of a child.
    pub key: Option<String>,
    /// What happens to a child when the run ends first.
    pub on_parent_end: Option<ParentEnd>,
}

/// A child that the end of its parent has cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedChild {
    /// Its operation.
    pub op: OpNumber,
    /// The child.
    pub run: RunId,
}

/// Why a run cannot be retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetryRefusal {
    /// It has not ended, or has completed.
    #[error("it is {0}; only a run that has failed or was cancelled can be retried")]
    NotFailed(Status),
    /// Its failure did not come from an operation.
    #[error(
        "its failure did not come from an operation (\"{0}\"); name the operation from which it is retried, or restart it"
    )]
    NoOperation(String),
    /// It has no such operation, or not in its current generation.
    #[error("it has no operation {0} that a replay reads; `steps` lists the operations of a run")]
    NoSuchOperation(OpNumber),
    /// The operation is not a step, timer, hook or child, or its input cannot be stored.
    #[error("operation {0} cannot be open again: {1}")]
    NotReopenable(OpNumber, &'static str),
    /// The operation ended before the run was forked.
    #[error("operation {0} ended before the run was forked from another one; fork that run again instead")]
    BeforeFork(OpNumber),
    /// Its compensations have run.
    #[error("its compensations have undone what it did; restart it instead")]
    Compensated,
    /// A step would be attempted again that is attempted at most once.
    #[error(
        "step `{1}` (operation {0}) is attempted at most once, and would be attempted again; force the retry if that is safe"
    )]
    AtMostOnce(OpNumber, Arc<str>),
}

impl RetryPlan {
    /// What a retry would do, from the operation `op`, or from the one whose failure the workflow returned. `history`
    /// must be complete, except for turns that are deleted.
    ///
    /// # Errors
    ///
    /// Why the run cannot be retried. The caller also refuses a retry if a cancelled child had begun.
    pub fn of(history: &[TurnRecord], op: Option<OpNumber>, is_forced: bool) -> Result<Self, RetryRefusal> {
        let reader = EffectiveEvents::of(history);
        let reopens = match op {
            Some(op) => op,
            None => reader.failed_operation()?,
        };
        let from = reader.cut_point(reopens)?;
        if is_before_fork(history, from) {
            return Err(RetryRefusal::BeforeFork(reopens));
        }
        if reader.is_compensated(from) {
            return Err(RetryRefusal::Compensated);
        }
        let mut plan = Self {
            reopens,
            from,
            events: history.last().map_or(0, |turn| turn.seq + turn.events.len() as u64),
            open: Vec::new(),
            recorded_again: 0,
            replay_from: replay_from(history, from),
            cancelled_children: reader.cancelled_children(from),
            restarts: Vec::new(),
        };
        plan.restarts = plan.cancelled_children.iter().map(|child| child.op).collect();
        plan.find_open(&reader, history);
        let is_refused = |open: &&PlannedOperation| open.is_once && !is_forced;
        match plan.open.iter().find(is_refused) {
            Some(once) => Err(RetryRefusal::AtMostOnce(once.op, once.name.clone())),
            None => Ok(plan),
        }
    }

    /// The steps that run again.
    pub fn steps(&self) -> impl Iterator<Item = &PlannedOperation> {
        self.open.iter().filter(|open| open.kind == OperationKind::Step)
    }

    /// The reopened operation.
    pub fn reopened(&self) -> Option<&PlannedOperation> {
        self.open.iter().find(|open| open.is_reopened)
    }

    /// The request that carries out the plan.
    pub fn request(&self, deadline: Option<Timestamp>, is_forced: bool, reason: String) -> RetryRequest {
        let restarts = self.restarts.iter().map(|op| op.0).collect();
        RetryRequest { from: self.from, reopens: self.reopens, restarts, deadline, is_forced, reason }
    }

    fn find_open(&mut self, reader: &EffectiveEvents<'_>, history: &[TurnRecord]) {
        let request = self.request(None, false, String::new());
        let older = next_op_before(history, self.from);
        let mut open = BTreeMap::new();
        for (number, event) in &reader.events {
            if *number < self.from {
                apply(&mut open, event);
            } else if let Some(again) = request.recorded_again(event, older) {
                self.recorded_again += 1;
                apply(&mut open, &again);
            }
        }
        self.open = open.into_values().collect();
        for operation in &mut self.open {
            operation.is_reopened = operation.op == self.reopens;
        }
    }
}

/// The events of a history that a replay reads, with their numbers.
pub(crate) struct EffectiveEvents<'a> {
    pub(crate) events: Vec<(u64, &'a Event)>,
}

impl<'a> EffectiveEvents<'a> {
    pub(crate) fn of(history: &'a [TurnRecord]) -> Self {
        let skips = skipped_events(history);
        let numbered = history.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
        Self { events: numbered.filter(|(number, _)| !is_skipped(&skips, *number)).collect() }
    }

    fn last(&self) -> Option<&'a Event> {
        self.events.last().map(|(_, event)| *event)
    }

    /// The operation whose failure the workflow returned.
    fn failed_operation(&self) -> Result<OpNumber, RetryRefusal> {
        match self.last() {
            Some(
                Event::RunFailed { failure }
                | Event::RunCancelled { failure }
                | Event::RunTerminated { failure, .. },
            ) => {
                let op = failure.op.as_deref().map(|op| OpNumber(*op));
                op.ok_or_else(|| RetryRefusal::NoOperation(failure.message.clone()))
            }
            Some(event) => Err(RetryRefusal::NotFailed(Status::of_final(event).unwrap_or(Status::Running))),
            None => Err(RetryRefusal::NotFailed(Status::Pending)),
        }
    }

    /// The event from which on everything is skipped: the delivery with which the operation ended, or that made the
    /// workflow drop it, or end while it was open.
    fn cut_point(&self, op: OpNumber) -> Result<u64, RetryRefusal> {
        let mut is_requested = false;
        // The last delivery so far, and the one with which the operation ended.
        let (mut delivery, mut ended) = (None, None);
        for (number, event) in &self.events {
            if !event.is_decision() && !matches!(event, Event::RunStarted(_)) {
                delivery = Some(*number);
            }
            if event.is_decision() && event.op() == Some(op) && !is_requested {
                check_kind(op, event)?;
                is_requested = true;
            } else if is_requested && ends(event, op) && ended.is_none() {
                check_outcome(op, event)?;
                ended = delivery;
            }
        }
        match (is_requested, ended.or(delivery)) {
            (true, Some(from)) => Ok(from),
            (true, None) => {
                Err(RetryRefusal::NotReopenable(op, "the run has ended without any delivery; restart it"))
            }
            (false, _) => Err(RetryRefusal::NoSuchOperation(op)),
        }
    }

    /// Whether compensations have run, other than those of a saga that had ended before the cut point.
    fn is_compensated(&self, from: u64) -> bool {
        self.events.iter().any(|(number, event)| match event {
            Event::RunCompensating { .. } => true,
            Event::CompensationStarted { .. } => *number >= from,
            _ => false,
        })
    }

    /// The children that the end of the run has cancelled, or a cancel behind the cut point.
    fn cancelled_children(&self, from: u64) -> Vec<EndedChild> {
        let mut open = BTreeMap::new();
        let mut cancelled = Vec::new();
        for (number, event) in &self.events {
            match event {
                Event::ChildStarted(child)
                    if !child.is_detached && child.on_parent_end != ParentEnd::Abandon =>
                {
                    open.insert(child.op, EndedChild { op: child.op, run: child.run });
                }
                Event::RunRetried(retried) => {
                    for restarted in &retried.restarts {
                        open.entry(restarted.op).and_modify(|child| child.run = restarted.run);
                    }
                }
                Event::ChildCancelled { op, .. } if *number >= from => cancelled.extend(open.remove(op)),
                Event::ChildCompleted { op, .. }
                | Event::ChildFailed { op, .. }
                | Event::ChildCancelled { op, .. } => drop(open.remove(op)),
                _ => {}
            }
        }
        cancelled.extend(open.into_values());
        cancelled.sort_by_key(|child| child.op);
        cancelled
    }
}

/// Whether an event is a copy of another run's, or the one with which the copies end.
fn is_before_fork(history: &[TurnRecord], number: u64) -> bool {
    let Some((started, ..)) = last_generation(history) else { return false };
    let begin = skipped_events(history).first().map_or(0, |skip| skip.end);
    match started.forked.as_deref().filter(|origin| begin < origin.at) {
        Some(_) => forked_at(history).is_none_or(|forked_at| number <= forked_at),
        None => false,
    }
}

/// Refuses operations that cannot be open.
fn check_kind(op: OpNumber, request: &Event) -> Result<(), RetryRefusal> {
    match request {
        Event::StepStarted { .. } | Event::TimerStarted { .. } | Event::HookOpened { .. } => Ok(()),
        Event::ChildStarted(child) if child.is_detached => {
            Err(RetryRefusal::NotReopenable(op, "it started a child that the run does not await"))
        }
        Event::ChildStarted(_) => Ok(()),
        _ => Err(RetryRefusal::NotReopenable(op, "it is not a step, timer, hook or child")),
    }
}

/// Refuses steps that were never attempted because of their input.
fn check_outcome(op: OpNumber, outcome: &Event) -> Result<(), RetryRefusal> {
    let is_invalid = |failure: &Failure| {
        failure.attempts == 0 && matches!(failure.kind, FailureKind::Invalid | FailureKind::Limit)
    };
    match outcome {
        Event::StepFailed { failure, .. } | Event::ChildFailed { failure, .. } if is_invalid(failure) => {
            Err(RetryRefusal::NotReopenable(op, "its input was refused before it began; restart the run"))
        }
        _ => Ok(()),
    }
}

/// Whether an event ends an operation, or drops it.
pub(crate) fn ends(event: &Event, op: OpNumber) -> bool {
    match event {
        Event::TimerWoken { ops, .. } => ops.contains(&op),
        Event::HookReceived { judgement, .. } => *judgement == Judgement::TakenBy(op),
        Event::CancelRequested { pauses, ends, .. } => pauses.contains(&op) || ends.contains(&op),
        Event::StepRetried { .. } | Event::OperationCancelled { .. } => false,
        other => other.op() == Some(op),
    }
}

/// Applies an event to the operations that are open.
pub(crate) fn apply(open: &mut BTreeMap<OpNumber, PlannedOperation>, event: &Event) {
    let new = |op: OpNumber, kind: OperationKind, name: &Arc<str>| PlannedOperation {
        op,
        kind,
        name: name.clone(),
        is_reopened: false,
        queue: None,
        is_once: false,
        run: None,
        key: None,
        on_parent_end: None,
    };
    match event {
        Event::StepStarted { op, name, queued, is_once, .. } => {
            let mut step = new(*op, OperationKind::Step, name);
            step.is_once = *is_once;
            step.queue = queued.as_ref().map(|queued| queued.queue.clone());
            step.run = queued.as_ref().map(|queued| queued.run);
            open.insert(*op, step);
        }
        Event::TimerStarted { op, .. } => drop(open.insert(*op, new(*op, OperationKind::Timer, &"".into()))),
        Event::HookOpened { op, name, .. } => drop(open.insert(*op, new(*op, OperationKind::Hook, name))),
        Event::ChildStarted(child) if !child.is_detached => {
            let mut view = new(child.op, OperationKind::Child, &child.workflow);
            (view.run, view.key) = (Some(child.run), child.key.clone());
            view.on_parent_end = Some(child.on_parent_end);
            open.insert(child.op, view);
        }
        Event::RunForked(forked) => {
            for restarted in &forked.restarts {
                open.entry(restarted.op).and_modify(|operation| operation.run = Some(restarted.run));
            }
        }
        Event::RunRetried(retried) => {
            for restarted in &retried.restarts {
                open.entry(restarted.op).and_modify(|operation| operation.run = Some(restarted.run));
            }
        }
        other => open.retain(|op, _| !ends(other, *op)),
    }
}
