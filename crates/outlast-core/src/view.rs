//! Views of operations, computed from the history of a run.

mod attempts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::duration::duration_text;
use crate::event::{
    ChildStarted, CompensationInput, CompensationRegistered, Event, Judgement, OpNumber, Queued, TurnRecord,
};
use crate::failure::{CANCELLED_BY_WORKFLOW, Failure, FailureKind};
use crate::id::{MessageId, RunId};
use crate::iteration::{IterationCut, IterationEnded};
use crate::payload::{Payload, PayloadError};
use crate::run::{Status, Tags};
use crate::time::Timestamp;

pub use attempts::AttemptView;

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
    pub attempt_count: u32,
    /// The attempts at a step, in order. The last one of an open step may be due later. Empty for a queued step.
    pub attempts: Vec<AttemptView>,
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
    /// The step that a registered compensation undoes, or the registration that a compensating step carries out.
    pub undoes: Option<OpNumber>,
    /// Payloads that were sent to a hook while it was open and that no open hook of its name can decode, in the order
    /// of their arrival. They are listed with the oldest of those hooks.
    pub rejected: Vec<Rejection>,
    /// Whether a replay skips it, because an earlier generation of the run requested it.
    pub is_skipped: bool,
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
            attempt_count: 0,
            attempts: Vec::new(),
            crashed: 0,
            retry_at: None,
            until: None,
            child: None,
            queue: None,
            input: None,
            output: None,
            failure: None,
            tags: Tags::new(),
            undoes: None,
            rejected: Vec::new(),
            is_skipped: false,
        }
    }

    fn end(&mut self, status: OperationStatus, at: Timestamp) {
        self.status = status;
        self.changed_at = at;
        self.ended_at = Some(at);
        self.end_attempt(at);
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
    /// The registration of a compensation. It is open until the compensation has run, or is not needed any more.
    Compensation,
    /// The decision that registered compensations are not needed any more.
    Keep,
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
            Self::Compensation => "compensation",
            Self::Keep => "keep",
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
    /// The build of the turn that is being read.
    build: Arc<str>,
    /// The rules of the run; 0 before its start is read.
    rules: u32,
}

impl HistoryReader {
    fn of(history: &[TurnRecord]) -> Self {
        let mut history_reader = Self::default();
        for turn in history {
            history_reader.build.clone_from(&turn.build);
            for event in &turn.events {
                history_reader.read(event, turn.at);
            }
        }
        history_reader
    }

    fn read(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::RunStarted(started) => self.rules = started.rules,
            Event::RunContinued(_) => {
                self.operations.values_mut().for_each(|operation| operation.is_skipped = true);
            }
            Event::IterationEnded(ended) => self.end_iteration(ended),
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
            Event::CompensationRegistered(_)
            | Event::CompensationStarted { .. }
            | Event::CompensationsKept { .. }
            | Event::RunCompensating { .. } => self.read_compensation(event, at),
            Event::CancelRequested { reason, ends, maybe_attempted, .. } if self.rules >= 2 => {
                self.end_by_cancel(reason, ends, maybe_attempted, at);
            }
            Event::CancelRequested { reason, pauses, .. } => self.cancel(reason, pauses, at),
            _ if Status::of_final(event).is_some() => {
                for open in self.operations.values_mut().filter(|operation| operation.is_open()) {
                    open.end(OperationStatus::Dropped, at);
                }
            }
            _ => self.read_operation(event, at),
        }
    }

    /// Marks the operations of iterations that a replay skips. Those that are not skipped keep their end as a value.
    fn end_iteration(&mut self, ended: &IterationEnded) {
        let Some(skip) = ended.cut.as_ref().and_then(IterationCut::last_skip) else { return };
        let skipped = self.operations.range_mut((Bound::Excluded(skip.after), Bound::Excluded(skip.until)));
        skipped.for_each(|(_, operation)| operation.is_skipped = true);
    }

    fn read_operation(&mut self, event: &Event, at: Timestamp) {
        self.read_request(event, at);
        self.read_outcome(event, at);
        if let Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } = event {
            self.end_registration(*op, at);
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
                step.begin_attempts(queued.is_some());
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
        let build = self.build.clone();
        self.change(op, |open| match event {
            Event::StepCompleted { output, .. } | Event::ChildCompleted { output, .. } => {
                // The end of a pause is not recorded: the attempt after it succeeded.
                open.attempt_count += u32::from(open.retry_at.is_some());
                open.complete(Some(output), at);
                open.set_attempt_build(&build);
            }
            Event::StepFailed { failure, .. } => {
                open.attempt_count = failure.attempts;
                let is_cancelled = open.cancelled_at.is_some() && failure.is_cancelled();
                let status = if is_cancelled { OperationStatus::Cancelled } else { OperationStatus::Failed };
                open.fail(status, failure.clone(), at);
                open.set_attempt_build(&build);
            }
            Event::StepRetried { attempt, failure, retry_at, .. } => {
                open.retry_attempt(*attempt, failure, *retry_at, at);
                open.set_attempt_build(&build);
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

    fn read_compensation(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::CompensationRegistered(registered) => self.register(registered, at),
            Event::CompensationStarted { op, of, queued } => self.compensate(*op, *of, queued.as_deref(), at),
            Event::CompensationsKept { op, of } => {
                let mut keep = OperationView::new(*op, OperationKind::Keep, &Arc::from(""), at);
                keep.complete(None, at);
                self.operations.insert(*op, keep);
                of.iter().for_each(|of| self.change(*of, |open| open.end(OperationStatus::Dropped, at)));
            }
            Event::RunCompensating { .. } => {
                let is_wait = |open: &&mut OperationView| {
                    open.is_open() && matches!(open.kind, OperationKind::Timer | OperationKind::Hook)
                };
                for wait in self.operations.values_mut().filter(is_wait) {
                    wait.end(OperationStatus::Dropped, at);
                }
            }
            _ => {}
        }
    }

    /// Adds the registration of a compensation.
    fn register(&mut self, registered: &CompensationRegistered, at: Timestamp) {
        let CompensationRegistered { op, step, input, queue, .. } = registered;
        let mut view = OperationView::new(*op, OperationKind::Compensation, step, at);
        view.queue.clone_from(queue);
        match input {
            CompensationInput::Undo(of) => view.undoes = Some(*of),
            CompensationInput::Value(Ok(value)) => view.input = Some(value.clone()),
            CompensationInput::Value(Err(failure)) => {
                view.fail(OperationStatus::Failed, failure.clone(), at);
            }
        }
        self.operations.insert(*op, view);
    }

    /// Adds the step that carries out a compensation.
    fn compensate(&mut self, op: OpNumber, of: OpNumber, queued: Option<&Queued>, at: Timestamp) {
        let registration = self.operations.get(&of);
        let name = registration.map_or_else(|| Arc::from(""), |registration| registration.name.clone());
        let mut step = OperationView::new(op, OperationKind::Step, &name, at);
        step.input = registration.and_then(|registration| registration.input.clone());
        step.begin_attempts(queued.is_some());
        step.child = queued.map(|queued| queued.run);
        step.queue = queued.map(|queued| queued.queue.clone());
        step.undoes = Some(of);
        self.operations.insert(op, step);
    }

    /// Ends the registration of a compensation whose step has ended.
    fn end_registration(&mut self, op: OpNumber, at: Timestamp) {
        let step = self.operations.get(&op).filter(|step| step.ended_at.is_some());
        let Some((of, step)) = step.and_then(|step| Some((step.undoes?, step.clone()))) else { return };
        if step.kind != OperationKind::Step {
            return;
        }
        self.change(of, |registration| match &step.failure {
            // It was cancelled with its saga, and runs again if the run does not complete.
            Some(failure) if failure.is_cancelled() => {}
            Some(failure) => registration.fail(OperationStatus::Failed, failure.clone(), at),
            None => registration.complete(None, at),
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
                    open.attempt_count = 0;
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
