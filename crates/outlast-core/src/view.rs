//! Views: what a run did, operation by operation, computed from its history.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::event::{ChildStarted, Event, Judgement, OpNumber, TurnRecord};
use crate::failure::{Failure, FailureKind};
use crate::id::{MessageId, RunId};
use crate::payload::{Payload, PayloadError};
use crate::run::{Status, Tags};
use crate::time::Timestamp;

/// One operation of a run as its history shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationView {
    /// Its number.
    pub op: OpNumber,
    /// What it is.
    pub kind: OperationKind,
    /// The name of the step, hook or value, or the child's workflow; empty for timers and tags.
    pub name: Arc<str>,
    /// Where it is in its life.
    pub status: OperationStatus,
    /// When the workflow asked for it.
    pub started_at: Timestamp,
    /// When its history last told of it: a start, an end, an attempt that failed.
    pub changed_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How often a step was attempted; the attempt that may be under way counts. 0 for a queued step that
    /// has not failed: the history of its own run has them.
    pub attempts: u32,
    /// How many crashes of a worker count against the run and may have been caused by attempts at this step, which is
    /// open. The history does not tell: whoever shows the operations adds it from the run's row.
    pub crashed: u32,
    /// When the next attempt is due, if the last one failed and there is to be another.
    pub retry_at: Option<Timestamp>,
    /// When a timer is due, or the wait for a hook or child ends without it.
    pub until: Option<Timestamp>,
    /// The run that it started; of a queued step, the run that is the step.
    pub child: Option<RunId>,
    /// The queue of a queued step.
    pub queue: Option<Arc<str>>,
    /// What a step or child was called with.
    pub input: Option<Payload>,
    /// What it returned: a step's or child's output, a hook's payload, a recorded value.
    pub output: Option<Payload>,
    /// How it failed, or how its last attempt did.
    pub failure: Option<Failure>,
    /// The tags that it set.
    pub tags: Tags,
    /// Payloads that were sent to a hook while it was open and that no open hook of its name can read, in
    /// the order of their arrival. They are listed with the oldest of those hooks.
    pub rejected: Vec<Rejection>,
}

/// A payload that no open hook of its name can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The message that brought it.
    pub message: MessageId,
    /// When it was rejected.
    pub at: Timestamp,
    /// Why it cannot be read.
    pub reason: String,
}

impl OperationView {
    /// The input as a value; `None` when it has none.
    ///
    /// # Errors
    ///
    /// [`PayloadError`] when it is not a `T`, or only a codec can read it.
    pub fn input_as<T: DeserializeOwned>(&self) -> Result<Option<T>, PayloadError> {
        self.input.as_ref().map(Payload::decode).transpose()
    }

    /// The output as a value; `None` when there is none (yet).
    ///
    /// # Errors
    ///
    /// [`PayloadError`] when it is not a `T`, or only a codec can read it.
    pub fn output_as<T: DeserializeOwned>(&self) -> Result<Option<T>, PayloadError> {
        self.output.as_ref().map(Payload::decode).transpose()
    }

    /// Whether the workflow may still be told how it ends.
    pub fn is_open(&self) -> bool {
        self.status == OperationStatus::Open
    }

    /// Whether it is a step that whoever holds the run may be attempting now: not queued, and not between two
    /// attempts.
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
        // How attempts before the last one failed is not how it ended.
        self.failure = None;
        self.end(OperationStatus::Completed, at);
    }

    fn fail(&mut self, status: OperationStatus, failure: Failure, at: Timestamp) {
        self.failure = Some(failure);
        self.end(status, at);
    }
}

/// What an operation is.
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
    /// A value that was computed once.
    Value,
    /// A change of the run's tags.
    Tags,
}

impl OperationKind {
    /// The kind as it is written.
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

/// Where an operation is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationStatus {
    /// It has not ended.
    Open,
    /// It has an output, or its moment came.
    Completed,
    /// It failed; a wait whose time was over, too.
    Failed,
    /// The run was told to stop while it waited, or its child was.
    Cancelled,
    /// The workflow dropped it, or the run ended before it. What comes of it is discarded.
    Dropped,
    /// A child that goes its own way. If this run awaits its end, that has not come.
    Abandoned,
}

impl OperationStatus {
    /// The status as it is written.
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

/// What a run did so far, in the order in which it asked for it. The history is whole, from its start.
///
/// Payloads are as stored.
pub fn operations(history: &[TurnRecord]) -> Vec<OperationView> {
    Reader::of(history).operations.into_values().collect()
}

/// The names of the hooks for which a run keeps payloads that nobody has taken. The history is whole.
pub fn kept_hooks(history: &[TurnRecord]) -> Vec<Arc<str>> {
    let kept = Reader::of(history).buffers.into_iter().filter(|(_, payloads)| !payloads.is_empty());
    kept.map(|(name, _)| name).collect()
}

#[derive(Default)]
struct Reader {
    operations: BTreeMap<OpNumber, OperationView>,
    /// The hooks that are open, by name.
    hooks: BTreeMap<Arc<str>, BTreeSet<OpNumber>>,
    /// Payloads that no hook was open for, by the hook's name and their place in the order of arrival.
    buffers: BTreeMap<Arc<str>, BTreeMap<u64, (MessageId, Payload)>>,
    /// The place in that order of the payload that a hook was given, and the message that brought it.
    given: BTreeMap<OpNumber, (u64, MessageId)>,
    arrived: u64,
    /// The timers that were to be ended by a wake.
    woken: BTreeSet<OpNumber>,
    is_cancelled: bool,
    /// The rules of the run; 0 before its start is read.
    rules: u32,
}

impl Reader {
    fn of(history: &[TurnRecord]) -> Self {
        let mut reader = Self::default();
        for turn in history {
            for event in &turn.events {
                reader.read(event, turn.at);
            }
        }
        reader
    }

    fn read(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::RunStarted(started) => self.rules = started.rules,
            Event::HookReceived { name, message, payload, judgement, .. } => {
                let (place, arrived) = (self.arrived, (*message, payload.clone()));
                self.arrived += 1;
                match judgement {
                    _ if self.rules < 2 => self.give(name, place, arrived, at),
                    Judgement::Kept => self.keep(name, place, arrived),
                    Judgement::TakenBy(op) => self.take(*op, place, arrived, at),
                    Judgement::Rejected(reason) => self.reject(name, *message, reason, at),
                }
            }
            Event::HookTaken { op, message } => {
                let name = self.operations.get(op).map(|hook| hook.name.clone()).unwrap_or_default();
                if let Some((place, arrived)) = self.unkeep(&name, *message) {
                    self.take(*op, place, arrived, at);
                }
            }
            Event::HookRejected { name, message, reason } => {
                self.unkeep(name, *message);
                self.reject(name, *message, reason, at);
            }
            Event::HookClosed { op } => self.close(*op, at),
            Event::TimerWoken { ops, .. } => {
                for op in ops {
                    self.change(*op, |open| open.complete(None, at));
                }
                self.woken.extend(ops);
            }
            // They were woken one after the other, and the first had it dropped.
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
        let none = Arc::from("");
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
                new(*op, OperationKind::Timer, &none, &|timer| timer.until = Some(*fire_at));
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
            Event::TagsSet { op, tags } => new(*op, OperationKind::Tags, &none, &|view| {
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
                // That a pause was over leaves no event: the attempt after it is the one that succeeded.
                open.attempts += u32::from(open.retry_at.is_some());
                open.complete(Some(output), at);
            }
            Event::StepFailed { failure, .. } => {
                open.attempts = failure.attempts;
                open.fail(OperationStatus::Failed, failure.clone(), at);
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

    /// Changes an operation whose end has not come. The first outcome is the one that counts.
    fn change(&mut self, op: OpNumber, change: impl FnOnce(&mut OperationView)) {
        let open = self.operations.get_mut(&op);
        if let Some(open) =
            open.filter(|open| matches!(open.status, OperationStatus::Open | OperationStatus::Abandoned))
        {
            change(open);
        }
    }

    /// Opens a hook. Under rules 1, one for which a payload was kept has it at once.
    fn open(&mut self, op: OpNumber, name: &Arc<str>, at: Timestamp) {
        self.hooks.entry(name.clone()).or_default().insert(op);
        if self.rules >= 2 {
            return;
        }
        if let Some((place, arrived)) = self.buffers.get_mut(name).and_then(BTreeMap::pop_first) {
            self.give(name, place, arrived, at);
        }
    }

    /// Gives a payload to the oldest open hook of its name, or keeps it.
    fn give(&mut self, name: &Arc<str>, place: u64, arrived: (MessageId, Payload), at: Timestamp) {
        match self.oldest_open(name) {
            Some(op) => self.take(op, place, arrived, at),
            None => self.keep(name, place, arrived),
        }
    }

    /// The oldest hook of a name that is open.
    fn oldest_open(&mut self, name: &Arc<str>) -> Option<OpNumber> {
        let hooks = self.hooks.get_mut(name)?;
        while let Some(op) = hooks.first().copied() {
            if self.operations.get(&op).is_some_and(OperationView::is_open) {
                return Some(op);
            }
            // Timeouts and cancels leave hooks in the index that are not open any more.
            hooks.pop_first();
        }
        None
    }

    /// A hook has a payload.
    fn take(&mut self, op: OpNumber, place: u64, (message, payload): (MessageId, Payload), at: Timestamp) {
        self.given.insert(op, (place, message));
        self.change(op, |hook| hook.complete(Some(&payload), at));
    }

    fn keep(&mut self, name: &Arc<str>, place: u64, arrived: (MessageId, Payload)) {
        self.buffers.entry(name.clone()).or_default().insert(place, arrived);
    }

    /// Takes a payload out of those that are kept.
    fn unkeep(&mut self, name: &Arc<str>, message: MessageId) -> Option<(u64, (MessageId, Payload))> {
        let buffer = self.buffers.get_mut(name)?;
        let place = *buffer.iter().find(|(_, (kept, _))| *kept == message)?.0;
        buffer.remove_entry(&place)
    }

    /// No open hook can read a payload. The wait goes on, and so nothing changed for it.
    fn reject(&mut self, name: &Arc<str>, message: MessageId, reason: &str, at: Timestamp) {
        let Some(op) = self.oldest_open(name) else { return };
        self.change(op, |hook| hook.rejected.push(Rejection { message, at, reason: reason.into() }));
    }

    /// The workflow dropped a hook. A payload that it was given and did not return goes to the next one under
    /// rules 1; since rules 2 it is kept, and another event says who takes it.
    fn close(&mut self, op: OpNumber, at: Timestamp) {
        let Some(hook) = self.operations.get_mut(&op) else { return };
        let (name, payload) = (hook.name.clone(), hook.output.take());
        hook.end(OperationStatus::Dropped, at);
        if let (Some(payload), Some((place, message))) = (payload, self.given.remove(&op)) {
            if self.rules >= 2 {
                self.keep(&name, place, (message, payload));
            } else {
                self.give(&name, place, (message, payload), at);
            }
        }
    }

    /// The run was told to stop: what the event records ends.
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
                    // The attempt that may have been under way never began.
                    open.attempts = 0;
                }
                open.fail(OperationStatus::Cancelled, failure, at);
            });
        }
    }

    /// Rules 1: the run was told to stop: waits end, and steps between two attempts.
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

/// A timer is due, or the timeout of a hook or child.
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
