//! The state that a run's future and the engine share: operations, received payloads, time.
//!
//! The future creates, polls and drops operations here. The engine requests what was created, sets outcomes, and reads
//! the decisions of the workflow. Both act in the same order in every replay.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use outlast_core::duration::InvalidDuration;
use outlast_core::limits::NAME_BYTES_MAX;
use outlast_core::queue::{check_name, check_priority, check_queue, default_queue, step_of_workflow};
use outlast_core::refusal::check_tags;
use outlast_core::{
    Codec, EndPlan, Failure, FailureKind, ForkOrigin, Headers, OpNumber, Parent, ParentEnd, Payload, Policy,
    Requester, RunContinued, RunId, RunStarted, Stuck, Tags, Timestamp,
};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use super::cancel::REFUSED;
use super::children::ChildOp;
use super::handle::OpHandle;
use super::hooks::{Arrival, CanRead};
use super::misuse::OUTSIDE_TURN;
use super::names::{hook_problem, name_problem, step_problem};
use super::operation_table::{FireTime, Op, OpKind, OperationTable, Phase, StepOp};
use super::waker::RunWaker;
use crate::authoring::registry::StepCall;
use crate::error::{Error, kind_of_payload};

/// The state that the future of one run and the engine share.
pub(crate) struct RunState {
    run: RunId,
    generation: u64,
    workflow: Arc<str>,
    version: u32,
    rules: u32,
    queue: Arc<str>,
    key: Option<Box<str>>,
    headers: Arc<Headers>,
    parent: Option<Parent>,
    policy: Option<Box<Policy>>,
    requester: Option<Box<Requester>>,
    pub(super) ending: Option<Box<EndPlan>>,
    forked: Option<Box<ForkOrigin>>,
    /// The input of the generation: it may be retried.
    pub(super) input: Payload,
    pub(super) failed_tries: u32,
    codec: Arc<dyn Codec>,
    /// Where the servers of the worker can be reached.
    pub(super) public_url: OnceLock<Arc<str>>,
    pub(super) waker: Arc<RunWaker>,
    pub(super) table: Mutex<OperationTable>,
}

/// A step that is about to be requested.
pub(crate) struct NewStep {
    pub(crate) name: Arc<str>,
    pub(crate) was: &'static [&'static str],
    pub(crate) policy: Policy,
    pub(crate) call: Option<StepCall>,
    /// The queue that the workflow chose for this request; `None` means the queue of the policy.
    pub(crate) queue: Option<Arc<str>>,
}

impl NewStep {
    /// Whether the worker that holds the run attempts it, without a queue.
    pub(crate) fn is_in_place(&self) -> bool {
        self.queue.is_none() && self.policy.queue.is_none() && self.policy.priority.is_none()
    }
}

/// A child that is about to be requested.
pub(crate) struct NewChildRun<'a> {
    pub(crate) workflow: &'a str,
    pub(crate) version: u32,
    pub(crate) queue: Option<&'a str>,
    pub(crate) priority: u8,
    pub(crate) ending: Option<Box<EndPlan>>,
}

impl RunState {
    pub(crate) fn new(run: RunId, begin: &RunContinued, codec: Arc<dyn Codec>, now: Timestamp) -> Self {
        let table = OperationTable::new(run, begin, now);
        let started = &begin.started;
        Self {
            run,
            generation: begin.generation,
            queue: started.queue.clone(),
            key: started.key.as_deref().map(Into::into),
            rules: started.rules,
            workflow: started.workflow.clone(),
            version: started.version,
            headers: Arc::new(started.headers.clone()),
            parent: started.parent,
            policy: started.policy.clone(),
            requester: started.requester.clone(),
            ending: started.ending.clone(),
            forked: started.forked.clone(),
            input: started.input.clone(),
            failed_tries: begin.failed_tries,
            codec,
            public_url: OnceLock::new(),
            waker: Arc::default(),
            table: Mutex::new(table),
        }
    }

    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// The generation of the run, from 1.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn queue(&self) -> &str {
        &self.queue
    }

    pub(crate) fn workflow(&self) -> &str {
        &self.workflow
    }

    pub(super) fn shared_workflow(&self) -> Arc<str> {
        self.workflow.clone()
    }

    /// The start of the run as its next generation begins with it.
    pub(super) fn next_start(&self, input: Payload, version: Option<u32>) -> RunStarted {
        let table = self.table.lock();
        RunStarted {
            workflow: self.workflow.clone(),
            version: version.unwrap_or(self.version),
            rules: self.rules,
            queue: self.queue.clone(),
            priority: table.priority,
            key: self.key.as_deref().map(Into::into),
            input,
            headers: (*self.headers).clone(),
            tags: table.tags.clone(),
            parent: self.parent,
            deadline: table.deadline,
            policy: self.policy.clone(),
            requester: self.requester.clone(),
            ending: self.ending.clone(),
            forked: self.forked.clone(),
        }
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// The version of the engine's semantics that the run was started with.
    pub(crate) fn rules(&self) -> u32 {
        self.rules
    }

    /// The key of the start.
    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    pub(crate) fn headers(&self) -> &Arc<Headers> {
        &self.headers
    }

    pub(crate) fn parent(&self) -> Option<Parent> {
        self.parent
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.table.lock().deadline
    }

    /// The policy of the step that this run executes, when the run is a queued step.
    pub(crate) fn policy(&self) -> Policy {
        self.policy.as_deref().copied().unwrap_or_default()
    }

    /// The run and operation that requested this run, when it is a queued step.
    pub(crate) fn requested_by(&self) -> Option<(RunId, OpNumber)> {
        let parent = self.parent.filter(|_| step_of_workflow(&self.workflow).is_some())?;
        Some((parent.run, parent.op))
    }

    /// The workflow and the tags that the code of a step sees: those of the run that requested it.
    pub(crate) fn requester(&self) -> Requester {
        match &self.requester {
            Some(requester) => (**requester).clone(),
            // An older build has requested the queued step.
            None if self.requested_by().is_some() => Requester::default(),
            None => Requester { workflow: self.workflow.clone(), tags: self.tags() },
        }
    }

    pub(crate) fn codec(&self) -> &Arc<dyn Codec> {
        &self.codec
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.table.lock().now
    }

    /// Whether a cancel was delivered.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.table.lock().cancelled_at.is_some()
    }

    /// Whether operations that are not shielded are refused, because the run was cancelled.
    pub(crate) fn is_refusing(&self) -> bool {
        self.table.lock().refusals.is_some()
    }

    /// The next random number. SplitMix64, seeded with the run's id: every replay gets the same sequence. It must not
    /// be used for secrets, since the id is public.
    pub(crate) fn random(&self) -> u64 {
        if self.is_outside_turn(|| "it requested a random number".to_owned()) {
            panic!("{OUTSIDE_TURN_PANIC}");
        }
        self.table.lock().next_random()
    }

    #[track_caller]
    pub(crate) fn create_step<I: Serialize>(
        self: &Arc<Self>,
        new: NewStep,
        input: &I,
        is_shielded: bool,
    ) -> OpHandle {
        let input = self.step_input(input);
        self.create_stored_step(new, input, is_shielded)
    }

    /// The input of a step as it is stored; `None` when the history contains it, so that it need not be encoded.
    pub(crate) fn step_input<I: Serialize>(&self, input: &I) -> Option<Result<Payload, Failure>> {
        // Serialize outside the lock: this runs code of the user, which may use the context.
        self.is_next_op_new().then(|| self.encode(input))
    }

    /// Creates a step from its stored input, which is `None` when the history contains it.
    #[track_caller]
    pub(crate) fn create_stored_step(
        self: &Arc<Self>,
        new: NewStep,
        input: Option<Result<Payload, Failure>>,
        is_shielded: bool,
    ) -> OpHandle {
        if self.is_outside_turn(|| format!("it requested step `{}`", new.name)) {
            return OpHandle::new(self.clone(), OUTSIDE_TURN);
        }
        let problem = step_problem(&new);
        let mut table = self.table.lock();
        let step = Box::new(StepOp::new(new, input));
        let op = table.create(OpKind::Step(step), problem, is_shielded);
        OpHandle::new(self.clone(), op)
    }

    #[track_caller]
    pub(crate) fn create_timer(
        self: &Arc<Self>,
        duration: Result<Duration, InvalidDuration>,
        is_shielded: bool,
    ) -> OpHandle {
        if self.is_outside_turn(|| "it requested a timer".to_owned()) {
            return OpHandle::new(self.clone(), OUTSIDE_TURN);
        }
        let problem = duration.as_ref().err().map(|error| Failure::of_error(FailureKind::Invalid, error));
        let due = FireTime::After(duration.unwrap_or_default());
        let kind = OpKind::Timer { due, started_at: Timestamp::NEVER, fire_at: Timestamp::NEVER };
        let op = self.table.lock().create(kind, problem, is_shielded);
        OpHandle::new(self.clone(), op)
    }

    #[track_caller]
    pub(crate) fn create_timer_at(self: &Arc<Self>, moment: Timestamp, is_shielded: bool) -> OpHandle {
        if self.is_outside_turn(|| "it requested a timer".to_owned()) {
            return OpHandle::new(self.clone(), OUTSIDE_TURN);
        }
        let kind = OpKind::Timer {
            due: FireTime::At(moment),
            started_at: Timestamp::NEVER,
            fire_at: Timestamp::NEVER,
        };
        let op = self.table.lock().create(kind, None, is_shielded);
        OpHandle::new(self.clone(), op)
    }

    /// Records that the code awaits a value that it cannot decode. The turn is discarded and the run is stuck.
    pub(crate) fn set_unreadable(&self, stuck: Stuck) {
        let mut table = self.table.lock();
        // The value belongs to a different operation if the code has diverged.
        if !table.has_diverged() {
            table.unreadable.get_or_insert(Box::new(stuck));
        }
    }

    pub(crate) fn patched(&self, name: &str) -> bool {
        if let Some(problem) = name_problem("patch", name) {
            panic!("{}", problem.message);
        }
        if let Some(answer) = self.table.lock().patch_answer(name) {
            return answer;
        }
        if self.is_outside_turn(|| format!("it called `patched` with `{name}`")) {
            panic!("{OUTSIDE_TURN_PANIC}");
        }
        self.table.lock().patched(name)
    }

    #[track_caller]
    pub(crate) fn create_hook(
        self: &Arc<Self>,
        name: &str,
        can_read: CanRead,
        is_shielded: bool,
    ) -> OpHandle {
        self.create_hook_of(name, None, can_read, is_shielded)
    }

    /// Creates a wait for a payload; `of` is the token to which it is sent, and the operation that took the token.
    #[track_caller]
    pub(crate) fn create_hook_of(
        self: &Arc<Self>,
        name: &str,
        of: Option<(OpNumber, Arc<str>)>,
        can_read: CanRead,
        is_shielded: bool,
    ) -> OpHandle {
        if self.is_outside_turn(|| format!("it requested hook `{name}`")) {
            return OpHandle::new(self.clone(), OUTSIDE_TURN);
        }
        let (of, token) = of.unzip();
        let (timeout, timeout_at, taken) = (None, None, None);
        let kind = OpKind::Hook { name: name.into(), timeout, timeout_at, can_read, taken, of, token };
        let op = self.table.lock().create(kind, hook_problem(&self.workflow, name), is_shielded);
        OpHandle::new(self.clone(), op)
    }

    /// The input of a child as JSON, after its check; `None` when the history contains it.
    pub(crate) fn child_input<I: Serialize>(
        &self,
        input: &I,
        check: impl FnOnce() -> Result<(), Failure>,
    ) -> Option<Result<Payload, Failure>> {
        // Serialize outside the lock: this runs code of the user, which may use the context.
        self.is_next_op_new().then(|| check().and_then(|()| self.to_json(input)))
    }

    #[track_caller]
    pub(crate) fn create_child(
        self: &Arc<Self>,
        new: NewChildRun<'_>,
        plain: Option<Result<Payload, Failure>>,
        is_shielded: bool,
    ) -> OpHandle {
        let NewChildRun { workflow, version, queue, priority, ending } = new;
        if self.is_outside_turn(|| format!("it requested child `{workflow}`")) {
            return OpHandle::new(self.clone(), OUTSIDE_TURN);
        }
        let problem = name_problem("workflow", workflow);
        let digest = plain.as_ref().and_then(|plain| plain.as_ref().ok()).map_or(0, Payload::digest);
        let input = plain.map(|plain| plain.and_then(|plain| self.apply_codec(plain)));
        let mut table = self.table.lock();
        let child = Box::new(ChildOp {
            workflow: workflow.into(),
            version,
            queue: queue.map_or_else(default_queue, Into::into),
            priority,
            run: RunId::of_child(self.run, table.next_op, table.now, table.rules),
            input,
            digest,
            key: None,
            timeout: None,
            timeout_at: None,
            on_parent_end: ParentEnd::Cancel,
            is_detached: false,
            is_cancelled_on_drop: false,
            ending,
            options: None,
            is_carried: false,
        });
        let op = table.create(OpKind::Child(child), problem, is_shielded);
        OpHandle::new(self.clone(), op)
    }

    /// Sets the queue of a step or a child.
    pub(crate) fn set_queue(&self, op: OpNumber, queue: &str) {
        if let Err(reason) = check_queue(queue) {
            let is_too_long = queue.len() > NAME_BYTES_MAX;
            let kind = if is_too_long { FailureKind::Limit } else { FailureKind::Invalid };
            return self.fail_before_request(op, Failure::new(kind, reason));
        }
        let mut is_call = None;
        self.edit(op, |kind| match kind {
            OpKind::Step(step) if step.new.call.is_some() => is_call = Some(step.new.name.clone()),
            OpKind::Step(step) => step.new.queue = Some(queue.into()),
            OpKind::Child(child) => child.queue = queue.into(),
            _ => {}
        });
        if let Some(name) = is_call {
            self.fail_before_request(op, Failure::new(FailureKind::Invalid, written_in_place(&name)));
        }
    }

    /// Sets the priority of a queued step or a child.
    pub(crate) fn set_priority(&self, op: OpNumber, priority: u8) {
        if let Err(reason) = check_priority(priority) {
            return self.fail_before_request(op, Failure::new(FailureKind::Invalid, reason));
        }
        self.edit(op, |kind| match kind {
            OpKind::Step(step) => step.new.policy.priority = Some(priority),
            OpKind::Child(child) => child.priority = priority,
            _ => {}
        });
    }

    /// Detaches a child: the run does not await its end.
    pub(crate) fn detach_child(&self, op: OpNumber) {
        self.edit_child(op, |child| {
            child.on_parent_end = ParentEnd::Abandon;
            child.is_detached = true;
        });
    }

    pub(super) fn edit_child(&self, op: OpNumber, edit: impl FnOnce(&mut ChildOp)) {
        self.edit(op, |kind| {
            if let OpKind::Child(child) = kind {
                edit(child);
            }
        });
    }

    /// The run that an operation starts.
    pub(crate) fn child_run(&self, op: OpNumber) -> RunId {
        let table = self.table.lock();
        match table.ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Child(child)) => child.run,
            _ => RunId::of_child(self.run, op.0, table.now, table.rules),
        }
    }

    /// Sets a tag of the run.
    pub(crate) fn tag(&self, name: &str, value: &str) -> Result<(), Error> {
        if self.is_outside_turn(|| format!("it set tag `{name}`")) {
            return Err(Error::invalid(OUTSIDE_TURN_PANIC));
        }
        let mut table = self.table.lock();
        let op = OpNumber(table.next_op);
        if table.is_closed {
            return Ok(());
        }
        let has_event = table.rules < 2;
        table.next_op += u64::from(has_event);
        check_name("tag", name).map_err(Error::invalid)?;
        let mut all = table.tags.clone();
        all.insert(name.into(), value.into());
        check_tags(&all).map_err(|message| Error::of_failure(Failure::new(FailureKind::Limit, message)))?;
        let tags = Tags::from([(name.into(), value.into())]);
        if has_event {
            table.set_tags(op, tags);
        } else {
            table.set_tags_without_event(tags);
        }
        Ok(())
    }

    pub(crate) fn tags(&self) -> Tags {
        self.table.lock().tags.clone()
    }

    /// Whether the next operation is not in the history.
    fn is_next_op_new(&self) -> bool {
        let table = self.table.lock();
        table.next_op >= table.recorded_ops
    }

    pub(crate) fn edit_policy(&self, op: OpNumber, edit: impl FnOnce(&mut Policy)) {
        self.edit(op, |kind| {
            if let OpKind::Step(step) = kind {
                edit(&mut step.new.policy);
            }
        });
    }

    pub(crate) fn set_hook_timeout(&self, op: OpNumber, duration: Duration) {
        self.edit(op, |kind| {
            if let OpKind::Hook { timeout, .. } = kind {
                *timeout = Some(duration);
            }
        });
    }

    /// Makes an operation fail that has not been requested yet.
    pub(crate) fn fail_before_request(&self, op: OpNumber, failure: Failure) {
        self.assert_not_requested(op);
        let mut table = self.table.lock();
        if let Some(slot) = table.ops.get_mut(op).filter(|slot| matches!(slot.phase, Phase::Created)) {
            slot.phase = Phase::Ended(Err(failure));
        }
    }

    /// Panics when an operation was already requested.
    pub(super) fn assert_not_requested(&self, op: OpNumber) {
        self.edit(op, |_| {});
    }

    fn edit(&self, op: OpNumber, edit: impl FnOnce(&mut OpKind)) {
        if op == OUTSIDE_TURN || self.is_outside_turn(|| format!("it changed {}", self.describe_op(op))) {
            return;
        }
        let mut table = self.table.lock();
        if table.is_closed || op == REFUSED {
            return;
        }
        match table.ops.get_mut(op) {
            Some(Op { is_requested: true, .. }) | None => {
                drop(table);
                panic!("operation {op} was already requested; call builder methods before the next await");
            }
            Some(created) => edit(&mut created.kind),
        }
    }

    /// The outcome of an operation; stores the waker while there is none.
    pub(crate) fn poll_op(&self, op: OpNumber, waker: &Waker) -> Poll<Result<Payload, Failure>> {
        self.poll_slot(op, waker).map_ok(|(payload, _)| payload)
    }

    /// The payload of a hook and its arrival; stores the waker while there is none.
    pub(crate) fn poll_hook(
        &self,
        op: OpNumber,
        waker: &Waker,
    ) -> Poll<Result<(Payload, Box<Arrival>), Failure>> {
        match self.poll_slot(op, waker) {
            Poll::Ready(Ok((payload, Some(OpKind::Hook { taken: Some(arrival), .. })))) => {
                Poll::Ready(Ok((payload, arrival)))
            }
            Poll::Ready(Err(failure)) => Poll::Ready(Err(failure)),
            _ => Poll::Pending,
        }
    }

    /// The outcome of an operation and its kind; a refused operation has no kind.
    fn poll_slot(&self, op: OpNumber, waker: &Waker) -> Poll<Result<(Payload, Option<OpKind>), Failure>> {
        if op == OUTSIDE_TURN || self.is_outside_turn(|| format!("it awaited {}", self.describe_op(op))) {
            return Poll::Pending;
        }
        let mut table = self.table.lock();
        if table.is_closed || table.unreadable.is_some() {
            return Poll::Pending;
        }
        if op == REFUSED {
            return table.poll_refused().map_ok(|payload| (payload, None));
        }
        if !table.ops.contains(op) {
            drop(table);
            panic!("operation {op} was polled after it completed");
        }
        let ended = table.take_ended(op, waker);
        // Drop the operation outside the lock: it may contain values of the user.
        drop(table);
        match ended {
            Poll::Ready(Op { phase: Phase::Ended(outcome), kind, .. }) => {
                // Runs with rules 1 do not record the operation of a failure.
                let of_op =
                    |failure: Failure| if self.rules >= 2 { failure.of_operation(op.0) } else { failure };
                let outcome = outcome.map_err(of_op);
                Poll::Ready(outcome.map(|payload| (payload, Some(kind))))
            }
            _ => Poll::Pending,
        }
    }

    /// The workflow dropped the handle of an operation.
    pub(crate) fn drop_op(&self, op: OpNumber) {
        if self.is_dropped_outside_turn(op) {
            return;
        }
        let mut table = self.table.lock();
        if table.is_closed {
            return;
        }
        let dropped = table.drop_operation(op);
        wake_all(table);
        // Drop the operation outside the lock: it may contain values of the user.
        drop(dropped);
    }

    /// The workflow cancels an operation.
    pub(crate) fn cancel_op(&self, op: OpNumber) {
        if op == OUTSIDE_TURN || self.is_outside_turn(|| format!("it cancelled {}", self.describe_op(op))) {
            return;
        }
        let mut table = self.table.lock();
        if !table.is_closed {
            table.cancel_operation(op);
            wake_all(table);
        }
    }

    /// Ignores everything that the future does from now on. Called before the engine drops the future.
    pub(super) fn close(&self) {
        self.waker.close();
        self.table.lock().is_closed = true;
    }

    pub(crate) fn encode<I: Serialize>(&self, input: &I) -> Result<Payload, Failure> {
        self.apply_codec(self.to_json(input)?)
    }

    pub(super) fn to_json<I: Serialize + ?Sized>(&self, input: &I) -> Result<Payload, Failure> {
        Payload::json(input).map_err(|error| Failure::new(kind_of_payload(&error), error.to_string()))
    }

    pub(super) fn apply_codec(&self, plain: Payload) -> Result<Payload, Failure> {
        self.codec.encode(plain).map_err(|error| Failure::new(kind_of_payload(&error), error.to_string()))
    }
}

impl fmt::Debug for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunState({})", self.run)
    }
}

/// The error of a call outside of the run's turn that has no handle which could stay pending.
pub(super) const OUTSIDE_TURN_PANIC: &str =
    "`ctx` was used outside of the workflow's own code; `client.explain(run)` shows where";

/// Calls the wakers that the table has collected, outside its lock: a waker may run code of the user.
pub(super) fn wake_all(mut table: MutexGuard<'_, OperationTable>) {
    let wakers = std::mem::take(&mut table.wakers);
    let discarded = std::mem::take(&mut table.discarded);
    drop(table);
    drop(discarded);
    for waker in wakers {
        waker.wake();
    }
}

fn written_in_place(step: &str) -> String {
    format!(
        "step `{step}` is written in place, so other workers do not have its code and it cannot be queued; \
         make it a function with `#[step]`"
    )
}
