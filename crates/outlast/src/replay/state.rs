//! The state that a run's future and the engine share: operations, buffers, time.
//!
//! The future creates, polls and drops operations here; the engine opens what was created, sets
//! outcomes, and reads what was decided. Both do so in the same order in every replay.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use outlast_core::duration::InvalidDuration;
use outlast_core::limits::NAME_BYTES_MAX;
use outlast_core::queue::{check_priority, check_queue, default_queue, step_of_workflow};
use outlast_core::refusal::check_tags;
use outlast_core::{
    Codec, Event, Failure, FailureKind, Headers, OpNumber, Parent, ParentEnd, Payload, Policy, RunId,
    RunStarted, Stuck, StuckReason, Tags, Timestamp,
};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cancel::REFUSED;
use super::cell::{Cell, Due, Op, OpKind, Phase, Recording, StepOp};
use super::children::ChildOp;
use super::hooks::{Arrival, CanRead};
use super::misuse::OUTSIDE;
use super::waker::RunWaker;
use crate::error::{Error, kind_of_payload};
use crate::operation::OpHandle;
use crate::registry::StepCall;

/// What the future of one run and the engine share.
pub(crate) struct RunState {
    run: RunId,
    workflow: Arc<str>,
    version: u32,
    rules: u32,
    headers: Arc<Headers>,
    parent: Option<Parent>,
    deadline: Option<Timestamp>,
    policy: Option<Box<Policy>>,
    codec: Arc<dyn Codec>,
    pub(super) waker: Arc<RunWaker>,
    pub(super) cell: Mutex<Cell>,
}

/// A step about to be asked for.
pub(crate) struct NewStep {
    pub(crate) name: Arc<str>,
    pub(crate) was: &'static [&'static str],
    pub(crate) policy: Policy,
    pub(crate) call: Option<StepCall>,
    /// The queue by which it travels, when the workflow says so; otherwise the policy does.
    pub(crate) queue: Option<Arc<str>>,
}

impl NewStep {
    /// Whether it is attempted by whoever holds the run.
    pub(crate) fn is_in_place(&self) -> bool {
        self.queue.is_none() && self.policy.queue.is_none() && self.policy.priority.is_none()
    }
}

/// A child about to be asked for.
pub(crate) struct NewChildRun<'a> {
    pub(crate) workflow: &'a str,
    pub(crate) version: u32,
    pub(crate) queue: Option<&'a str>,
    pub(crate) priority: u8,
}

impl RunState {
    pub(crate) fn new(run: RunId, started: &RunStarted, codec: Arc<dyn Codec>, now: Timestamp) -> Self {
        let cell = Cell::new(run, started, now);
        Self {
            run,
            rules: started.rules,
            workflow: started.workflow.clone(),
            version: started.version,
            headers: Arc::new(started.headers.clone()),
            parent: started.parent,
            deadline: started.deadline,
            policy: started.policy.clone(),
            codec,
            waker: Arc::default(),
            cell: Mutex::new(cell),
        }
    }

    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    pub(crate) fn workflow(&self) -> &str {
        &self.workflow
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// The version of the engine's semantics that the run was started with.
    pub(crate) fn rules(&self) -> u32 {
        self.rules
    }

    pub(crate) fn headers(&self) -> &Arc<Headers> {
        &self.headers
    }

    pub(crate) fn parent(&self) -> Option<Parent> {
        self.parent
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// How the step is attempted that is this run's whole life.
    pub(crate) fn policy(&self) -> Policy {
        self.policy.as_deref().copied().unwrap_or_default()
    }

    /// The operation whose whole life this run is, when it is a queued step.
    pub(crate) fn asker(&self) -> Option<(RunId, OpNumber)> {
        let parent = self.parent.filter(|_| step_of_workflow(&self.workflow).is_some())?;
        Some((parent.run, parent.op))
    }

    pub(crate) fn codec(&self) -> &Arc<dyn Codec> {
        &self.codec
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.cell.lock().now
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cell.lock().cancelled_at.is_some()
    }

    /// Whether operations that are not shielded are refused.
    pub(crate) fn is_refusing(&self) -> bool {
        self.cell.lock().refusals.is_some()
    }

    /// SplitMix64: one addition and a mix, so the sequence depends on the run alone.
    pub(crate) fn random(&self) -> u64 {
        if self.is_outside(|| "it drew a random number".to_owned()) {
            panic!("{OUTSIDE_PANIC}");
        }
        let mut cell = self.cell.lock();
        cell.random = cell.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = cell.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
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

    /// What a step is given, as it is stored; `None` when history has it.
    pub(crate) fn step_input<I: Serialize>(&self, input: &I) -> Option<Result<Payload, Failure>> {
        // Outside the lock: it is the user's code, and may use the context.
        self.is_new().then(|| self.encode(input))
    }

    /// A step whose input is as it is stored; `None` when history has it.
    #[track_caller]
    pub(crate) fn create_stored_step(
        self: &Arc<Self>,
        new: NewStep,
        input: Option<Result<Payload, Failure>>,
        is_shielded: bool,
    ) -> OpHandle {
        if self.is_outside(|| format!("it asked for step `{}`", new.name)) {
            return OpHandle::new(self.clone(), OUTSIDE);
        }
        let problem = name_problem("step", &new.name);
        let mut cell = self.cell.lock();
        let step = Box::new(StepOp {
            new,
            input,
            failed: 0,
            details: None,
            retry_at: None,
            paused_until: None,
            attempting: false,
            queued: None,
        });
        let op = cell.create(OpKind::Step(step), problem, is_shielded);
        OpHandle::new(self.clone(), op)
    }

    #[track_caller]
    pub(crate) fn create_timer(
        self: &Arc<Self>,
        duration: Result<Duration, InvalidDuration>,
        is_shielded: bool,
    ) -> OpHandle {
        if self.is_outside(|| "it asked for a timer".to_owned()) {
            return OpHandle::new(self.clone(), OUTSIDE);
        }
        let problem = duration.as_ref().err().map(|error| Failure::of_error(FailureKind::Invalid, error));
        let due = Due::After(duration.unwrap_or_default());
        let kind = OpKind::Timer { due, started_at: Timestamp::NEVER, fire_at: Timestamp::NEVER };
        let op = self.cell.lock().create(kind, problem, is_shielded);
        OpHandle::new(self.clone(), op)
    }

    #[track_caller]
    pub(crate) fn create_timer_at(self: &Arc<Self>, moment: Timestamp, is_shielded: bool) -> OpHandle {
        if self.is_outside(|| "it asked for a timer".to_owned()) {
            return OpHandle::new(self.clone(), OUTSIDE);
        }
        let kind =
            OpKind::Timer { due: Due::At(moment), started_at: Timestamp::NEVER, fire_at: Timestamp::NEVER };
        let op = self.cell.lock().create(kind, None, is_shielded);
        OpHandle::new(self.clone(), op)
    }

    /// The value that history has; live, what `compute` returns, as a replay will read it.
    #[track_caller]
    pub(crate) fn record<T, F>(&self, name: &str, compute: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> T,
    {
        if self.is_outside(|| format!("it recorded value `{name}`")) {
            return Err(Error::invalid(OUTSIDE_PANIC));
        }
        let recording = self.cell.lock().record(name, name_problem("value", name));
        let (op, value) = match recording {
            Recording::Never(failure) => return Err(Error::of_failure(failure)),
            Recording::Known(op, value) => (op, value),
            Recording::New(op) => {
                let before = self.cell.lock().traces();
                let value = compute();
                assert!(
                    self.cell.lock().traces() == before,
                    "the closure of value `{name}` uses the context, which a replay would not do; \
                     ask for what it needs before `ctx.record`"
                );
                let value = self.encode(&value);
                let event = Event::ValueRecorded { op, name: name.into(), value: value.clone() };
                self.cell.lock().recorded(event);
                (op, value)
            }
        };
        let decoded = self.codec.decode(value.map_err(Error::of_failure)?).and_then(|plain| plain.decode());
        decoded.map_err(|error| {
            if self.rules >= 2 {
                let message = format!("the recorded value `{name}` (operation {op}) cannot be read: {error}");
                self.set_unreadable(unreadable(error.is_coded(), message));
                if cfg!(panic = "unwind") {
                    // The code after this call must not run, and there is nothing to await. The turn is
                    // discarded, so that nobody sees this panic; no hook is called for it.
                    std::panic::resume_unwind(Box::new("a recorded value cannot be read"));
                }
            }
            let message = format!("value `{name}`, operation {op} of {}: {error}", self.run);
            Error::of_failure(Failure::new(FailureKind::Invalid, message))
        })
    }

    /// The code awaits a value that it cannot read: this turn is its last, and is discarded.
    pub(crate) fn set_unreadable(&self, stuck: Stuck) {
        let mut cell = self.cell.lock();
        // Code that has diverged awaits what is not its own.
        if !cell.is_astray() {
            cell.unreadable.get_or_insert(Box::new(stuck));
        }
    }

    pub(crate) fn patched(&self, name: &str) -> bool {
        if let Some(problem) = name_problem("patch", name) {
            panic!("{}", problem.message);
        }
        if let Some(answer) = self.cell.lock().patch_answer(name) {
            return answer;
        }
        if self.is_outside(|| format!("it asked for patch `{name}`")) {
            panic!("{OUTSIDE_PANIC}");
        }
        self.cell.lock().patched(name)
    }

    #[track_caller]
    pub(crate) fn create_hook(
        self: &Arc<Self>,
        name: &str,
        can_read: CanRead,
        is_shielded: bool,
    ) -> OpHandle {
        if self.is_outside(|| format!("it asked for hook `{name}`")) {
            return OpHandle::new(self.clone(), OUTSIDE);
        }
        let kind = OpKind::Hook { name: name.into(), timeout: None, timeout_at: None, can_read, taken: None };
        let op = self.cell.lock().create(kind, name_problem("hook", name), is_shielded);
        OpHandle::new(self.clone(), op)
    }

    /// What a child is given, checked and plain; `None` when history has it.
    pub(crate) fn child_input<I: Serialize>(
        &self,
        input: &I,
        check: impl FnOnce() -> Result<(), Failure>,
    ) -> Option<Result<Payload, Failure>> {
        // Outside the lock: it is the user's code, and may use the context.
        self.is_new().then(|| check().and_then(|()| self.plain(input)))
    }

    #[track_caller]
    pub(crate) fn create_child(
        self: &Arc<Self>,
        new: NewChildRun<'_>,
        plain: Option<Result<Payload, Failure>>,
        is_shielded: bool,
    ) -> OpHandle {
        let NewChildRun { workflow, version, queue, priority } = new;
        if self.is_outside(|| format!("it asked for child `{workflow}`")) {
            return OpHandle::new(self.clone(), OUTSIDE);
        }
        let problem = name_problem("workflow", workflow);
        let digest = plain.as_ref().and_then(|plain| plain.as_ref().ok()).map_or(0, Payload::digest);
        let input = plain.map(|plain| plain.and_then(|plain| self.coded(plain)));
        let mut cell = self.cell.lock();
        let child = Box::new(ChildOp {
            workflow: workflow.into(),
            version,
            queue: queue.map_or_else(default_queue, Into::into),
            priority,
            run: RunId::of_child(self.run, cell.next_op, cell.now, cell.rules),
            input,
            digest,
            key: None,
            timeout: None,
            timeout_at: None,
            on_parent_end: ParentEnd::Cancel,
            is_detached: false,
        });
        let op = cell.create(OpKind::Child(child), problem, is_shielded);
        OpHandle::new(self.clone(), op)
    }

    pub(crate) fn set_child_key(&self, op: OpNumber, key: String) {
        if key.is_empty() {
            let message = "the child's key is empty; give it at least one character";
            return self.spoil(op, Failure::new(FailureKind::Invalid, message));
        }
        self.edit_child(op, |child| child.key = Some(key));
    }

    pub(crate) fn set_child_timeout(&self, op: OpNumber, timeout: Duration) {
        self.edit_child(op, |child| child.timeout = Some(timeout));
    }

    pub(crate) fn set_on_parent_end(&self, op: OpNumber, choice: ParentEnd) {
        self.edit_child(op, |child| child.on_parent_end = choice);
    }

    /// The queue by which a step travels, or in which a child stands.
    pub(crate) fn set_queue(&self, op: OpNumber, queue: &str) {
        if let Err(reason) = check_queue(queue) {
            let kind = if queue.is_empty() { FailureKind::Invalid } else { FailureKind::Limit };
            return self.spoil(op, Failure::new(kind, reason));
        }
        let mut is_call = None;
        self.edit(op, |kind| match kind {
            OpKind::Step(step) if step.new.call.is_some() => is_call = Some(step.new.name.clone()),
            OpKind::Step(step) => step.new.queue = Some(queue.into()),
            OpKind::Child(child) => child.queue = queue.into(),
            _ => {}
        });
        if let Some(name) = is_call {
            self.spoil(op, Failure::new(FailureKind::Invalid, written_in_place(&name)));
        }
    }

    /// How urgent a queued step or a child is.
    pub(crate) fn set_priority(&self, op: OpNumber, priority: u8) {
        if let Err(reason) = check_priority(priority) {
            return self.spoil(op, Failure::new(FailureKind::Invalid, reason));
        }
        self.edit(op, |kind| match kind {
            OpKind::Step(step) => step.new.policy.priority = Some(priority),
            OpKind::Child(child) => child.priority = priority,
            _ => {}
        });
    }

    /// Nobody awaits the child's end.
    pub(crate) fn detach_child(&self, op: OpNumber) {
        self.edit_child(op, |child| {
            child.on_parent_end = ParentEnd::Abandon;
            child.is_detached = true;
        });
    }

    fn edit_child(&self, op: OpNumber, edit: impl FnOnce(&mut ChildOp)) {
        self.edit(op, |kind| {
            if let OpKind::Child(child) = kind {
                edit(child);
            }
        });
    }

    /// The run that an operation starts.
    pub(crate) fn child_run(&self, op: OpNumber) -> RunId {
        let cell = self.cell.lock();
        match cell.ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Child(child)) => child.run,
            _ => RunId::of_child(self.run, op.0, cell.now, cell.rules),
        }
    }

    /// Sets a tag of the run.
    pub(crate) fn tag(&self, name: &str, value: &str) -> Result<(), Error> {
        if self.is_outside(|| format!("it set tag `{name}`")) {
            return Err(Error::invalid(OUTSIDE_PANIC));
        }
        let mut cell = self.cell.lock();
        let op = OpNumber(cell.next_op);
        if cell.inert {
            return Ok(());
        }
        let has_event = cell.rules < 2;
        cell.next_op += u64::from(has_event);
        let mut all = cell.tags.clone();
        all.insert(name.into(), value.into());
        check_tags(&all).map_err(|message| Error::of_failure(Failure::new(FailureKind::Limit, message)))?;
        let tags = Tags::from([(name.into(), value.into())]);
        if has_event {
            cell.set_tags(op, tags);
        } else {
            cell.set_tags_without_event(tags);
        }
        Ok(())
    }

    pub(crate) fn tags(&self) -> Tags {
        self.cell.lock().tags.clone()
    }

    fn is_new(&self) -> bool {
        let cell = self.cell.lock();
        cell.next_op >= cell.known_ops
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

    /// An operation that was not requested yet fails with this.
    pub(crate) fn spoil(&self, op: OpNumber, failure: Failure) {
        // The kind does not matter: whoever was requested refuses.
        self.edit(op, |_| {});
        let mut cell = self.cell.lock();
        if let Some(slot) = cell.ops.get_mut(op).filter(|slot| matches!(slot.phase, Phase::Created)) {
            slot.phase = Phase::Ended(Err(failure));
        }
    }

    fn edit(&self, op: OpNumber, edit: impl FnOnce(&mut OpKind)) {
        if op == OUTSIDE || self.is_outside(|| format!("it changed {}", self.name_of(op))) {
            return;
        }
        let mut cell = self.cell.lock();
        if cell.inert || op == REFUSED {
            return;
        }
        match cell.ops.get_mut(op) {
            Some(Op { is_requested: true, .. }) | None => {
                drop(cell);
                panic!("operation {op} was already requested; call builder methods before the next await");
            }
            Some(created) => edit(&mut created.kind),
        }
    }

    /// The outcome of an operation, if it is there; otherwise remembers whom to wake.
    pub(crate) fn poll_op(&self, op: OpNumber, waker: &Waker) -> Poll<Result<Payload, Failure>> {
        self.poll_slot(op, waker).map_ok(|(payload, _)| payload)
    }

    /// The payload of a hook and how it arrived, if it is there; otherwise remembers whom to wake.
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

    /// The outcome of an operation, and what it was; an operation that was refused was nothing.
    fn poll_slot(&self, op: OpNumber, waker: &Waker) -> Poll<Result<(Payload, Option<OpKind>), Failure>> {
        if op == OUTSIDE || self.is_outside(|| format!("it awaited {}", self.name_of(op))) {
            return Poll::Pending;
        }
        let mut cell = self.cell.lock();
        if cell.inert || cell.unreadable.is_some() {
            return Poll::Pending;
        }
        if op == REFUSED {
            return cell.poll_refused().map_ok(|payload| (payload, None));
        }
        if !cell.ops.contains(op) {
            drop(cell);
            panic!("operation {op} was polled after it completed");
        }
        let ended = cell.take_ended(op, waker);
        // What the slot holds may belong to the user: let it go outside the lock.
        drop(cell);
        match ended {
            Poll::Ready(Op { phase: Phase::Ended(outcome), kind, .. }) => {
                Poll::Ready(outcome.map(|payload| (payload, Some(kind))))
            }
            _ => Poll::Pending,
        }
    }

    /// The workflow dropped its end of an operation.
    pub(crate) fn drop_op(&self, op: OpNumber) {
        if self.is_dropped_outside(op) {
            return;
        }
        let mut cell = self.cell.lock();
        if cell.inert {
            return;
        }
        let dropped = cell.abandon(op);
        wake_all(cell);
        // What the slot holds may belong to the user: let it go outside the lock.
        drop(dropped);
    }

    /// Before any drop that is not the workflow's own doing: nothing it does counts from now on.
    pub(super) fn make_inert(&self) {
        self.waker.make_inert();
        self.cell.lock().inert = true;
    }

    fn encode<I: Serialize>(&self, input: &I) -> Result<Payload, Failure> {
        self.coded(self.plain(input)?)
    }

    fn plain<I: Serialize>(&self, input: &I) -> Result<Payload, Failure> {
        Payload::json(input).map_err(|error| Failure::new(kind_of_payload(&error), error.to_string()))
    }

    fn coded(&self, plain: Payload) -> Result<Payload, Failure> {
        self.codec.encode(plain).map_err(|error| Failure::new(kind_of_payload(&error), error.to_string()))
    }
}

impl fmt::Debug for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunState({})", self.run)
    }
}

/// What a call outside of the run's turn says that has no handle to keep pending.
const OUTSIDE_PANIC: &str =
    "`ctx` was used outside of the workflow's own code; the run is stuck, and says more";

/// Wakes whom the cell wants woken, outside its lock: a waker may belong to the user.
pub(super) fn wake_all(mut cell: MutexGuard<'_, Cell>) {
    let wakers = std::mem::take(&mut cell.wakers);
    drop(cell);
    for waker in wakers {
        waker.wake();
    }
}

/// What to do about a value that cannot be read.
const REMEDY: &str = "add `#[serde(default)]` if a field was added, or deploy a build that can read it";

/// Why a run is stuck whose code cannot read a value. One that only a codec can read, which the worker
/// lacks, says itself what to do.
pub(crate) fn unreadable(is_coded: bool, message: impl fmt::Display) -> Stuck {
    let (reason, message) = match is_coded {
        true => (StuckReason::Unreadable, message.to_string()),
        false => (StuckReason::Undecodable, format!("{message}; {REMEDY}")),
    };
    Stuck { reason, message, build: String::new() }
}

fn written_in_place(step: &str) -> String {
    format!(
        "step `{step}` is written in place, so that no other worker has its code, and cannot be queued; \
         make it a function with `#[step]`"
    )
}

/// Why a name cannot be one.
fn name_problem(what: &str, name: &str) -> Option<Failure> {
    if name.is_empty() {
        return Some(Failure::new(FailureKind::Invalid, format!("a {what} needs a name")));
    }
    (name.len() > NAME_BYTES_MAX).then(|| {
        let message = format!(
            "the name of {what} `{}…` has {} bytes, the limit is {NAME_BYTES_MAX}; shorten it",
            name.chars().take(20).collect::<String>(),
            name.len()
        );
        Failure::new(FailureKind::Limit, message)
    })
}
