//! Retries of runs that have ended: which operation is open again, what a replay skips, and what it gets again.
//!
//! A run that failed is retried from an operation: the one whose failure its workflow returned, or another one that the
//! caller names. The *cut point* is the event with which that operation ended. Everything from there on is skipped:
//! decisions, drops, and the outcomes of operations that were requested later. Outcomes and payloads that older
//! operations received after the cut point are recorded again, in order, so that nothing runs twice.
//!
//! How a retry proceeds:
//!
//! 1. The client reads the history and computes a [`RetryPlan`]; a dry run shows it.
//! 2. [`World::reopen`](crate::World::reopen) makes the run ready again, with a message that contains the
//!    [`RetryRequest`]. This is one atomic change, and refused if the history has changed.
//! 3. The worker that claims the run replays the history up to the cut point ([`RetryRequest::split`]). Its next turn
//!    begins with `run_retried` and delivers what is recorded again.
//!
//! Until that turn is committed, the history ends with the end of the run. If the worker is lost, the next one does the
//! same again.

pub(crate) mod plan;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::cut::{is_skipped, op_as_number, retried_ranges};
use crate::event::{ChildStarted, Event, Judgement, OpNumber, TurnRecord};
use crate::id::{MessageId, RunId, TurnId};
use crate::message::NewMessage;
use crate::payload::Payload;
use crate::time::Timestamp;

pub use plan::{EndedChild, PlannedOperation, RetryPlan, RetryRefusal};

/// A run that had ended is open again: a cut. A replay skips the events from the cut point up to this one.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRetried {
    /// The number of the first event that a replay skips: the cut point.
    pub from: u64,
    /// The operation that is open again.
    pub reopens: OpNumber,
    /// The number of the next operation. Numbers of skipped operations are not used again.
    pub next_op: OpNumber,
    /// The runs that are started again for open operations: those of queued steps, and the child of the reopened one.
    pub restarts: Vec<RestartedRun>,
    /// The waits that are open and have their full time again.
    pub renews: Vec<RenewedWait>,
    /// The children with keys whose operations are skipped: an operation that requests one of them again adopts it.
    pub adoptable: Vec<AdoptableChild>,
    /// The deadline of the run from now on.
    pub deadline: Option<Timestamp>,
    /// The message of the retry.
    pub message: MessageId,
    /// Why, if the caller gave a reason.
    pub reason: String,
    /// Who asked for it, if that is known.
    pub actor: Option<String>,
}

/// A run that is started again for an operation, under another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartedRun {
    /// The operation.
    #[serde(with = "op_as_number")]
    pub op: OpNumber,
    /// Its new run.
    pub run: RunId,
}

/// A wait that has its full time again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewedWait {
    /// The timer, or the hook or child that is awaited.
    #[serde(with = "op_as_number")]
    pub op: OpNumber,
    /// When it is due now.
    pub until: Timestamp,
}

/// A child with a key whose operation a replay skips.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptableChild {
    /// The operation that started it, which its end names.
    #[serde(with = "op_as_number")]
    pub op: OpNumber,
    /// The child.
    pub run: RunId,
    /// Its workflow's name.
    pub workflow: String,
    /// Its key.
    pub key: String,
    /// The digest of its input before the codec, as hexadecimal digits.
    pub digest: String,
}

impl AdoptableChild {
    /// A child with this input, before the codec.
    pub fn new(child: &ChildStarted, plain: &Payload) -> Self {
        let (workflow, key) = (child.workflow.to_string(), child.key.clone().unwrap_or_default());
        Self { op: child.op, run: child.run, workflow, key, digest: format!("{:032x}", plain.digest()) }
    }

    /// Whether a child with this workflow, key and digest is the same.
    pub fn is_same(&self, workflow: &str, key: &str, digest: u128) -> bool {
        self.workflow == workflow && self.key == key && self.digest == format!("{digest:032x}")
    }
}

/// What the message of a retry contains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryRequest {
    /// The cut point: the number of the event with which the reopened operation ended.
    pub from: u64,
    /// The operation that is open again.
    #[serde(with = "op_as_number")]
    pub reopens: OpNumber,
    /// The operations whose children are started again. Other open operations await the children that they have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<u64>,
    /// The deadline of the run from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Whether steps that are attempted at most once may be attempted again.
    #[serde(default, rename = "forced", skip_serializing_if = "std::ops::Not::not")]
    pub is_forced: bool,
    /// Why, if the caller gave a reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The arguments of [`World::reopen`](crate::World::reopen).
#[derive(Clone, Debug, PartialEq)]
pub struct Reopen {
    /// The message of the retry; its id makes the call idempotent.
    pub message: NewMessage,
    /// The number of events in the history from which the retry was computed.
    pub events: u64,
    /// The number of the first event that a replay of the run needs.
    pub replay_from: u64,
    /// The deadline of the run from now on.
    pub deadline: Option<Timestamp>,
}

/// A history at the cut point of a retry.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitHistory {
    /// The turns before the cut point; the last one may be the beginning of a turn.
    pub replayed: Vec<TurnRecord>,
    /// The deliveries behind the cut point that are recorded again, in order, with the times of their turns.
    pub again: Vec<(Timestamp, Event)>,
    /// The number of the next operation, in the life of the run.
    pub next_op: OpNumber,
    /// The children with keys whose operations are skipped. An earlier retry may have had them adopted: then the
    /// operation is the one that started them.
    pub children: Vec<ChildStarted>,
    /// Those that an earlier retry has listed and that is skipped itself.
    pub adoptable: Vec<AdoptableChild>,
}

impl RetryRequest {
    /// Splits the history of a run that is to be retried.
    pub fn split(&self, history: Vec<TurnRecord>) -> SplitHistory {
        let next_op = next_op(&history);
        let skips = retried_ranges(&history);
        let is_effective = |number: u64| !is_skipped(&skips, number);
        let older = next_op_before(&history, self.from);
        let mut again = Vec::new();
        let (mut children, mut adoptable) = (Vec::new(), Vec::new());
        for turn in &history {
            for (number, event) in (turn.seq..).zip(&turn.events) {
                if number >= self.from && is_effective(number) {
                    match event {
                        Event::ChildStarted(child) if child.key.is_some() && !child.is_detached => {
                            children.push(with_first_operation(&history, child));
                        }
                        Event::RunRetried(retried) => adoptable.extend(retried.adoptable.iter().cloned()),
                        _ => {}
                    }
                    again.extend(self.recorded_again(event, older).map(|event| (turn.at, event)));
                }
            }
        }
        let mut replayed = history;
        replayed.retain(|turn| turn.seq < self.from);
        if let Some(last) = replayed.last_mut() {
            let kept = usize::try_from(self.from - last.seq).unwrap_or(usize::MAX);
            if kept < last.events.len() {
                last.events.truncate(kept);
                // Not marked as continued: everything before the cut point is complete.
                last.id = TurnId::from_bits(0);
            }
        }
        SplitHistory { replayed, again, next_op, children, adoptable }
    }

    /// The event that is recorded again behind the cut point: a payload, or the outcome of an operation below `older`
    /// that neither is reopened nor starts its child again. `None` for all others.
    fn recorded_again(&self, event: &Event, older: OpNumber) -> Option<Event> {
        let is_kept = |op: OpNumber| op < older && op != self.reopens && !self.restarts.contains(&op.0);
        match event {
            Event::StepCompleted { op, .. }
            | Event::StepFailed { op, .. }
            | Event::StepRetried { op, .. }
            | Event::TimerFired { op }
            | Event::ChildCompleted { op, .. }
            | Event::ChildFailed { op, .. }
            | Event::ChildCancelled { op, .. }
            | Event::ChildDetached { op, .. } => is_kept(*op).then(|| event.clone()),
            Event::HookReceived { judgement, .. } => {
                (*judgement != Judgement::TakenBy(self.reopens)).then(|| event.clone())
            }
            Event::TimerWoken { message, ops, actor } => {
                let ops: Vec<_> = ops.iter().copied().filter(|op| is_kept(*op)).collect();
                let (message, actor) = (*message, actor.clone());
                (!ops.is_empty()).then_some(Event::TimerWoken { message, ops, actor })
            }
            _ => None,
        }
    }
}

/// A child with the operation that started it, if a later operation has adopted it.
fn with_first_operation(history: &[TurnRecord], child: &ChildStarted) -> ChildStarted {
    let mut adoptable = history.iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
        Event::RunRetried(retried) => retried.adoptable.iter().find(|earlier| earlier.run == child.run),
        _ => None,
    });
    ChildStarted { op: adoptable.next().map_or(child.op, |earlier| earlier.op), ..child.clone() }
}

/// The number of the operation after all that the events mention.
fn next_op(history: &[TurnRecord]) -> OpNumber {
    // The step after the end of the run has a number, and leaves no event.
    OpNumber(next_op_before(history, u64::MAX).0 + 1)
}

/// The number of the operation after all that events before this one mention.
pub(crate) fn next_op_before(history: &[TurnRecord], before: u64) -> OpNumber {
    let events = history.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
    let ops = events.take_while(|(number, _)| *number < before).filter_map(|(_, event)| match event {
        Event::RunContinued(continued) => Some(continued.next_op.0),
        Event::RunRetried(retried) => Some(retried.next_op.0),
        other => other.op().map(|op| op.0 + 1),
    });
    OpNumber(ops.max().unwrap_or(0))
}
