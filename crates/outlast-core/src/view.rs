//! Views of operations, computed from the history of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::duration::duration_text;
use crate::event::{ChildStarted, Event, Judgement, OpNumber, TurnRecord};
use crate::failure::{CANCELLED_BY_WORKFLOW, Failure, FailureKind};
use crate::id::{MessageId, RunId};
use crate::payload::{Payload, PayloadError};
use crate::run::{Status, Tags};
use crate::time::Timestamp;

/// One operation of a run, as its history describes it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OperationView {
    /// Its number.
    pub op: OpNumber,
    /// Its kind.
    pub kind: OperationKind,
    /// The name of the step, hook or value, the workflow of a child, or the duration of a timer, such as `3d`; empty
    /// for tags.
    pub name: Arc<str>,
    /// Its status.
    pub status: OperationStatus,
    /// When the workflow requested it.
    pub started_at: Timestamp,
    /// The time of its last event: the request, the end, or a failed attempt.
    pub changed_at: Timestamp,
    /// When the workflow cancelled it, if it did. A step or child ends later, in its own way.
    pub cancelled_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The number of attempts at a step, including one in progress. 0 for a queued step that has not failed: the
    /// history of its own run contains the attempts.
    pub attempts: u32,
    /// The number of worker crashes that count against the run and that attempts at this open step may have caused. It
    /// is not in the history: the client sets it from the row of the run.
    pub crashed: u32,
    /// When the next attempt is due, if the last one failed and is retried.
    pub retry_at: Option<Timestamp>,
    /// When a timer is due, or when the wait for a hook or child times out.
    pub until: Option<Timestamp>,
    /// The run of a child or queued step.
    pub child: Option<RunId>,
    /// The queue of a queued step.
    pub queue: Option<Arc<str>>,
    /// The input of a step or child.
    pub input: Option<Payload>,
    /// The output of a step or child, the payload of a hook, or a recorded value.
    pub output: Option<Payload>,
    /// Its failure, or that of its last attempt.
    pub failure: Option<Failure>,
    /// The tags that it set.
    pub tags: Tags,
    /// Payloads that were sent to a hook while it was open and that no open hook of its name can decode, in the order
    /// of their arrival. They are listed with the oldest of those hooks.
    pub rejected: Vec<Rejection>,
}

/// A payload that no open hook of its name can decode.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// Its message.
    pub message: MessageId,
    /// When it was rejected.
    pub at: Timestamp,
    /// Why it cannot be decoded.
    pub reason: String,
}

impl OperationView {
    /// The decoded input; `None` when there is none.
    ///
    /// # Errors
    ///
    /// [`PayloadError`] when it cannot be decoded as a `T`, or a codec has encoded it.
    pub fn input_as<T: DeserializeOwned>(&self) -> Result<Option<T>, PayloadError> {
        self.input.as_ref().map(Payload::decode).transpose()
    }

    /// The decoded output; `None` when there is none yet.
    ///
    /// # Errors
    ///
    /// [`PayloadError`] when it cannot be decoded as a `T`, or a codec has encoded it.
    pub fn output_as<T: DeserializeOwned>(&self) -> Result<Option<T>, PayloadError> {
        self.output.as_ref().map(Payload::decode).transpose()
    }

    /// Whether it has not ended.
    pub fn is_open(&self) -> bool {
        self.status == OperationStatus::Open
    }

    /// Whether it is a step that the holder of the run may be attempting at `now`: not queued, and not paused between
    /// two attempts.
    pub fn is_attempted_in_place(&self, now: Timestamp) -> bool {
        let is_step = self.kind == OperationKind::Step && self.queue.is_none();
        self.is_open() && is_step && self.retry_at.is_none_or(|retry_at| retry_at <= now)
    }

    fn new(op: OpNumber, kind: OperationKind, name: &Arc<str>, at: Timestamp) -> Self {
        Self {
            op,
            kind,
            name: name.clone(),
            status: OperationStatus::Open,
            started_at: at,
            changed_at: at,
            cancelled_at: None,
            ended_at: None,
            attempts: 0,
            crashed: 0,
            retry_at: None,
            until: None,
            child: None,
            queue: None,
            input: None,
            output: None,
            failure: None,
            tags: Tags::new(),
            rejected: Vec::new(),
        }
    }

    fn end(&mut self, status: OperationStatus, at: Timestamp) {
        self.status = status;
        self.changed_at = at;
        self.ended_at = Some(at);
        self.retry_at = None;
    }

    fn complete(&mut self, output: Option<&Payload>, at: Timestamp) {
        self.output = output.cloned();
        // Failures of earlier attempts are not the outcome.
        self.failure = None;
        self.end(OperationStatus::Completed, at);
    }

    fn fail(&mut self, status: OperationStatus, failure: Failure, at: Timestamp) {
        self.failure = Some(failure);
        self.end(status, at);
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationKind {
    /// A step.
    Step,
    /// A timer.
    Timer,
    /// A wait for a payload.
    Hook,
    /// A child.
    Child,
    /// A recorded value.
    Value,
    /// A change of the run's tags.
    Tags,
}

impl OperationKind {
    /// The kind as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Timer => "timer",
            Self::Hook => "hook",
            Self::Child => "child",
            Self::Value => "value",
            Self::Tags => "tags",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The status of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationStatus {
    /// It has not ended.
    Open,
    /// It has an output, or the timer has fired.
    Completed,
    /// It failed, or timed out.
    Failed,
    /// The run was cancelled while it was open, the workflow cancelled it, or its child was cancelled.
    Cancelled,
    /// The workflow dropped it, or the run ended before it. Its outcome is discarded.
    Dropped,
    /// A child that continues independently; its end is not recorded here.
    Abandoned,
}

impl OperationStatus {
    /// The status as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Dropped => "dropped",
            Self::Abandoned => "abandoned",
        }
    }
}

impl fmt::Display for OperationStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The operations of a run in the order in which it requested them. The history must be complete.
///
/// Payloads are in their stored form.
pub fn operations(history: &[TurnRecord]) -> Vec<OperationView> {
    HistoryReader::of(history).operations.into_values().collect()
}

/// The names of the hooks with kept payloads. The history must be complete.
pub fn kept_hooks(history: &[TurnRecord]) -> Vec<Arc<str>> {
    let kept =
        HistoryReader::of(history).kept_payloads.into_iter().filter(|(_, payloads)| !payloads.is_empty());
    kept.map(|(name, _)| name).collect()
}

#[derive(Default)]
struct HistoryReader {
    operations: BTreeMap<OpNumber, OperationView>,
    /// The open hooks by name.
    hooks: BTreeMap<Arc<str>, BTreeSet<OpNumber>>,
    /// The kept payloads by hook name and order of arrival.
    kept_payloads: BTreeMap<Arc<str>, BTreeMap<u64, (MessageId, Payload)>>,
    /// The order of arrival and the message of the payload that each hook has taken.
    taken: BTreeMap<OpNumber, (u64, MessageId)>,
    arrived: u64,
    /// The timers that a wake has ended.
    woken: BTreeSet<OpNumber>,
    is_cancelled: bool,
    /// The rules of the run; 0 before its start is read.
    rules: u32,
}

impl HistoryReader {
    fn of(history: &[TurnRecord]) -> Self {
        let mut history_reader = Self::default();
        for turn in history {
            for event in &turn.events {
                history_reader.read(event, turn.at);
            }
        }
        history_reader
    }

    fn read(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::RunStarted(started) => self.rules = started.rules,
            Event::HookReceived { name, message, payload, judgement, .. } => {
                let (arrival_number, arrived) = (self.arrived, (*message, payload.clone()));
                self.arrived += 1;
                match judgement {
                    _ if self.rules < 2 => self.give_to_oldest(name, arrival_number, arrived, at),
                    Judgement::Kept => self.keep(name, arrival_number, arrived),
                    Judgement::TakenBy(op) => self.take(*op, arrival_number, arrived, at),
                    Judgement::Rejected(reason) => self.reject(name, *message, reason, at),
                }
            }
            Event::HookTaken { op, message } => {
                let name = self.operations.get(op).map(|hook| hook.name.clone()).unwrap_or_default();
                if let Some((arrival_number, arrived)) = self.remove_kept(&name, *message) {
                    self.take(*op, arrival_number, arrived, at);
                }
            }
            Event::HookRejected { name, message, reason } => {
                self.remove_kept(name, *message);
                self.reject(name, *message, reason, at);
            }
            Event::HookClosed { op } => self.close(*op, at),
            Event::OperationCancelled { op } => self.change(*op, |open| cancel_operation(open, at)),
            Event::TimerWoken { ops, .. } => {
                for op in ops {
                    self.change(*op, |open| open.complete(None, at));
                }
                self.woken.extend(ops);
            }
            // A wake ends several timers one after the other; the workflow dropped this one in between.
            Event::TimerCancelled { op } if self.woken.contains(op) => {
                if let Some(timer) = self.operations.get_mut(op) {
                    timer.end(OperationStatus::Dropped, at);
                }
            }
            Event::CancelRequested { reason, ends, maybe_attempted, .. } if self.rules >= 2 => {
                self.end_by_cancel(reason, ends, maybe_attempted, at);
            }
            Event::CancelRequested { reason, pauses, .. } => self.cancel(reason, pauses, at),
            _ if Status::of_final(event).is_some() => {
                for open in self.operations.values_mut().filter(|operation| operation.is_open()) {
                    open.end(OperationStatus::Dropped, at);
                }
            }
            _ => {
                self.read_request(event, at);
                self.read_outcome(event, at);
            }
        }
    }

    fn read_request(&mut self, event: &Event, at: Timestamp) {
        let no_name = Arc::from("");
        let mut new = |op, kind, name, edit: &dyn Fn(&mut OperationView)| {
            let mut operation = OperationView::new(op, kind, name, at);
            edit(&mut operation);
            self.operations.insert(op, operation);
        };
        match event {
            Event::StepStarted { op, name, input, queued } => new(*op, OperationKind::Step, name, &|step| {
                step.attempts = u32::from(queued.is_none());
                step.child = queued.as_ref().map(|queued| queued.run);
                step.queue = queued.as_ref().map(|queued| queued.queue.clone());
                step.input = Some(input.clone());
            }),
            Event::TimerStarted { op, fire_at } => {
                let name = duration_text(fire_at.since(at)).into();
                new(*op, OperationKind::Timer, &name, &|timer| timer.until = Some(*fire_at));
            }
            Event::HookOpened { op, name, timeout_at } => {
                new(*op, OperationKind::Hook, name, &|hook| hook.until = *timeout_at);
                self.open(*op, name, at);
            }
            Event::ChildStarted(child) => {
                new(child.op, OperationKind::Child, &child.workflow, &|view| start_child(view, child));
            }
            Event::ValueRecorded { op, name, value } => {
                new(*op, OperationKind::Value, name, &|view| match value {
                    Ok(value) => view.complete(Some(value), at),
                    Err(failure) => view.fail(OperationStatus::Failed, failure.clone(), at),
                });
            }
            Event::TagsSet { op, tags } => new(*op, OperationKind::Tags, &no_name, &|view| {
                view.tags = tags.clone();
                view.complete(None, at);
            }),
            _ => {}
        }
    }

    fn read_outcome(&mut self, event: &Event, at: Timestamp) {
        let Some(op) = event.op() else { return };
        self.change(op, |open| match event {
            Event::StepCompleted { output, .. } | Event::ChildCompleted { output, .. } => {
                // The end of a pause is not recorded: the attempt after it succeeded.
                open.attempts += u32::from(open.retry_at.is_some());
                open.complete(Some(output), at);
            }
            Event::StepFailed { failure, .. } => {
                open.attempts = failure.attempts;
                let is_cancelled = open.cancelled_at.is_some() && failure.is_cancelled();
                let status = if is_cancelled { OperationStatus::Cancelled } else { OperationStatus::Failed };
                open.fail(status, failure.clone(), at);
            }
            Event::StepRetried { attempt, failure, retry_at, .. } => {
                open.attempts = *attempt;
                open.failure = Some(failure.clone());
                open.retry_at = Some(*retry_at);
                open.changed_at = at;
            }
            Event::ChildFailed { failure, .. } => open.fail(OperationStatus::Failed, failure.clone(), at),
            Event::ChildCancelled { failure, .. } => {
                open.fail(OperationStatus::Cancelled, failure.clone(), at);
            }
            Event::ChildDetached { run, .. } => {
                open.child = Some(*run);
                open.status = OperationStatus::Abandoned;
            }
            Event::TimerFired { .. } => fire(open, at),
            Event::StepDropped { .. } | Event::TimerCancelled { .. } | Event::ChildDropped { .. } => {
                open.end(OperationStatus::Dropped, at);
            }
            _ => {}
        });
    }

    /// Changes an open operation. Only the first outcome counts.
    fn change(&mut self, op: OpNumber, change: impl FnOnce(&mut OperationView)) {
        let open = self.operations.get_mut(&op);
        if let Some(open) =
            open.filter(|open| matches!(open.status, OperationStatus::Open | OperationStatus::Abandoned))
        {
            change(open);
        }
    }

    /// Opens a hook. Under rules 1 it takes a kept payload immediately.
    fn open(&mut self, op: OpNumber, name: &Arc<str>, at: Timestamp) {
        self.hooks.entry(name.clone()).or_default().insert(op);
        if self.rules >= 2 {
            return;
        }
        if let Some((arrival_number, arrived)) =
            self.kept_payloads.get_mut(name).and_then(BTreeMap::pop_first)
        {
            self.give_to_oldest(name, arrival_number, arrived, at);
        }
    }

    /// Gives a payload to the oldest open hook of its name, or keeps it.
    fn give_to_oldest(
        &mut self,
        name: &Arc<str>,
        arrival_number: u64,
        arrived: (MessageId, Payload),
        at: Timestamp,
    ) {
        match self.oldest_open(name) {
            Some(op) => self.take(op, arrival_number, arrived, at),
            None => self.keep(name, arrival_number, arrived),
        }
    }

    /// The oldest open hook of a name.
    fn oldest_open(&mut self, name: &Arc<str>) -> Option<OpNumber> {
        let hooks = self.hooks.get_mut(name)?;
        while let Some(op) = hooks.first().copied() {
            if self.operations.get(&op).is_some_and(OperationView::is_open) {
                return Some(op);
            }
            // Timeouts and cancels leave hooks in the index that are no longer open.
            hooks.pop_first();
        }
        None
    }

    /// Gives a payload to a hook.
    fn take(
        &mut self,
        op: OpNumber,
        arrival_number: u64,
        (message, payload): (MessageId, Payload),
        at: Timestamp,
    ) {
        self.taken.insert(op, (arrival_number, message));
        self.change(op, |hook| hook.complete(Some(&payload), at));
    }

    fn keep(&mut self, name: &Arc<str>, arrival_number: u64, arrived: (MessageId, Payload)) {
        self.kept_payloads.entry(name.clone()).or_default().insert(arrival_number, arrived);
    }

    /// Removes a kept payload.
    fn remove_kept(&mut self, name: &Arc<str>, message: MessageId) -> Option<(u64, (MessageId, Payload))> {
        let kept_payloads = self.kept_payloads.get_mut(name)?;
        let arrival_number = *kept_payloads.iter().find(|(_, (kept, _))| *kept == message)?.0;
        kept_payloads.remove_entry(&arrival_number)
    }

    /// Adds a rejected payload to the oldest open hook. The wait continues unchanged.
    fn reject(&mut self, name: &Arc<str>, message: MessageId, reason: &str, at: Timestamp) {
        let Some(op) = self.oldest_open(name) else { return };
        self.change(op, |hook| hook.rejected.push(Rejection { message, at, reason: reason.into() }));
    }

    /// Closes a hook that the workflow dropped. Under rules 1 a payload that the workflow did not receive goes to the
    /// next hook; from rules 2 on it is kept, and another event records which hook takes it.
    fn close(&mut self, op: OpNumber, at: Timestamp) {
        let Some(hook) = self.operations.get_mut(&op) else { return };
        let (name, payload) = (hook.name.clone(), hook.output.take());
        hook.end(OperationStatus::Dropped, at);
        if let (Some(payload), Some((arrival_number, message))) = (payload, self.taken.remove(&op)) {
            if self.rules >= 2 {
                self.keep(&name, arrival_number, (message, payload));
            } else {
                self.give_to_oldest(&name, arrival_number, (message, payload), at);
            }
        }
    }

    /// Applies a cancel: the operations that the event names end.
    fn end_by_cancel(
        &mut self,
        reason: &str,
        ends: &[OpNumber],
        maybe_attempted: &[OpNumber],
        at: Timestamp,
    ) {
        for op in ends {
            let is_unsure = maybe_attempted.contains(op);
            self.change(*op, |open| {
                let failure =
                    if is_unsure { Failure::maybe_attempted(reason) } else { Failure::cancelled(reason) };
                if open.kind == OperationKind::Step && open.retry_at.is_none() && !is_unsure {
                    // The next attempt never began.
                    open.attempts = 0;
                }
                open.fail(OperationStatus::Cancelled, failure, at);
            });
        }
    }

    /// Rules 1: applies a cancel: waits end, and so do steps that are paused between two attempts.
    fn cancel(&mut self, reason: &str, pauses: &[OpNumber], at: Timestamp) {
        if std::mem::replace(&mut self.is_cancelled, true) {
            return;
        }
        let is_wait = |open: &&mut OperationView| {
            open.is_open() && (open.kind != OperationKind::Step || pauses.contains(&open.op))
        };
        for wait in self.operations.values_mut().filter(is_wait) {
            wait.fail(OperationStatus::Cancelled, Failure::cancelled(reason), at);
        }
    }
}

fn start_child(view: &mut OperationView, child: &ChildStarted) {
    view.child = Some(child.run);
    view.input = Some(child.input.clone());
    view.until = child.timeout_at;
    if child.is_detached && child.key.is_none() {
        view.status = OperationStatus::Abandoned;
    }
}

/// Applies a cancel by the workflow: a wait ends, and a step or child is asked to stop.
fn cancel_operation(open: &mut OperationView, at: Timestamp) {
    open.cancelled_at = Some(at);
    open.changed_at = at;
    if matches!(open.kind, OperationKind::Timer | OperationKind::Hook) {
        open.fail(OperationStatus::Cancelled, Failure::cancelled(CANCELLED_BY_WORKFLOW), at);
    }
}

/// Ends a timer that is due, or a hook or child whose timeout is due.
fn fire(open: &mut OperationView, at: Timestamp) {
    let name = &open.name;
    let message = match open.kind {
        OperationKind::Hook => format!("no payload arrived for hook `{name}` in time"),
        OperationKind::Child => format!("child `{name}` did not end in time; it was told to stop"),
        _ => return open.complete(None, at),
    };
    open.fail(OperationStatus::Failed, Failure::new(FailureKind::Timeout, message), at);
}

#[cfg(test)]
mod tests;
