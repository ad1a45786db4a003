//! The machine: the future of one run. It receives deliveries and returns the decisions of the workflow as events.
//!
//! A turn applies one delivery at a time and polls the future after each, until it waits ([`Machine::deliver`]). A
//! replay does the same with the recorded deliveries and compares each decision with the recorded one
//! ([`Machine::replay`]).

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use outlast_core::limits::POLLS_PER_DELIVERY_MAX;
use outlast_core::{
    Codec, Event, EventPlace, Headers, MessageId, NewMessage, OpNumber, Outbox, Payload, ReplayHistory,
    Requester, RunContinued, RunId, RunStarted, Status, Stuck, StuckReason, Timestamp, TurnRecord, Wait,
};
use tokio::task::coop::{Unconstrained, unconstrained};

use super::children::PendingOutbox;
use super::code::{DropInBackground, ReplayCode, WorkflowFuture};
use super::compensation::PendingEnd;
use super::cursor::Cursor;
use super::delivery::Delivery;
use super::divergence;
use super::forked::PendingFork;
use super::generation::call_workflow;
use super::history_index::HistoryIndex;
use super::hooks::carried_payload;
use super::log_suppression;
use super::misuse::misused;
use super::operation_table::OpKind;
use super::polling;
use super::restore::is_compensating;
use super::state::{RunState, wake_all};
use super::unrecorded_requests::{UnrecordedRequests, take_termination_after_part};
use crate::error::Error;

/// The common causes of a foreign await, and the remedy.
pub(crate) const FOREIGN_AWAIT_REMEDY: &str = "common causes are tokio::time, channels, spawned tasks and I/O in workflow code. \
     Move it into a step, or use ctx.sleep, ctx.hook or ctx.call";

/// The future of a run, and the state that it shares with the engine.
pub(crate) struct Machine {
    // Unconstrained, because polling must depend on the history alone: tokio's budget could make a ready future
    // pending.
    future: Option<Unconstrained<WorkflowFuture>>,
    pub(super) state: Arc<RunState>,
    waker: Waker,
    pub(super) ended: Option<Status>,
    /// The result of the workflow, while the run still waits for children.
    pub(super) result: Option<Result<Payload, Error>>,
    /// How the run ends, once it compensates. Its future is gone then.
    pub(super) compensating: Option<Box<PendingEnd>>,
    /// Requests that the next turn records first, after the replay of a history that ends with a part of a turn.
    pub(super) unrecorded: Option<Box<UnrecordedRequests>>,
    /// The end of the events that were copied from another run, until a turn has recorded it.
    pub(super) fork: Option<Box<PendingFork>>,
    /// Where the future is dropped if the machine is dropped; `None` means here.
    background: Option<Arc<dyn DropInBackground>>,
    /// The code, for the next generation.
    pub(super) code: Arc<dyn ReplayCode>,
}

impl Machine {
    /// A machine for a run that begins now. Its future has not been polled.
    pub(crate) fn new(
        run: RunId,
        started: &RunStarted,
        code: Arc<dyn ReplayCode>,
        codec: &Arc<dyn Codec>,
        at: Timestamp,
    ) -> Result<Self, Stuck> {
        Self::of_generation(run, &RunContinued::of_start(started.clone()), code, codec, at)
    }

    /// A machine for a generation that begins now. Its future has not been polled.
    fn of_generation(
        run: RunId,
        begin: &RunContinued,
        code: Arc<dyn ReplayCode>,
        codec: &Arc<dyn Codec>,
        at: Timestamp,
    ) -> Result<Self, Stuck> {
        let state = Arc::new(RunState::new(run, begin, codec.clone(), at));
        let future = call_workflow(&state, &begin.started, &*code)?;
        let waker = Waker::from(state.waker.clone());
        Ok(Self {
            future: Some(unconstrained(future)),
            state,
            waker,
            ended: None,
            result: None,
            compensating: None,
            unrecorded: None,
            fork: None,
            background: None,
            code,
        })
    }

    /// A machine without the future of a workflow, for a run that is restored from its history alone.
    pub(super) fn without_future(state: Arc<RunState>, code: Arc<dyn ReplayCode>) -> Self {
        let waker = Waker::from(state.waker.clone());
        Self {
            future: None,
            state,
            waker,
            ended: None,
            result: None,
            compensating: None,
            unrecorded: None,
            fork: None,
            background: None,
            code,
        }
    }

    /// Replaces the future and the state by those of the next generation.
    pub(super) fn begin_generation(
        &mut self,
        state: Arc<RunState>,
        started: &RunStarted,
    ) -> Result<(), Stuck> {
        let future = call_workflow(&state, started, &*self.code)?;
        self.waker = Waker::from(state.waker.clone());
        self.future = Some(unconstrained(future));
        self.state = state;
        Ok(())
    }

    /// A machine for a run in its state after a whole history. Log lines of the workflow are not logged again.
    pub(crate) fn replay(
        run: RunId,
        history: Vec<TurnRecord>,
        code: Arc<dyn ReplayCode>,
        codec: &Arc<dyn Codec>,
    ) -> Result<Self, Stuck> {
        if is_compensating(&history) {
            return Self::restore(run, history, code, codec);
        }
        log_suppression::without_events(|| Self::replay_history(run, history, code, codec))
    }

    fn replay_history(
        run: RunId,
        mut history: Vec<TurnRecord>,
        code: Arc<dyn ReplayCode>,
        codec: &Arc<dyn Codec>,
    ) -> Result<Self, Stuck> {
        let termination = take_termination_after_part(&mut history);
        let history = ReplayHistory::of(history).map_err(|problem| {
            let message = format!("the history of run {run} {problem}");
            stuck(StuckReason::Unreadable, message)
        })?;
        let (index, fork) = (HistoryIndex::of(&history), PendingFork::of(&history));
        let begin_turn = history.turns.first().map_or(0, |turn| turn.seq);
        let ReplayHistory { begin, begun_at, kept, turns, skips, .. } = history;
        let mut cursor = Cursor::new(turns, skips);
        // The start may be a turn of its own: the workflow was first polled in the turn of its first decision. A later
        // generation is polled in the turn with which it begins.
        let is_first = begin.generation == 1 && !is_forked_at_start(&begin.started);
        let first_polled = cursor.next_at().filter(|_| is_first).unwrap_or(begun_at);
        let mut machine = Self::of_generation(run, &begin, code, codec, first_polled)?;
        let mut table = machine.state.table.lock();
        table.hooks.carry(kept.into_iter().filter_map(carried_payload).collect());
        table.begin_turn = begin_turn;
        table.recorded_ops = index.ops;
        table.history = Some(Box::new(index));
        drop(table);
        machine.expect_fork(fork);
        let mut requested = Vec::new();
        machine.poll_until_pending(&mut requested)?;
        machine.match_requests(&mut requested, &mut cursor)?;
        while let Some(event) = cursor.next() {
            machine.set_place(&cursor);
            if !matches!(event, Event::RunForked(_))
                && let Some(history) = &mut machine.state.table.lock().history
            {
                history.delivered();
            }
            machine.count_copied_delivery();
            let applied = if event.is_decision() || machine.ended.is_some() {
                Err(machine.diverged(Some(&event), None))
            } else {
                machine.apply(&event, &mut requested)
            };
            match applied {
                Err(stuck) if stuck.reason == StuckReason::Diverged => {
                    return Err(machine.with_report(stuck, event, Vec::new(), &mut cursor));
                }
                applied => applied?,
            }
            machine.match_requests(&mut requested, &mut cursor)?;
        }
        if let Some(event) = &termination {
            machine.apply(event, &mut requested)?;
        }
        machine.end_replay(termination.is_some());
        Ok(machine)
    }

    /// Polls for the first time, and appends the decisions of the workflow to `events`.
    pub(crate) fn begin(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        self.poll_until_pending(events)?;
        self.apply_follow_ups(events)
    }

    /// Sets the time of the turn that is computed next.
    pub(crate) fn set_time(&mut self, at: Timestamp) {
        self.state.table.lock().now = at;
    }

    /// Sets the number of the first event of the turn that is computed next.
    pub(crate) fn set_first_event(&mut self, number: u64) {
        self.state.table.lock().place = EventPlace { turn: number, event: number };
    }

    /// Applies one delivery, polls, and appends the event of the delivery and the decisions of the workflow to
    /// `events`. Does nothing when the operation of the delivery is no longer open.
    pub(crate) fn deliver(&mut self, delivery: Delivery, events: &mut Vec<Event>) -> Result<(), Stuck> {
        if self.ended.is_some() {
            return Ok(());
        }
        let Some(event) = self.event_of(delivery)? else { return Ok(()) };
        self.state.table.lock().set_event_number(events.len());
        events.push(event.clone());
        self.apply(&event, events)?;
        self.apply_follow_ups(events)
    }

    /// Polls until the future waits for an operation, and appends the decisions of the workflow to `requested`.
    pub(super) fn poll_until_pending(&mut self, requested: &mut Vec<Event>) -> Result<(), Stuck> {
        if self.is_compensating() {
            // There is no future any more that a wake could concern.
            self.state.waker.close();
            return Ok(());
        }
        // A foreign future may be ready by now; polling it would make the run depend on something that is not recorded.
        if self.state.waker.is_foreign() {
            return Err(self.foreign_wake());
        }
        if self.has_withheld_result() || self.finish_if_returned(requested) {
            return Ok(());
        }
        let mut generations = 0;
        for _ in 0..POLLS_PER_DELIVERY_MAX {
            let polled = self.poll();
            let mut table = self.state.table.lock();
            if let Some(unreadable) = table.unreadable.take() {
                // Also after a panic: `ctx.record` panics to stop the code, since it cannot return `Pending`.
                return Err(*unreadable);
            }
            let polled = polled?;
            if table.has_diverged() {
                // The workflow continued with a value that is not recorded here: ignore everything after that.
                table.take_decisions(requested);
                return Ok(());
            }
            match polled {
                Poll::Ready(result) => {
                    drop(table);
                    if !self.returned(result, requested)? {
                        return Ok(());
                    }
                    generations += 1;
                    continue;
                }
                Poll::Pending if table.ignores_cancel() => {
                    drop(table);
                    return Err(self.ignores_cancel());
                }
                Poll::Pending => {
                    self.state.waker.enter();
                    table.take_decisions(requested);
                    wake_all(table);
                    self.state.waker.leave();
                }
            }
            if self.state.waker.is_foreign() {
                return Err(self.foreign_wake());
            }
            if !self.state.waker.take_woken() {
                return if self.state.table.lock().open > 0 {
                    Ok(())
                } else {
                    Err(self.foreign_await("it waits, but no operation is open"))
                };
            }
        }
        Err(self.polled_too_often(generations))
    }

    fn poll(&mut self) -> Result<Poll<Result<Payload, Error>>, Stuck> {
        let mut cx = TaskContext::from_waker(&self.waker);
        self.state.waker.take_woken();
        self.state.waker.enter();
        // The future is gone only while the machine is being dropped, or after the workflow returned.
        let Some(future) = self.future.as_mut().map(Pin::new) else { return Ok(Poll::Pending) };
        let poll = AssertUnwindSafe(|| future.poll(&mut cx));
        let (polled, misuse) = polling::workflow(&self.state, || catch_unwind(poll));
        self.state.waker.leave();
        match misuse {
            Some(misuse) => Err(misused(misuse)),
            None => polled.map_err(|panic| panicked(&*panic)),
        }
    }

    /// Compares the requests of the code with the next recorded ones.
    fn match_requests(&mut self, requested: &mut Vec<Event>, cursor: &mut Cursor) -> Result<(), Stuck> {
        let mut remaining = VecDeque::from(std::mem::take(requested));
        while let Some(requested) = remaining.pop_front() {
            let recorded = self.next_recorded(cursor, &mut remaining)?;
            let was = match &requested {
                Event::StepStarted { op, .. } => self.earlier_names(*op),
                _ => &[],
            };
            match recorded {
                Some(recorded) if divergence::matches_recorded(&recorded, &requested, was) => {
                    let mut table = self.state.table.lock();
                    table.apply_recorded_request(&recorded);
                    table.set_loop_turn(&recorded, cursor.place.turn);
                    let location = requested.op().and_then(|op| table.location(op));
                    cursor.report.add_matched(recorded, requested, location, cursor.at);
                }
                None if self.accepts_new_requests()
                    && (self.is_at_fork() || !requested.stays_in_first_part()) =>
                {
                    self.unrecorded().events = std::iter::once(requested).chain(remaining).collect();
                    return Ok(());
                }
                recorded => {
                    let stuck = self.diverged(recorded.as_ref(), Some(&requested));
                    let requested = std::iter::once(requested).chain(remaining).collect();
                    return Err(self.with_report(stuck, recorded, requested, cursor));
                }
            }
        }
        // Keep the allocation: this runs after every poll.
        *requested = remaining.into();
        Ok(())
    }

    /// The next recorded event for a request. The copied events of a fork may end between two requests.
    fn next_recorded(
        &mut self,
        cursor: &mut Cursor,
        remaining: &mut VecDeque<Event>,
    ) -> Result<Option<Event>, Stuck> {
        loop {
            let recorded = cursor.next();
            // A fork of a fork may have two of them in a row.
            let Some(Event::RunForked(forked)) = &recorded else { return Ok(recorded) };
            self.set_place(cursor);
            self.count_copied_delivery();
            let mut requested = Vec::new();
            self.apply_forked(forked, &mut requested)?;
            remaining.extend(requested);
        }
    }

    fn set_place(&self, cursor: &Cursor) {
        let mut table = self.state.table.lock();
        (table.now, table.place) = (cursor.at, cursor.place);
    }

    /// The earlier names of a step, under which the history may know it.
    fn earlier_names(&self, op: OpNumber) -> &'static [&'static str] {
        match self.state.table.lock().ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Step(step)) => step.new.was,
            _ => &[],
        }
    }

    /// Why the run is stuck: the recorded event and the request of the code differ.
    pub(super) fn diverged(&self, recorded: Option<&Event>, requested: Option<&Event>) -> Stuck {
        let at = requested.and_then(Event::op).or_else(|| recorded.and_then(Event::op));
        divergence::diverged(self.state.run(), at, recorded, requested, self.state.now())
    }

    /// Adds a table to a divergence: the operations of the history and of the code around the difference, side by side.
    fn with_report(
        &self,
        stuck: Stuck,
        recorded: impl Into<Option<Event>>,
        requested: Vec<Event>,
        cursor: &mut Cursor,
    ) -> Stuck {
        let (report, at) = (std::mem::take(&mut cursor.report), cursor.at);
        let first = recorded.into().map(|event| (event, at));
        let later = std::iter::from_fn(|| cursor.next().map(|event| (event, cursor.at)));
        let recorded = first.into_iter().chain(later.filter(|(event, _)| event.is_decision()));
        let table = self.state.table.lock();
        let requested = requested.into_iter().map(|event| {
            let location = event.op().and_then(|op| table.location(op));
            (event, location)
        });
        let report = report.render(recorded, requested, table.now);
        Stuck::new(stuck.reason, stuck.message + "\n" + &report)
    }

    pub(super) fn foreign_await(&self, what: &str) -> Stuck {
        let message = format!(
            "run {} awaits something that is not an operation of its context: {what}; \
             {FOREIGN_AWAIT_REMEDY}",
            self.state.run()
        );
        stuck(StuckReason::ForeignAwait, message)
    }

    /// Why the run is stuck after something other than the engine woke it.
    pub(crate) fn foreign_wake(&self) -> Stuck {
        if let Some(misused) = &self.state.table.lock().misused {
            return (**misused).clone();
        }
        self.foreign_await("something that is not an operation woke it")
    }

    /// The waker of the run, through which a worker is notified of foreign wakes.
    pub(crate) fn wakes(&self) -> Arc<super::waker::RunWaker> {
        self.state.waker.clone()
    }

    /// The number of operations that the run has requested.
    pub(crate) fn requested_ops(&self) -> u64 {
        self.state.table.lock().next_op
    }

    /// Whether the workflow has returned while the run still waits for children.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn has_returned(&self) -> bool {
        self.result.is_some()
    }

    /// How the run ended, if it has.
    pub(crate) fn ended(&self) -> Option<Status> {
        self.ended
    }

    /// Whether a step is being attempted, or can be attempted now.
    pub(crate) fn is_active(&self) -> bool {
        self.state.table.lock().active > 0
    }

    /// The earliest time at which a timer, a timeout, a retry of a step, the deadline or the next try of the run is
    /// due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.next_due_during_attempts().into_iter().chain(self.retry_due()).min()
    }

    /// As [`next_due`](Self::next_due), while attempts are running: the next try of the run begins after they have
    /// ended.
    pub(crate) fn next_due_during_attempts(&self) -> Option<Timestamp> {
        let first = self.state.table.lock().due.first().map(|(at, _)| *at);
        first.into_iter().chain(self.deadline()).min()
    }

    /// The deadline of the run; `None` once the run was cancelled or has ended.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let is_over = || self.ended.is_some() || self.is_ending() || self.state.is_cancelled();
        self.state.deadline().filter(|_| !is_over())
    }

    /// The run as its code sees it.
    pub(crate) fn run_state(&self) -> &RunState {
        &self.state
    }

    /// The headers of the run.
    pub(crate) fn headers(&self) -> &Arc<Headers> {
        self.state.headers()
    }

    /// The workflow and the tags that the code of a step sees.
    pub(crate) fn requester(&self) -> Requester {
        self.state.requester()
    }

    /// Whether a cancel was delivered to the run.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.state.is_cancelled()
    }

    /// The run and operation that requested this run, when it is a queued step.
    pub(crate) fn requested_by(&self) -> Option<(RunId, OpNumber)> {
        self.state.requested_by()
    }

    /// The run and operation that await the end of this run.
    pub(crate) fn awaiting(&self) -> Option<(RunId, OpNumber)> {
        self.state.parent().filter(|parent| parent.awaits).map(|parent| (parent.run, parent.op))
    }

    /// Takes the pending outbox of another machine of the same run: a replayed machine has none.
    pub(crate) fn take_pending_outbox_of(&mut self, other: &mut Self) {
        let pending_outbox = other.state.table.lock().pending_outbox.take();
        self.state.table.lock().pending_outbox = pending_outbox;
    }

    /// Makes the next commit write the tags that a replay has set. The code of an earlier build may have written
    /// different tags to the row.
    pub(crate) fn rewrite_tags(&mut self) {
        let mut table = self.state.table.lock();
        let tags = std::mem::take(&mut table.replayed_tags);
        if !tags.is_empty() {
            let newer = std::mem::replace(&mut table.pending_outbox().tags, tags);
            table.pending_outbox().tags.extend(newer);
        }
    }

    /// Takes the outbox of the turn.
    pub(crate) fn take_outbox(&mut self, mut id: impl FnMut() -> MessageId) -> Option<Box<Outbox>> {
        let PendingOutbox { children, messages, tags, writes, mut tokens, replies, .. } =
            *self.state.table.lock().pending_outbox.take()?;
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
            writes,
            tokens: {
                tokens.taken.sort_by_key(|taken| taken.hash);
                tokens
            },
            replies,
        }))
    }

    /// Takes the timers and timeouts that are due at `now`. Steps whose retry is due become startable.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<(Timestamp, OpNumber)> {
        let mut table = self.state.table.lock();
        let due: Vec<_> = table.due.iter().take_while(|(at, _)| *at <= now).copied().collect();
        let mut timers = Vec::new();
        for (at, op) in due {
            match table.ops.get(op).map(|slot| &slot.kind) {
                Some(OpKind::Step(_)) => table.end_pause(op),
                _ => timers.push((at, op)),
            }
        }
        timers
    }

    /// The waits of the run, as its row shows them.
    pub(crate) fn waits(&self) -> Vec<Wait> {
        let table = self.state.table.lock();
        if self.is_compensating() {
            let waits = table.waits_of_compensations();
            drop(table);
            return waits.into_iter().chain(self.retry_wait()).collect();
        }
        if self.result.is_some() { table.awaited_children().collect() } else { table.waits() }
    }

    /// All waits of the run.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn all_waits(&self) -> Vec<Wait> {
        let table = self.state.table.lock();
        if self.is_compensating() {
            let waits = table.waits_of_compensations();
            drop(table);
            return waits.into_iter().chain(self.retry_wait()).collect();
        }
        if self.result.is_some() { table.awaited_children().collect() } else { table.all_waits().collect() }
    }

    /// Everything that two replays of one history must agree on, as text.
    pub(crate) fn summary(&self) -> String {
        if let Some(compensating) = &self.compensating {
            return format!("{compensating:?}\n{}", self.state.table.lock().summary_of_compensations());
        }
        let returned = if self.result.is_some() { "returned\n" } else { "" };
        let generation = match self.state.generation() {
            1 => String::new(),
            later => format!("generation {later}\n"),
        };
        format!("{returned}{generation}{}", self.state.table.lock().summary())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.state.close();
        match self.background.take() {
            // The operations may contain values of the user as well: closures of `ctx.call`.
            Some(background) if self.future.is_some() => {
                background.put(Box::new((self.future.take(), self.state.clone())));
            }
            _ => self.drop_future(),
        }
    }
}

impl Machine {
    /// Makes the machine drop its future in the background, wherever the machine itself is dropped.
    pub(crate) fn drop_in_background(&mut self, background: Arc<dyn DropInBackground>) {
        self.background = Some(background);
    }

    /// Makes the machine drop its future where the machine is dropped, in the task of its run.
    pub(crate) fn drop_here(&mut self) {
        self.background = None;
    }

    pub(super) fn drop_future(&mut self) {
        // A destructor in the workflow may panic; the worker must survive that.
        let future = self.future.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Machine({})", self.state.run())
    }
}

/// Whether a run is a fork with nothing but the start of another run: its first poll has the time of that start.
fn is_forked_at_start(started: &RunStarted) -> bool {
    started.forked.as_ref().is_some_and(|origin| origin.at == 1)
}

pub(super) fn stuck(reason: StuckReason, message: impl Into<String>) -> Stuck {
    Stuck::new(reason, message)
}

pub(super) fn panicked(panic: &(dyn Any + Send)) -> Stuck {
    let message = format!("the workflow's code panicked: {}; fix the code and deploy it", panic_text(panic));
    stuck(StuckReason::Panicked, message)
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}
