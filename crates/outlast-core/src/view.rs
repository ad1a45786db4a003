//! Views of operations, computed from the history of a run.

mod attempts;
mod changes;
mod kinds;
mod retried;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::cut::{is_skipped, retried_ranges};
use crate::duration::duration_text;
use crate::event::{
    CompensationInput, CompensationRegistered, Event, Judgement, OpNumber, Queued, TurnRecord,
};
use crate::failure::Failure;
use crate::id::{MessageId, RunId};
use crate::iteration::{IterationCut, IterationEnded};
use crate::payload::{Payload, PayloadError};
use crate::run::{Status, Tags};
use crate::time::Timestamp;
use crate::token::WebhookTerms;

use self::changes::{cancel_operation, fire, start_child};

pub use attempts::AttemptView;
pub use kinds::{OperationKind, OperationStatus};

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
    /// The token of an open hook, or of the hook for which it waits.
    pub token: Option<Arc<str>>,
    /// How HTTP requests to the token of an open hook are handled, if it is a webhook.
    pub webhook: Option<Arc<WebhookTerms>>,
    /// Whether a replay skips it: an earlier generation of the run requested it, or the run before it was retried.
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
            token: None,
            webhook: None,
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
    let mut names: Vec<_> = kept.map(|((name, _), _)| name).collect();
    names.dedup();
    names
}

/// Which hooks take a payload: the name, and the token to which it was sent.
type PayloadKey = (Arc<str>, Option<Arc<str>>);

#[derive(Default)]
struct HistoryReader {
    operations: BTreeMap<OpNumber, OperationView>,
    /// The open hooks by name and token.
    hooks: BTreeMap<PayloadKey, BTreeSet<OpNumber>>,
    /// The kept payloads by hook name, token and order of arrival.
    kept_payloads: BTreeMap<PayloadKey, BTreeMap<u64, (MessageId, Payload)>>,
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
        let retried = retried_ranges(history);
        let mut history_reader = Self::default();
        history_reader.read_all(history, &retried);
        if !retried.is_empty() {
            history_reader.add_skipped(history);
        }
        history_reader
    }

    /// Reads the events that are not in these ranges.
    fn read_all(&mut self, history: &[TurnRecord], skips: &[Range<u64>]) {
        for turn in history {
            self.build.clone_from(&turn.build);
            for (number, event) in (turn.seq..).zip(&turn.events) {
                match event {
                    _ if is_skipped(skips, number) => {}
                    Event::RunRetried(retried) => self.reopen(history, retried, turn.at),
                    Event::RunForked(forked) => self.fork(forked, turn.at),
                    _ => self.read(event, turn.at),
                }
            }
        }
    }

    fn read(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::RunStarted(started) => self.rules = started.rules,
            Event::RunContinued(_) => {
                self.operations.values_mut().for_each(|operation| operation.is_skipped = true);
            }
            Event::IterationEnded(ended) => self.end_iteration(ended),
            Event::HookReceived { name, message, payload, judgement, to, .. } => {
                let name = &(name.clone(), to.token.clone());
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
                let name = self.operations.get(op).map(key_of).unwrap_or_default();
                if let Some((arrival_number, arrived)) = self.remove_kept(&name, *message) {
                    self.take(*op, arrival_number, arrived, at);
                }
            }
            Event::HookRejected { name, message, reason } => {
                self.reject_kept(name, *message, reason, at);
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
            | Event::RunCompensating { .. }
            | Event::RunRetrying(_) => self.read_compensation(event, at),
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
            Event::StepStarted { op, name, input, queued, .. } => {
                new(*op, OperationKind::Step, name, &|step| {
                    step.begin_attempts(queued.is_some());
                    step.child = queued.as_ref().map(|queued| queued.run);
                    step.queue = queued.as_ref().map(|queued| queued.queue.clone());
                    step.input = Some(input.clone());
                })
            }
            Event::TimerStarted { op, fire_at } => {
                let name = duration_text(fire_at.since(at)).into();
                new(*op, OperationKind::Timer, &name, &|timer| timer.until = Some(*fire_at));
            }
            Event::HookOpened { op, name, timeout_at, of } => {
                let token = of.and_then(|of| self.operations.get(&of)?.token.clone());
                let mut hook = OperationView::new(*op, OperationKind::Hook, name, at);
                (hook.until, hook.token) = (*timeout_at, token);
                let key = key_of(&hook);
                self.operations.insert(*op, hook);
                self.open(*op, &key, at);
            }
            Event::TokenRequested(requested) => {
                new(requested.op, OperationKind::OpenHook, &requested.name, &|hook| {
                    hook.token = Some(requested.token.clone());
                    hook.webhook.clone_from(&requested.webhook);
                    hook.input.clone_from(&requested.metadata);
                });
            }
            Event::ReplySent { op, payload, .. } => {
                new(*op, OperationKind::Reply, &no_name, &|reply| reply.complete(Some(payload), at));
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
            Event::TokenRefused { failure, .. } => {
                open.fail(OperationStatus::Failed, failure.clone(), at);
            }
            Event::TokenClosed { .. } => open.end(OperationStatus::Completed, at),
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
            Event::RunCompensating { .. } | Event::RunRetrying(_) => {
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
    fn open(&mut self, op: OpNumber, name: &PayloadKey, at: Timestamp) {
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
        name: &PayloadKey,
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
    fn oldest_open(&mut self, name: &PayloadKey) -> Option<OpNumber> {
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

    fn keep(&mut self, name: &PayloadKey, arrival_number: u64, arrived: (MessageId, Payload)) {
        self.kept_payloads.entry(name.clone()).or_default().insert(arrival_number, arrived);
    }

    /// Removes a kept payload.
    fn remove_kept(&mut self, name: &PayloadKey, message: MessageId) -> Option<(u64, (MessageId, Payload))> {
        let kept_payloads = self.kept_payloads.get_mut(name)?;
        let arrival_number = *kept_payloads.iter().find(|(_, (kept, _))| *kept == message)?.0;
        kept_payloads.remove_entry(&arrival_number)
    }

    /// Removes a kept payload that was rejected.
    fn reject_kept(&mut self, name: &Arc<str>, message: MessageId, reason: &str, at: Timestamp) {
        let mut kept = self.kept_payloads.iter();
        let key = kept.find(|(_, kept)| kept.values().any(|(kept, _)| *kept == message));
        let key = key.map_or_else(|| (name.clone(), None), |(key, _)| key.clone());
        self.remove_kept(&key, message);
        self.reject(&key, message, reason, at);
    }

    /// Adds a rejected payload to the oldest open hook. The wait continues unchanged.
    fn reject(&mut self, name: &PayloadKey, message: MessageId, reason: &str, at: Timestamp) {
        let Some(op) = self.oldest_open(name) else { return };
        self.change(op, |hook| hook.rejected.push(Rejection { message, at, reason: reason.into() }));
    }

    /// Closes a hook that the workflow dropped. Under rules 1 a payload that the workflow did not receive goes to the
    /// next hook; from rules 2 on it is kept, and another event records which hook takes it.
    fn close(&mut self, op: OpNumber, at: Timestamp) {
        let Some(hook) = self.operations.get_mut(&op) else { return };
        let (name, payload) = (key_of(hook), hook.output.take());
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

/// The key of the payloads that a hook takes.
fn key_of(hook: &OperationView) -> PayloadKey {
    (hook.name.clone(), hook.token.clone())
}

#[cfg(test)]
mod tests;
