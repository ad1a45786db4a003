//! The machine: one run's future, fed with deliveries, answering with decisions.

use std::any::Any;
use std::collections::BTreeSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use outlast_core::limits::POLLS_PER_DELIVERY_MAX;
use outlast_core::{
    Codec, Event, Headers, MessageId, NewMessage, OpNumber, Outbox, Payload, Policy, RunId, RunStarted,
    Status, Stuck, StuckReason, Timestamp, TurnRecord, Wait,
};
use tokio::task::coop::{Unconstrained, unconstrained};

use super::cell::{Op, OpKind, Phase};
use super::children::Wishes;
use super::cursor::Cursor;
use super::delivery::Delivery;
use super::divergence;
use super::known::Known;
use super::misuse::misused;
use super::polling;
use super::quiet;
use super::state::{RunState, unreadable, wake_all};
use super::unrecorded::{Unrecorded, take_early_end};
use crate::context::Context;
use crate::error::Error;
use crate::registry::{BadInput, ErasedRun, Registered, StepCall};

/// What a foreign await most often is, and what to do about it.
pub(crate) const USUAL_SUSPECTS: &str = "the usual suspects are tokio::time, channels, spawned tasks and I/O in workflow code. \
     Move it into a step, or use ctx.sleep, ctx.hook or ctx.call";

/// A run's future, and what it shares with the engine.
pub(crate) struct Machine {
    // Polling is a function of history: tokio's budget must not make a ready future pending.
    future: Option<Unconstrained<ErasedRun>>,
    pub(super) state: Arc<RunState>,
    waker: Waker,
    pub(super) ended: Option<Status>,
    /// What the workflow returned, while the run waits for children.
    pub(super) result: Option<Result<Payload, Error>>,
    /// What the next turn records first, after the replay of a history that ends with a part of a turn.
    pub(super) unrecorded: Option<Box<Unrecorded>>,
}

/// A step to attempt, as the worker needs it.
pub(crate) struct StepToAttempt {
    pub(crate) op: OpNumber,
    pub(crate) name: Arc<str>,
    pub(crate) input: Payload,
    pub(crate) policy: Policy,
    /// The number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// The details of the last heartbeat that is recorded.
    pub(crate) details: Option<Payload>,
    /// Whether the run was told to stop before this attempt.
    pub(crate) is_cancelled: bool,
    /// Rules 1: whether the attempt begins though the run was cancelled meanwhile.
    pub(crate) begins_when_told: bool,
    /// The code, when it was written in place.
    pub(crate) call: Option<StepCall>,
}

impl Machine {
    /// The machine of a run that begins now, not polled yet.
    pub(crate) fn new(
        run: RunId,
        started: &RunStarted,
        code: &Registered,
        codec: &Arc<dyn Codec>,
        at: Timestamp,
    ) -> Result<Self, Stuck> {
        let state = Arc::new(RunState::new(run, started, codec.clone(), at));
        let Some(workflow) = code.workflow(&started.workflow, started.version) else {
            let RunStarted { workflow, version, .. } = started;
            let message = format!("this worker does not have version {version} of workflow `{workflow}`");
            return Err(stuck(StuckReason::Unreadable, message));
        };
        let ctx = Context::new(state.clone());
        let begin = AssertUnwindSafe(|| workflow(ctx, started.input.clone(), &**codec));
        let (begun, misuse) = polling::workflow(&state, || catch_unwind(begin));
        if let Some(misuse) = misuse {
            return Err(misused(misuse));
        }
        let begun = begun.map_err(|panic| panicked(&*panic))?;
        let future: ErasedRun = match begun {
            Ok(future) => future,
            // The worker lacks a codec: that is no fault of the run.
            Err(BadInput { is_coded, stuck_message, .. }) if is_coded || started.rules >= 2 => {
                return Err(unreadable(is_coded, stuck_message));
            }
            Err(BadInput { error, .. }) => Box::pin(std::future::ready(Err(error))),
        };
        let waker = Waker::from(state.waker.clone());
        Ok(Self {
            future: Some(unconstrained(future)),
            state,
            waker,
            ended: None,
            result: None,
            unrecorded: None,
        })
    }

    /// The machine of a run as it is after its whole history. What the code logged is not logged again.
    pub(crate) fn replay(
        run: RunId,
        history: Vec<TurnRecord>,
        code: &Registered,
        codec: &Arc<dyn Codec>,
    ) -> Result<Self, Stuck> {
        quiet::without_events(|| Self::replay_history(run, history, code, codec))
    }

    fn replay_history(
        run: RunId,
        mut history: Vec<TurnRecord>,
        code: &Registered,
        codec: &Arc<dyn Codec>,
    ) -> Result<Self, Stuck> {
        let early_end = take_early_end(&mut history);
        let known = Known::of(&history);
        let mut cursor = Cursor::new(history);
        let Some(Event::RunStarted(started)) = cursor.next() else {
            let message = format!("the history of run {run} does not begin with `run_started`");
            return Err(stuck(StuckReason::Unreadable, message));
        };
        // A run may have been started before a worker had it: it was first polled by the turn of its
        // first decision.
        let first_polled = cursor.next_at().unwrap_or(cursor.at);
        let mut machine = Self::new(run, &started, code, codec, first_polled)?;
        let mut cell = machine.state.cell.lock();
        cell.known_ops = known.ops;
        cell.known = Some(Box::new(known));
        drop(cell);
        let mut asked = Vec::new();
        machine.settle(&mut asked)?;
        machine.expect(&mut asked, &mut cursor)?;
        while let Some(event) = cursor.next() {
            let mut cell = machine.state.cell.lock();
            cell.now = cursor.at;
            if let Some(known) = &mut cell.known {
                known.delivered();
            }
            drop(cell);
            let applied = if event.is_decision() || machine.ended.is_some() {
                Err(machine.diverged(Some(&event), None))
            } else {
                machine.apply(&event, &mut asked)
            };
            match applied {
                Err(stuck) if stuck.reason == StuckReason::Diverged => {
                    return Err(machine.with_report(stuck, event, Vec::new(), &mut cursor));
                }
                applied => applied?,
            }
            machine.expect(&mut asked, &mut cursor)?;
        }
        if let Some(event) = &early_end {
            machine.apply(event, &mut asked)?;
        }
        machine.end_replay(early_end.is_some());
        Ok(machine)
    }

    /// Polls for the first time, and adds what the run decided.
    pub(crate) fn begin(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        self.settle(events)?;
        self.follow_up(events)
    }

    /// The time of the turn about to be computed.
    pub(crate) fn set_time(&mut self, at: Timestamp) {
        self.state.cell.lock().now = at;
    }

    /// Delivers one thing, polls, and adds what happened and what the run decided. Nothing is added
    /// when the operation it is for is not open any more.
    pub(crate) fn deliver(&mut self, delivery: Delivery, events: &mut Vec<Event>) -> Result<(), Stuck> {
        if self.ended.is_some() {
            return Ok(());
        }
        let Some(event) = self.event_of(delivery)? else { return Ok(()) };
        events.push(event.clone());
        self.apply(&event, events)?;
        self.follow_up(events)
    }

    /// Polls until the run waits for something, and adds what it decided.
    pub(super) fn settle(&mut self, asked: &mut Vec<Event>) -> Result<(), Stuck> {
        // What woke it since the last poll may be ready by now, and would be taken for an answer.
        if self.state.waker.is_foreign() {
            return Err(self.foreign_wake());
        }
        if self.is_lingering(asked) {
            return Ok(());
        }
        for _ in 0..POLLS_PER_DELIVERY_MAX {
            let polled = self.poll();
            let mut cell = self.state.cell.lock();
            if let Some(unreadable) = cell.unreadable.take() {
                // Also when it panicked: a value that is read without waiting has no other way to stop here.
                return Err(*unreadable);
            }
            let polled = polled?;
            if cell.is_astray() {
                // What it did since is of no use: the value it asked for is not what history has next.
                cell.take_decisions(asked);
                return Ok(());
            }
            match polled {
                Poll::Ready(result) => {
                    drop(cell);
                    self.returned(result, asked);
                    return Ok(());
                }
                Poll::Pending if cell.ignores_cancel() => {
                    drop(cell);
                    return Err(self.ignores_cancel());
                }
                Poll::Pending => {
                    self.state.waker.enter();
                    cell.take_decisions(asked);
                    wake_all(cell);
                    self.state.waker.leave();
                }
            }
            if self.state.waker.is_foreign() {
                return Err(self.foreign_wake());
            }
            if !self.state.waker.take_woken() {
                return if self.state.cell.lock().open > 0 {
                    Ok(())
                } else {
                    Err(self.foreign("it waits, and no operation is open"))
                };
            }
        }
        Err(self.foreign(&format!("it woke itself {POLLS_PER_DELIVERY_MAX} times in a row")))
    }

    fn poll(&mut self) -> Result<Poll<Result<Payload, Error>>, Stuck> {
        let mut cx = TaskContext::from_waker(&self.waker);
        self.state.waker.take_woken();
        self.state.waker.enter();
        // Only a machine that is being dropped has no future.
        let Some(future) = self.future.as_mut().map(Pin::new) else { return Ok(Poll::Pending) };
        let poll = AssertUnwindSafe(|| future.poll(&mut cx));
        let (polled, misuse) = polling::workflow(&self.state, || catch_unwind(poll));
        self.state.waker.leave();
        match misuse {
            Some(misuse) => Err(misused(misuse)),
            None => polled.map_err(|panic| panicked(&*panic)),
        }
    }

    /// Compares what the code asked for with what history has next.
    fn expect(&mut self, asked: &mut Vec<Event>, cursor: &mut Cursor) -> Result<(), Stuck> {
        let mut asking = asked.drain(..);
        while let Some(asked) = asking.next() {
            let recorded = cursor.next();
            let was = match &asked {
                Event::StepStarted { op, .. } => self.names_before(*op),
                _ => &[],
            };
            match recorded {
                Some(recorded) if divergence::is_same(&recorded, &asked, was) => {
                    let mut cell = self.state.cell.lock();
                    cell.adopt(&recorded);
                    let place = asked.op().and_then(|op| cell.place(op));
                    cursor.trail.agreed(recorded, asked, place, cursor.at);
                }
                None if self.is_at_open_end() => {
                    self.unrecorded().events = std::iter::once(asked).chain(asking).collect();
                    return Ok(());
                }
                recorded => {
                    let stuck = self.diverged(recorded.as_ref(), Some(&asked));
                    let asked = std::iter::once(asked).chain(asking).collect();
                    return Err(self.with_report(stuck, recorded, asked, cursor));
                }
            }
        }
        Ok(())
    }

    fn names_before(&self, op: OpNumber) -> &'static [&'static str] {
        match self.state.cell.lock().ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Step(step)) => step.new.was,
            _ => &[],
        }
    }

    pub(super) fn diverged(&self, recorded: Option<&Event>, asked: Option<&Event>) -> Stuck {
        let at = asked.and_then(Event::op).or_else(|| recorded.and_then(Event::op));
        divergence::report(self.state.run(), at, recorded, asked, self.state.now())
    }

    /// The report with what history and code have before and after the place, side by side.
    fn with_report(
        &self,
        stuck: Stuck,
        recorded: impl Into<Option<Event>>,
        asked: Vec<Event>,
        cursor: &mut Cursor,
    ) -> Stuck {
        let (trail, at) = (std::mem::take(&mut cursor.trail), cursor.at);
        let first = recorded.into().map(|event| (event, at));
        let later = std::iter::from_fn(|| cursor.next().map(|event| (event, cursor.at)));
        let recorded = first.into_iter().chain(later.filter(|(event, _)| event.is_decision()));
        let cell = self.state.cell.lock();
        let asked = asked.into_iter().map(|event| {
            let place = event.op().and_then(|op| cell.place(op));
            (event, place)
        });
        let report = trail.report(recorded, asked, cell.now);
        Stuck { message: stuck.message + "\n" + &report, ..stuck }
    }

    fn foreign(&self, what: &str) -> Stuck {
        let message = format!(
            "run {} awaits something that is not an operation of its context: {what}; \
             {USUAL_SUSPECTS}",
            self.state.run()
        );
        stuck(StuckReason::ForeignAwait, message)
    }

    /// Why the run is stuck after a foreign wake.
    pub(crate) fn foreign_wake(&self) -> Stuck {
        if let Some(misused) = &self.state.cell.lock().misused {
            return (**misused).clone();
        }
        self.foreign("something that is not an operation woke it")
    }

    /// The waker, to learn of foreign wakes.
    pub(crate) fn wakes(&self) -> Arc<super::waker::RunWaker> {
        self.state.waker.clone()
    }

    /// How many operations the run has asked for.
    pub(crate) fn ops_asked(&self) -> u64 {
        self.state.cell.lock().next_op
    }

    /// Whether the workflow has returned, and the run waits for children.
    pub(crate) fn has_returned(&self) -> bool {
        self.result.is_some()
    }

    /// How the run ended, if it has.
    pub(crate) fn ended(&self) -> Option<Status> {
        self.ended
    }

    /// Whether a step is being attempted, or may be.
    pub(crate) fn is_active(&self) -> bool {
        self.state.cell.lock().active > 0
    }

    /// The next moment at which a timer, timeout or retry is due, or the run's deadline.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let first = self.state.cell.lock().due.first().map(|(at, _)| *at);
        first.into_iter().chain(self.deadline()).min()
    }

    /// When the run is told to stop, unless it was told already.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.state.deadline().filter(|_| self.ended.is_none() && !self.state.is_cancelled())
    }

    /// What travels with the run.
    pub(crate) fn headers(&self) -> &Arc<Headers> {
        self.state.headers()
    }

    /// Whether the run was told to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.state.is_cancelled()
    }

    /// Whom the attempts work for, when the run is a queued step: the run and operation that asked for it.
    pub(crate) fn asker(&self) -> Option<(RunId, OpNumber)> {
        self.state.asker()
    }

    /// The run that awaits this one's end, and its operation.
    pub(crate) fn awaiting(&self) -> Option<(RunId, OpNumber)> {
        self.state.parent().filter(|parent| parent.awaits).map(|parent| (parent.run, parent.op))
    }

    /// Takes over what another machine of the same run asks of others: a replay asks nothing.
    pub(crate) fn take_wishes_of(&mut self, other: &mut Self) {
        let wishes = other.state.cell.lock().wishes.take();
        self.state.cell.lock().wishes = wishes;
    }

    /// Lets the next commit write the tags that a replay has set: the code that wrote the run's row may have set
    /// others.
    pub(crate) fn write_tags_again(&mut self) {
        let mut cell = self.state.cell.lock();
        let tags = std::mem::take(&mut cell.replayed_tags);
        if !tags.is_empty() {
            let newer = std::mem::replace(&mut cell.wishes().tags, tags);
            cell.wishes().tags.extend(newer);
        }
    }

    /// What the turn asks of others. It is given once.
    pub(crate) fn take_outbox(&mut self, mut id: impl FnMut() -> MessageId) -> Option<Box<Outbox>> {
        let Wishes { children, messages, tags, .. } = *self.state.cell.lock().wishes.take()?;
        let (run, headers) = (self.state.run(), self.state.headers());
        let root = self.state.parent().map_or(run, |parent| parent.root);
        let messages = messages.into_iter().map(|(to, body)| NewMessage {
            id: id(),
            run: to,
            body,
            headers: (**headers).clone(),
        });
        Some(Box::new(Outbox {
            children: children.into_iter().map(|child| child.start(run, root, headers)).collect(),
            messages: messages.collect(),
            tags,
        }))
    }

    /// Timers and timeouts that are due at `now`; steps whose pause is over become startable.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<(Timestamp, OpNumber)> {
        let mut cell = self.state.cell.lock();
        let due: Vec<_> = cell.due.iter().take_while(|(at, _)| *at <= now).copied().collect();
        let mut timers = Vec::new();
        for (at, op) in due {
            match cell.ops.get(op).map(|slot| &slot.kind) {
                Some(OpKind::Step(_)) => cell.resume(op),
                _ => timers.push((at, op)),
            }
        }
        timers
    }

    /// Steps that are to be attempted now.
    pub(crate) fn startable(&self) -> BTreeSet<OpNumber> {
        self.state.cell.lock().startable.iter().copied().collect()
    }

    /// Steps to attempt now. Each is given once.
    pub(crate) fn take_startable(&mut self) -> Vec<StepToAttempt> {
        let mut cell = self.state.cell.lock();
        let startable = std::mem::take(&mut cell.startable);
        startable.into_iter().filter_map(|op| cell.start(op)).collect()
    }

    /// Of the steps to attempt now, those that are attempted at most once. Each is given once.
    pub(crate) fn take_startable_once(&mut self, code: &Registered) -> Vec<StepToAttempt> {
        let mut cell = self.state.cell.lock();
        let startable = std::mem::take(&mut cell.startable);
        let (once, others) = startable.into_iter().partition(|op| cell.is_startable_once(*op, code));
        cell.startable = others;
        let once: Vec<_> = once;
        once.into_iter().filter_map(|op| cell.start(op)).collect()
    }

    /// Whether a step is to be attempted now that is attempted at most once.
    pub(crate) fn has_startable_once(&self, code: &Registered) -> bool {
        let cell = self.state.cell.lock();
        cell.startable.iter().any(|op| cell.is_startable_once(*op, code))
    }

    /// The steps that are about to be attempted and that neither the worker nor the workflow has code for.
    pub(crate) fn missing_step(&self, code: &Registered) -> Option<Stuck> {
        let cell = self.state.cell.lock();
        let missing = cell.startable.iter().find_map(|op| match cell.ops.get(*op) {
            Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. })
                if step.new.call.is_none() && code.step(&step.new.name).is_none() =>
            {
                Some(step.new.name.clone())
            }
            _ => None,
        })?;
        let message =
            format!("step `{missing}` is not registered with this worker; add it to `.register((…))`");
        Some(stuck(StuckReason::StepNotRegistered, message))
    }

    /// Why the turn cannot be committed: a step is about to be announced that this worker cannot attempt.
    pub(crate) fn cannot_attempt(&self, code: &Registered) -> Option<Stuck> {
        self.missing_step(code).or_else(|| self.unreadable_once(code))
    }

    /// A step about to be announced that is attempted at most once, and whose input its code cannot read. Once
    /// it is announced nobody could know that it was not attempted.
    fn unreadable_once(&self, code: &Registered) -> Option<Stuck> {
        if self.state.rules() < 2 {
            return None;
        }
        let cell = self.state.cell.lock();
        let inputs = cell.startable.iter().filter_map(|op| match cell.ops.get(*op) {
            Some(Op { kind: OpKind::Step(step), .. }) if cell.is_startable_once(*op, code) => {
                let can_read = code.manner(&step.new.name).filter(|_| step.new.call.is_none())?.can_read;
                Some((step.new.name.clone(), can_read, step.input.clone()?.ok()?))
            }
            _ => None,
        });
        let inputs: Vec<_> = inputs.collect();
        drop(cell);
        let codec = &**self.state.codec();
        inputs.into_iter().find_map(|(name, can_read, input)| {
            // An input whose reading panics fails the attempt.
            let error = catch_unwind(AssertUnwindSafe(|| can_read(&input, codec))).ok()?.err()?;
            let message = format!("the input of step `{name}` does not fit: {error}");
            Some(unreadable(error.is_coded(), message))
        })
    }

    /// Whether a failed attempt at this step may be followed by another at a moment: not after a cancel,
    /// and not after the deadline, unless it is shielded.
    pub(crate) fn may_retry(&self, op: OpNumber, at: Timestamp) -> bool {
        if self.state.cell.lock().is_shielded(op) {
            return true;
        }
        if self.deadline_before(op, at).is_some() {
            return false;
        }
        self.state.cell.lock().cancelled_at.is_none_or(|before| op.0 >= before)
    }

    /// The deadline of the run, when another attempt at this step at a moment would come after it.
    pub(crate) fn deadline_before(&self, op: OpNumber, at: Timestamp) -> Option<Timestamp> {
        let deadline = self.deadline().filter(|deadline| at >= *deadline)?;
        (!self.state.cell.lock().is_shielded(op)).then_some(deadline)
    }

    /// No attempt is under way any more: the run is released.
    pub(crate) fn forget_attempts(&mut self) {
        self.state.cell.lock().forget_attempts();
    }

    /// Nobody attempts a step that was about to be attempted.
    pub(crate) fn withhold_attempt(&mut self, op: OpNumber) {
        if let Some(Op { kind: OpKind::Step(step), .. }) = self.state.cell.lock().ops.get_mut(op) {
            step.attempting = false;
        }
    }

    /// Which steps are being attempted: a replayed machine does not know.
    pub(crate) fn set_attempting(&mut self, ops: &BTreeSet<OpNumber>) {
        let mut cell = self.state.cell.lock();
        for op in ops {
            if let Some(Op { kind: OpKind::Step(step), .. }) = cell.ops.get_mut(*op) {
                step.attempting = true;
            }
        }
        // A pause that is over leaves no event: whoever is being attempted is not between attempts.
        for op in ops {
            cell.resume(*op);
        }
    }

    /// What the run waits for, for people to see.
    pub(crate) fn waits(&self) -> Vec<Wait> {
        let cell = self.state.cell.lock();
        if self.result.is_some() { cell.awaited_children().collect() } else { cell.waits() }
    }

    /// All that the run waits for.
    pub(crate) fn all_waits(&self) -> Vec<Wait> {
        let cell = self.state.cell.lock();
        if self.result.is_some() { cell.awaited_children().collect() } else { cell.all_waits().collect() }
    }

    /// Everything that two replays of one history must agree on, as text.
    pub(crate) fn summary(&self) -> String {
        let returned = if self.result.is_some() { "returned\n" } else { "" };
        format!("{returned}{}", self.state.cell.lock().summary())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.state.make_inert();
        self.let_go_of_future();
    }
}

impl Machine {
    pub(super) fn let_go_of_future(&mut self) {
        // What the workflow holds may panic when it is let go of; that is no reason to take others along.
        let future = self.future.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Machine({})", self.state.run())
    }
}

pub(super) fn stuck(reason: StuckReason, message: impl Into<String>) -> Stuck {
    Stuck { reason, message: message.into(), build: String::new() }
}

pub(super) fn panicked(panic: &(dyn Any + Send)) -> Stuck {
    let message = format!("the workflow's code panicked: {}; mend it and deploy", panic_text(panic));
    stuck(StuckReason::Panicked, message)
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}
