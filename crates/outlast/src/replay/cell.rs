//! The operations of one run: created by the future, opened and ended by the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use outlast_core::limits::OPEN_OPERATIONS_MAX;
use outlast_core::{
    Event, Failure, FailureKind, OpNumber, Payload, Queued, RunId, RunStarted, Stuck, Tags, Timestamp,
};

use super::cancel::{REFUSED, Refusals};
use super::children::{ChildOp, Children, OpenChild, Wishes};
use super::hooks::{Arrival, Arrived, CanRead, Hooks};
use super::known::Known;
use super::machine::StepToAttempt;
use super::ops::Ops;
use super::state::NewStep;
use crate::registry::Registered;

/// The part of a run's state behind the lock.
pub(super) struct Cell {
    pub(super) run: RunId,
    /// The rules of the run: they alone decide how it behaves where versions differ.
    pub(super) rules: u32,
    /// How urgent the run is.
    pub(super) priority: u8,
    /// Operations that are not over, by number.
    pub(super) ops: Ops,
    pub(super) next_op: u64,
    pub(super) now: Timestamp,
    pub(super) random: u64,
    /// How many operations existed when the cancel was delivered.
    pub(super) cancelled_at: Option<u64>,
    /// What the run is refused since it was cancelled; from rules 2 on.
    pub(super) refusals: Option<Box<Refusals>>,
    /// Steps that a worker which is gone may have attempted.
    pub(super) doubtful: BTreeSet<OpNumber>,
    /// Steps below this number are in the history: their input need not be encoded again.
    pub(super) known_ops: u64,
    /// What the history holds that is replayed now; `None` in a live run.
    pub(super) known: Option<Box<Known>>,
    /// The answers that patches got.
    patches: BTreeMap<Arc<str>, bool>,
    pub(super) inert: bool,
    /// Whom to wake once the lock is free.
    pub(super) wakers: Vec<Waker>,
    /// Steps that may be attempted and have not been taken by the engine.
    pub(super) startable: Vec<OpNumber>,
    /// Steps that failed as they were requested: what they were given is not a payload.
    pub(super) refused: Vec<(OpNumber, Failure)>,
    /// How many operations are open.
    pub(super) open: usize,
    /// How many open steps are not between two attempts.
    pub(super) active: usize,
    /// When open timers, timeouts and retries are due.
    pub(super) due: BTreeSet<(Timestamp, OpNumber)>,
    /// What the future did since the engine last looked, in order.
    decisions: Vec<Decision>,
    pub(super) hooks: Hooks,
    /// The children that have not ended, whether their operations are open or not.
    pub(super) children: Children,
    /// The run's tags.
    pub(super) tags: Tags,
    /// How often tags were set.
    pub(super) tagged: u64,
    /// The tags that the last replay has set; from rules 2 on.
    pub(super) replayed_tags: Tags,
    /// What the next commit asks of others. Most ask nothing.
    pub(super) wishes: Option<Box<Wishes>>,
    /// Why the run cannot go on: the code awaits a value that it cannot read.
    pub(super) unreadable: Option<Box<Stuck>>,
    /// Why the run cannot go on: its context was used outside of its turn.
    pub(super) misused: Option<Box<Stuck>>,
}

enum Decision {
    Created(OpNumber),
    Dropped(Event),
    /// A value or a patch, which holds even when the run ends in the same poll.
    Recorded(Event),
}

/// A place in the workflow's source.
pub(super) type Place = &'static Location<'static>;

/// What becomes of a value that the workflow wants recorded.
pub(super) enum Recording {
    /// It is to be computed, and recorded for this operation.
    New(OpNumber),
    /// History has it.
    Known(OpNumber, Result<Payload, Failure>),
    /// There is none.
    Never(Failure),
}

/// An operation that is not over.
pub(super) struct Op {
    pub(super) phase: Phase,
    pub(super) kind: OpKind,
    /// Whether history has it: how it is asked for can no longer be changed.
    pub(super) is_requested: bool,
    /// Whether neither a cancel nor a deadline touches it.
    pub(super) is_shielded: bool,
    /// Where the workflow asked for it.
    place: Place,
    waker: Option<Waker>,
}

/// Where an operation is in its life.
pub(super) enum Phase {
    /// Numbered, but not requested yet.
    Created,
    /// Requested; history has it.
    Open,
    /// Its outcome is there, and not yet returned.
    Ended(Result<Payload, Failure>),
}

/// What an operation waits for.
pub(super) enum OpKind {
    Step(Box<StepOp>),
    Timer {
        due: Due,
        started_at: Timestamp,
        fire_at: Timestamp,
    },
    Hook {
        name: Arc<str>,
        timeout: Option<Duration>,
        timeout_at: Option<Timestamp>,
        can_read: CanRead,
        /// How the payload arrived that it has.
        taken: Option<Box<Arrival>>,
    },
    Child(Box<ChildOp>),
}

/// When a timer is due.
#[derive(Clone, Copy)]
pub(super) enum Due {
    /// So long after it was started.
    After(Duration),
    /// At a moment; at once when that is past.
    At(Timestamp),
}

impl Due {
    fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::After(duration) => now.plus(duration),
            Self::At(moment) => moment.max(now),
        }
    }
}

/// A step that was asked for.
pub(super) struct StepOp {
    pub(super) new: NewStep,
    /// `None` while the history is known to have it.
    pub(super) input: Option<Result<Payload, Failure>>,
    /// Failed attempts so far.
    pub(super) failed: u32,
    /// The details of the last heartbeat that is recorded.
    pub(super) details: Option<Payload>,
    /// When the next attempt is due, between two attempts.
    pub(super) retry_at: Option<Timestamp>,
    /// When its last pause was over, until it is attempted.
    pub(super) paused_until: Option<Timestamp>,
    /// Whether an attempt is under way on this worker.
    pub(super) attempting: bool,
    /// Where it travels, once it is requested: then nobody attempts it here.
    pub(super) queued: Option<Box<Queued>>,
}

impl Cell {
    pub(super) fn new(run: RunId, started: &RunStarted, now: Timestamp) -> Self {
        let bits = run.bits();
        Self {
            run,
            rules: started.rules,
            priority: started.priority,
            ops: Ops::default(),
            next_op: 0,
            now,
            random: (bits >> 64) as u64 ^ bits as u64,
            cancelled_at: None,
            refusals: None,
            doubtful: BTreeSet::new(),
            known_ops: 0,
            known: None,
            patches: BTreeMap::new(),
            inert: false,
            wakers: Vec::new(),
            startable: Vec::new(),
            refused: Vec::new(),
            open: 0,
            active: 0,
            due: BTreeSet::new(),
            decisions: Vec::new(),
            hooks: Hooks::default(),
            children: Children::new(),
            tags: started.tags.clone(),
            tagged: 0,
            replayed_tags: Tags::new(),
            wishes: None,
            unreadable: None,
            misused: None,
        }
    }

    /// Numbers a value to record, and looks whether history has it.
    #[track_caller]
    pub(super) fn record(&mut self, name: &str, problem: Option<Failure>) -> Recording {
        let op = OpNumber(self.next_op);
        if self.inert {
            return Recording::Never(Failure::new(FailureKind::Invalid, "the run is not here any more"));
        }
        self.next_op += 1;
        if let Some(failure) = problem {
            return Recording::Never(failure);
        }
        let Some(known) = self.known.as_mut().filter(|known| known.has(op)) else {
            return Recording::New(op);
        };
        let value = known.value(op, name, Location::caller());
        let astray = || Failure::new(FailureKind::Invalid, format!("history has no value `{name}` here"));
        // Replay compares the name and the place in the history; the value itself is history's.
        let asked = value.clone().unwrap_or_else(|| Err(astray()));
        self.recorded(Event::ValueRecorded { op, name: name.into(), value: asked });
        value.map_or_else(|| Recording::Never(astray()), |value| Recording::Known(op, value))
    }

    /// Adds an event that the workflow need not wait for.
    pub(super) fn recorded(&mut self, event: Event) {
        if !self.inert {
            self.decisions.push(Decision::Recorded(event));
        }
    }

    /// Whether the run takes the new side of a patch: one answer per name.
    pub(super) fn patched(&mut self, name: &str) -> bool {
        if let Some(answer) = self.patch_answer(name) {
            return answer;
        }
        let name = Arc::from(name);
        let answer = match &self.known {
            Some(known) => known.is_patched(&name),
            None => {
                self.recorded(Event::VersionChosen { name: Arc::clone(&name) });
                true
            }
        };
        self.patches.insert(name, answer);
        answer
    }

    /// The answer that a patch got already.
    pub(super) fn patch_answer(&self, name: &str) -> Option<bool> {
        self.patches.get(name).copied()
    }

    /// Whether the code asked for a value that its history does not have.
    pub(super) fn is_astray(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.is_astray)
    }

    /// Whether the history that is replayed has what the code does now, so that others were asked already.
    pub(super) fn is_replaying(&self) -> bool {
        self.known.as_ref().is_some_and(|known| !known.is_at_open_end())
    }

    /// Whether the history that is replayed has the request for an operation.
    pub(super) fn is_known(&self, op: OpNumber) -> bool {
        self.known.as_ref().is_some_and(|known| known.has(op))
    }

    /// What a closure that only computes a value leaves as it was.
    pub(super) fn traces(&self) -> (u64, u64, usize, u64) {
        (self.next_op, self.random, self.decisions.len(), self.tagged)
    }

    /// Where the workflow asked for an operation, as long as that is known.
    pub(super) fn place(&self, op: OpNumber) -> Option<Place> {
        let known = || self.known.as_ref().and_then(|known| known.place(op));
        self.ops.get(op).map(|slot| slot.place).or_else(known)
    }

    /// Numbers an operation. One that has a problem has failed before it was requested; one that is refused
    /// since the run was cancelled is [`REFUSED`](super::cancel::REFUSED).
    #[track_caller]
    pub(super) fn create(&mut self, kind: OpKind, problem: Option<Failure>, is_shielded: bool) -> OpNumber {
        let op = OpNumber(self.next_op);
        if self.inert {
            return op;
        }
        // Runs with rules 1 have no shields: what they ask for after a cancel works as always.
        let is_shielded = is_shielded && self.rules >= 2;
        if self.refusals.is_some() && !is_shielded {
            return REFUSED;
        }
        self.next_op += 1;
        let phase = match problem.or_else(|| self.too_many()) {
            Some(failure) => Phase::Ended(Err(failure)),
            None => {
                self.decisions.push(Decision::Created(op));
                Phase::Created
            }
        };
        let place = Location::caller();
        self.ops.insert(op, Op { phase, kind, is_requested: false, is_shielded, place, waker: None });
        op
    }

    fn too_many(&self) -> Option<Failure> {
        (self.ops.len() >= OPEN_OPERATIONS_MAX).then(|| {
            let message = format!(
                "the run has {OPEN_OPERATIONS_MAX} operations open, which is the limit; \
                 await some before asking for more"
            );
            Failure::new(FailureKind::Limit, message)
        })
    }

    /// The operation, if its outcome is there; otherwise remembers whom to wake.
    pub(super) fn take_ended(&mut self, op: OpNumber, waker: &Waker) -> Poll<Op> {
        match self.ops.get_mut(op) {
            Some(Op { phase: Phase::Ended(_), .. }) => {}
            Some(slot) => {
                match &mut slot.waker {
                    Some(known) => known.clone_from(waker),
                    empty => *empty = Some(waker.clone()),
                }
                return Poll::Pending;
            }
            None => return Poll::Pending,
        }
        self.ops.remove(op).map_or(Poll::Pending, Poll::Ready)
    }

    /// The workflow lost interest in an operation.
    pub(super) fn abandon(&mut self, op: OpNumber) -> Option<Op> {
        if self.is_open(op) {
            self.unlist(op);
        }
        let slot = self.ops.remove(op)?;
        match (&slot.phase, &slot.kind) {
            (Phase::Open, OpKind::Step(step)) => {
                self.dropped(Event::StepDropped { op });
                if let Some(queued) = &step.queued {
                    self.withdraw(
                        queued.run,
                        format!("its parent {} does not wait for it any more", self.run),
                    );
                }
            }
            (Phase::Open, OpKind::Timer { .. }) => self.dropped(Event::TimerCancelled { op }),
            (Phase::Open, OpKind::Hook { .. }) => self.dropped(Event::HookClosed { op }),
            (Phase::Open, OpKind::Child(_)) => self.dropped(Event::ChildDropped { op }),
            // What the hook was given and did not return is as if it had not been given.
            (Phase::Ended(Ok(payload)), OpKind::Hook { name, taken: Some(arrival), .. }) => {
                self.dropped(Event::HookClosed { op });
                self.give_back(name, Arrived { arrival: (**arrival).clone(), payload: payload.clone() });
            }
            _ => {}
        }
        Some(slot)
    }

    fn dropped(&mut self, event: Event) {
        self.decisions.push(Decision::Dropped(event));
    }

    /// Requests what was created and is still wanted, and tells what was dropped, in order.
    pub(super) fn take_decisions(&mut self, asked: &mut Vec<Event>) {
        let mut decisions = std::mem::take(&mut self.decisions);
        for decision in decisions.drain(..) {
            match decision {
                Decision::Dropped(event) | Decision::Recorded(event) => asked.push(event),
                Decision::Created(op) => asked.extend(self.request(op)),
            }
        }
        // Keep the allocation: this runs after every poll.
        self.decisions = decisions;
    }

    /// Tells what was recorded in the poll that ended the future, and forgets what else it did: the
    /// final event says it all.
    pub(super) fn take_last_decisions(&mut self, asked: &mut Vec<Event>) {
        asked.extend(self.decisions.drain(..).filter_map(|decision| match decision {
            Decision::Recorded(event) => Some(event),
            Decision::Created(_) | Decision::Dropped(_) => None,
        }));
    }

    fn request(&mut self, op: OpNumber) -> Option<Event> {
        let now = self.now;
        let slot = self.ops.get_mut(op).filter(|slot| matches!(slot.phase, Phase::Created))?;
        slot.phase = Phase::Open;
        slot.is_requested = true;
        self.open += 1;
        let event = match &mut slot.kind {
            OpKind::Child(_) => return self.request_child(op),
            OpKind::Step(step) => {
                let input = match &step.input {
                    Some(Ok(input)) => input.clone(),
                    Some(Err(failure)) => {
                        self.refused.push((op, failure.clone()));
                        Payload::null()
                    }
                    None => Payload::null(),
                };
                if !step.new.is_in_place() {
                    return self.request_queued(op, input);
                }
                self.active += 1;
                self.startable.push(op);
                Event::StepStarted { op, name: step.new.name.clone(), input, queued: None }
            }
            OpKind::Timer { due, started_at, fire_at } => {
                *started_at = now;
                *fire_at = due.from(now);
                self.due.insert((*fire_at, op));
                Event::TimerStarted { op, fire_at: *fire_at }
            }
            OpKind::Hook { name, timeout, timeout_at, .. } => {
                *timeout_at = timeout.map(|timeout| now.plus(timeout));
                self.due.extend(timeout_at.map(|at| (at, op)));
                let (name, timeout_at) = (name.clone(), *timeout_at);
                self.opened(op, &name);
                Event::HookOpened { op, name, timeout_at }
            }
        };
        Some(event)
    }

    /// Takes over what history has of a request: it is the truth, whatever the code says today.
    pub(super) fn adopt(&mut self, event: &Event) {
        match event {
            Event::ChildStarted(child) => return self.adopt_child(child),
            Event::StepStarted { op, input, queued, .. } => {
                return self.adopt_step(*op, input, queued.as_deref());
            }
            Event::TagsSet { tags, .. } => return self.tags.extend(tags.clone()),
            _ => {}
        }
        let Some(slot) = event.op().and_then(|op| self.ops.get_mut(op)) else { return };
        match (event, &mut slot.kind) {
            (Event::TimerStarted { op, fire_at: recorded }, OpKind::Timer { fire_at, .. }) => {
                self.due.remove(&(*fire_at, *op));
                self.due.insert((*recorded, *op));
                *fire_at = *recorded;
            }
            (Event::HookOpened { op, timeout_at: recorded, .. }, OpKind::Hook { timeout_at, .. }) => {
                if let Some(at) = timeout_at.take() {
                    self.due.remove(&(at, *op));
                }
                *timeout_at = *recorded;
                // A payload that was kept for it may have ended it already.
                if matches!(slot.phase, Phase::Open) {
                    self.due.extend(recorded.map(|at| (at, *op)));
                }
            }
            _ => {}
        }
    }

    /// Ends an open operation with an outcome, and wakes whoever awaits it. False when it is not open.
    pub(super) fn end(&mut self, op: OpNumber, outcome: Result<Payload, Failure>) -> bool {
        if !self.is_open(op) {
            return false;
        }
        self.unlist(op);
        if let Some(slot) = self.ops.get_mut(op) {
            slot.phase = Phase::Ended(outcome);
            if let OpKind::Step(step) = &mut slot.kind {
                // In a replay the last pause is still there: that it was over leaves no event.
                step.retry_at = None;
            }
            self.wakers.extend(slot.waker.take());
        }
        true
    }

    /// An attempt failed, and the next one is due at `retry_at`.
    pub(super) fn pause(
        &mut self,
        op: OpNumber,
        attempt: u32,
        retry_at: Timestamp,
        details: Option<&Payload>,
    ) -> bool {
        let Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. }) = self.ops.get_mut(op) else {
            return false;
        };
        if step.queued.is_some() {
            return false;
        }
        step.failed = attempt;
        if let Some(details) = details {
            step.details = Some(details.clone());
        }
        step.attempting = false;
        // It may be there from before the attempt that failed.
        self.startable.retain(|startable| *startable != op);
        match step.retry_at.replace(retry_at) {
            // That a pause was over leaves no event: in a replay one follows the other.
            Some(over) => drop(self.due.remove(&(over, op))),
            None => self.active -= 1,
        }
        self.due.insert((retry_at, op));
        true
    }

    /// The pause of a step is over: it may be attempted.
    pub(super) fn resume(&mut self, op: OpNumber) {
        let Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. }) = self.ops.get_mut(op) else {
            return;
        };
        if let Some(at) = step.retry_at.take() {
            step.paused_until = Some(at);
            self.due.remove(&(at, op));
            self.active += 1;
            self.startable.push(op);
        }
    }

    /// Whether an operation is a step that may be attempted now: open, and not between two attempts.
    pub(super) fn is_startable(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. }) if step.retry_at.is_none())
    }

    /// Whether it is moreover one that is attempted at most once, and nobody attempts it.
    pub(super) fn is_startable_once(&self, op: OpNumber, code: &Registered) -> bool {
        matches!(self.ops.get(op), Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. })
            if !step.attempting && code.is_at_most_once(&step.new.name, &step.new.policy))
    }

    /// The steps that are between two attempts at a moment. One whose pause is over by now, and was not
    /// at that moment, is one of them until it is attempted.
    pub(super) fn pauses(&self, at: Timestamp) -> Vec<OpNumber> {
        let is_paused = |step: &StepOp| {
            step.retry_at.is_some() || (!step.attempting && step.paused_until.is_some_and(|until| until > at))
        };
        let paused = self.ops.iter().filter(|(_, slot)| {
            matches!((&slot.phase, &slot.kind), (Phase::Open, OpKind::Step(step)) if is_paused(step))
        });
        paused.map(|(op, _)| op).collect()
    }

    /// Nobody attempts any of the steps.
    pub(super) fn forget_attempts(&mut self) {
        for slot in self.ops.iter_mut() {
            if let OpKind::Step(step) = &mut slot.kind {
                step.attempting = false;
            }
        }
    }

    /// The step to attempt, which is being attempted from now on.
    pub(super) fn start(&mut self, op: OpNumber) -> Option<StepToAttempt> {
        let Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. }) = self.ops.get_mut(op) else {
            return None;
        };
        let Some(Ok(input)) = &step.input else { return None };
        if step.retry_at.is_some() || std::mem::replace(&mut step.attempting, true) {
            return None;
        }
        step.paused_until = None;
        Some(StepToAttempt {
            op,
            name: step.new.name.clone(),
            input: input.clone(),
            policy: step.new.policy,
            attempt: step.failed + 1,
            details: step.details.clone(),
            // From rules 2 on only what is shielded is attempted after a cancel.
            is_cancelled: self.rules < 2 && self.cancelled_at.is_some_and(|before| op.0 < before),
            begins_when_told: self.rules < 2,
            call: step.new.call.clone(),
        })
    }

    pub(super) fn is_step(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { kind: OpKind::Step(_), .. }))
    }

    pub(super) fn is_open(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { phase: Phase::Open, .. }))
    }

    /// Everything that two replays of one history must agree on, as text.
    pub(super) fn summary(&self) -> String {
        use std::fmt::Write;
        let mut text =
            format!("next {} random {:x} cancelled {:?}\n", self.next_op, self.random, self.cancelled_at);
        if let Some(refusals) = &self.refusals {
            let _ = writeln!(text, "refused {}", refusals.count);
        }
        for (op, slot) in self.ops.iter() {
            let phase = match &slot.phase {
                Phase::Created => "created".to_owned(),
                Phase::Open => "open".to_owned(),
                Phase::Ended(Ok(output)) => format!("ended Ok({output:?})"),
                // As it is stored, so that the text stays the same when the type gets another field.
                Phase::Ended(Err(failure)) => {
                    format!("ended Err({})", serde_json::to_string(failure).unwrap_or_default())
                }
            };
            let kind = match &slot.kind {
                OpKind::Step(step) => {
                    let StepOp { new, failed, retry_at, queued, .. } = &**step;
                    let queued = queued.as_deref().map(|Queued { run, queue, priority, .. }| {
                        format!(" queued as {run} in {queue} at {priority}")
                    });
                    let queued = queued.unwrap_or_default();
                    format!("step {} failed {failed} retry {retry_at:?}{queued}", new.name)
                }
                OpKind::Timer { fire_at, .. } => format!("timer {fire_at}"),
                OpKind::Hook { name, timeout_at, taken, .. } => {
                    let taken = taken.as_ref().filter(|_| self.rules >= 2);
                    let taken = taken.map(|arrival| format!(" took {arrival:?}")).unwrap_or_default();
                    format!("hook {name} until {timeout_at:?}{taken}")
                }
                OpKind::Child(child) => {
                    format!("child {} {} until {:?}", child.workflow, child.run, child.timeout_at)
                }
            };
            let _ = writeln!(text, "{op} {kind}: {phase}");
        }
        let shielded = self.ops.iter().filter(|(_, slot)| slot.is_shielded);
        let shielded: Vec<_> = shielded.map(|(op, _)| op.0).collect();
        if !shielded.is_empty() {
            let _ = writeln!(text, "shielded {shielded:?}");
        }
        if !self.tags.is_empty() {
            let _ = writeln!(text, "tags {:?}", self.tags);
        }
        for (op, child) in &self.children {
            let OpenChild { run, workflow, on_parent_end, is_step, .. } = child;
            let is_step = if *is_step { " step" } else { "" };
            let _ = writeln!(text, "child of {op}: {run} {workflow} {on_parent_end:?}{is_step}");
        }
        if !self.patches.is_empty() {
            let _ = writeln!(text, "patches {:?}", self.patches);
        }
        self.hooks.summarize(&mut text);
        text
    }

    /// Takes an operation that stops being open out of every index.
    fn unlist(&mut self, op: OpNumber) {
        let Some(slot) = self.ops.get(op) else { return };
        self.open -= 1;
        match &slot.kind {
            OpKind::Step(step) => match step.retry_at {
                _ if step.queued.is_some() => drop(self.children.remove(&op)),
                Some(at) => drop(self.due.remove(&(at, op))),
                None => self.active -= 1,
            },
            OpKind::Timer { fire_at, .. } => drop(self.due.remove(&(*fire_at, op))),
            OpKind::Child(child) => {
                if let Some(at) = child.timeout_at {
                    self.due.remove(&(at, op));
                }
            }
            OpKind::Hook { name, timeout_at, .. } => {
                if let Some(at) = timeout_at {
                    self.due.remove(&(*at, op));
                }
                self.hooks.closed(op, name);
            }
        }
    }
}
