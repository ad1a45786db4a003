//! The operations of one run: created by the workflow, requested and ended by the engine.
//!
//! An operation is created when the workflow calls a method of its context, requested when the workflow next waits, and
//! ended by a delivery. It leaves the table when the workflow takes its outcome or drops its handle.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use outlast_core::limits::OPEN_OPERATIONS_MAX;
use outlast_core::{
    Event, EventPlace, Failure, FailureKind, MessageId, OpNumber, Payload, Queued, RunContinued, RunId,
    Stuck, Tags, Timestamp,
};

use super::cancel::{REFUSED, Refusals};
use super::children::{ChildOp, Children, PendingOutbox, carried_child};
use super::forked::CopiedOperations;
use super::history_index::HistoryIndex;
use super::hooks::{Arrival, ArrivedPayload, CanRead, Hooks};
use super::iteration::Loops;
use super::operation_map::OperationMap;
use super::random::{random_seed, seed_run};
use super::retried::Adoption;
use super::saga::Ledger;
use super::state::NewStep;
use super::tokens::{HeldTokens, TokenOp};

/// The operations of a run, and everything else that the lock of its state protects.
pub(super) struct OperationTable {
    pub(super) run: RunId,
    /// The workflow of the run.
    pub(super) workflow: Arc<str>,
    /// The rules of the run. All differences in behaviour between versions of the engine depend on them.
    pub(super) rules: u32,
    /// The priority of the run.
    pub(super) priority: u8,
    /// The deadline of the run, which a retry can change.
    pub(super) deadline: Option<Timestamp>,
    /// The operations that have no outcome yet, or whose outcome the workflow has not taken.
    pub(super) ops: OperationMap,
    pub(super) next_op: u64,
    /// The number after the last operation that has an event. An operation that is dropped before it is requested uses a
    /// number of the workflow, but the history does not have it.
    pub(super) numbered: u64,
    pub(super) now: Timestamp,
    /// The place in the history of the delivery that is applied.
    pub(super) place: EventPlace,
    pub(super) random: u64,
    /// The run whose id is the seed of the random numbers: this one, or the one that was forked.
    pub(super) seed: RunId,
    /// What a fork has copied, once all copied deliveries are replayed and until the end of the copied events is reached.
    pub(super) at_fork: Option<Box<CopiedOperations>>,
    /// The number of the next operation when the cancel was delivered.
    pub(super) cancelled_at: Option<u64>,
    /// The refusals since the run was cancelled; from rules 2 on.
    pub(super) refusals: Option<Box<Refusals>>,
    /// Steps that a lost worker may have attempted.
    pub(super) maybe_attempted: BTreeSet<OpNumber>,
    /// Operations below this number are in the history: their inputs need not be encoded again.
    pub(super) recorded_ops: u64,
    /// The history that is being replayed; `None` in a live run.
    pub(super) history: Option<Box<HistoryIndex>>,
    /// The result of `patched` for each name.
    pub(super) patches: BTreeMap<Arc<str>, PatchAnswer>,
    /// Whether the engine is dropping the future: nothing that the future does counts any more.
    pub(super) is_closed: bool,
    /// Wakers to call when the lock is released.
    pub(super) wakers: Vec<Waker>,
    /// Steps that can be attempted and that the worker has not taken yet.
    pub(super) startable: Vec<OpNumber>,
    /// Requests whose input could not be encoded: they fail in the same turn.
    pub(super) invalid_requests: Vec<(OpNumber, Failure)>,
    /// Steps that the workflow has cancelled: those that nobody attempts fail in the same turn.
    pub(super) cancelled_steps: Vec<OpNumber>,
    /// The number of open operations.
    pub(super) open: usize,
    /// The number of open steps that are not paused between two attempts.
    pub(super) active: usize,
    /// The times at which open timers, timeouts and retries are due.
    pub(super) due: BTreeSet<(Timestamp, OpNumber)>,
    /// The decisions of the workflow since the engine last took them, in order.
    pub(super) decisions: Vec<Decision>,
    pub(super) hooks: Hooks,
    /// The children that have not ended; their operations may have been dropped.
    pub(super) children: Children,
    /// The run's tags.
    pub(super) tags: Tags,
    /// How often the workflow has set tags.
    pub(super) tags_set_count: u64,
    /// How often the workflow has written to a stream or published a state.
    pub(super) writes_count: u64,
    /// The tags that the last replay has set; from rules 2 on.
    pub(super) replayed_tags: Tags,
    /// The registered compensations; `None` in most runs.
    pub(super) compensations: Option<Box<Ledger>>,
    /// The operations whose runs a retry has replaced by new ones.
    pub(super) replaced_runs: BTreeSet<OpNumber>,
    /// Children that a retry has left behind; `None` in most runs.
    pub(super) adoption: Option<Box<Adoption>>,
    /// The loops of the run; `None` in most runs.
    pub(super) loops: Option<Box<Loops>>,
    /// The tokens that the run holds; `None` in most runs.
    pub(super) tokens: Option<Box<HeldTokens>>,
    /// The first event of the turn with which the generation began.
    pub(super) begin_turn: u64,
    /// Those of earlier generations that are not deleted.
    pub(super) previous: Vec<u64>,
    /// Dropped operations that have ended. They may contain values of the user, so they are dropped outside the lock.
    pub(super) discarded: Vec<Op>,
    /// The outbox of the next commit; `None` for most commits.
    pub(super) pending_outbox: Option<Box<PendingOutbox>>,
    /// Set when the code awaits a value that it cannot decode: the run is stuck.
    pub(super) unreadable: Option<Box<Stuck>>,
    /// Set when the context was used outside of the turn: the run is stuck.
    pub(super) misused: Option<Box<Stuck>>,
}

pub(super) enum Decision {
    Created(OpNumber),
    /// An operation that was dropped or cancelled.
    Dropped(Event),
    /// A recorded value or patch. It is kept even if the run ends in the same poll.
    Recorded(Event),
}

/// The result of `patched` for a name.
#[derive(Clone, Copy)]
pub(super) struct PatchAnswer {
    /// Whether the run takes the new branch.
    pub(super) is_new: bool,
    /// The number of the next operation when the code asked first.
    pub(super) next_op: u64,
}

impl std::fmt::Debug for PatchAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.is_new.fmt(f)
    }
}

/// A location in the source code of the workflow.
pub(super) type SourceLocation = &'static Location<'static>;

/// How the engine answers a request to record a value.
pub(super) enum Recording {
    /// The value must be computed and recorded for this operation.
    New(OpNumber),
    /// The history contains the value.
    Recorded(OpNumber, Result<Payload, Failure>),
    /// No value can be recorded.
    Never(Failure),
}

/// An operation in the table.
pub(super) struct Op {
    pub(super) phase: Phase,
    pub(super) kind: OpKind,
    /// Whether it was requested: builder methods can no longer change it.
    pub(super) is_requested: bool,
    /// Whether it is protected from a cancel and the deadline.
    pub(super) is_shielded: bool,
    /// Whether the workflow has cancelled it.
    pub(super) is_cancelled: bool,
    /// Whether the workflow has dropped its handle, but its end is awaited: see [`saga`](super::saga).
    pub(super) is_dropped: bool,
    /// Where the workflow created it.
    pub(super) location: SourceLocation,
    pub(super) waker: Option<Waker>,
}

/// The phase of an operation.
pub(super) enum Phase {
    /// It has a number, but it is not requested yet.
    Created,
    /// It is requested and has no outcome.
    Open,
    /// It has an outcome that the workflow has not taken yet.
    Ended(Result<Payload, Failure>),
}

/// The kind of an operation, with what the engine knows about it.
pub(super) enum OpKind {
    Step(Box<StepOp>),
    Timer {
        due: FireTime,
        started_at: Timestamp,
        fire_at: Timestamp,
    },
    Hook {
        name: Arc<str>,
        timeout: Option<Duration>,
        timeout_at: Option<Timestamp>,
        can_read: CanRead,
        /// The arrival of the payload that the hook has taken.
        taken: Option<Box<Arrival>>,
        /// The operation that took the token to which the payload is sent, and the token.
        of: Option<OpNumber>,
        token: Option<Arc<str>>,
    },
    Child(Box<ChildOp>),
    Token(Box<TokenOp>),
}

impl OpKind {
    /// The arrival of the payload that a hook has taken.
    pub(super) fn arrival(&self) -> Option<&Arrival> {
        match self {
            Self::Hook { taken, .. } => taken.as_deref(),
            _ => None,
        }
    }
}

/// When a timer fires.
#[derive(Clone, Copy)]
pub(super) enum FireTime {
    /// This long after it is requested.
    After(Duration),
    /// At this time; immediately if the time has passed.
    At(Timestamp),
}

impl FireTime {
    /// The time at which a timer fires that is requested at `now`.
    fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::After(duration) => now.plus(duration),
            Self::At(moment) => moment.max(now),
        }
    }
}

/// A step that the workflow has created.
pub(super) struct StepOp {
    pub(super) new: NewStep,
    /// The encoded input; `None` while the history is known to contain it.
    pub(super) input: Option<Result<Payload, Failure>>,
    /// The number of failed attempts.
    pub(super) failed: u32,
    /// The details of the last recorded heartbeat.
    pub(super) details: Option<Payload>,
    /// When the next attempt is due, while the step is paused between two attempts.
    pub(super) retry_at: Option<Timestamp>,
    /// When the last pause ended; `None` once the step is attempted again.
    pub(super) paused_until: Option<Timestamp>,
    /// Whether this worker is attempting the step.
    pub(super) attempting: bool,
    /// The run in a queue that executes the step, once it is requested; this worker does not attempt it.
    pub(super) queued: Option<Box<Queued>>,
    /// The registration of the compensation that the step carries out.
    pub(super) compensates: Option<OpNumber>,
    /// The message of the last retry that has opened the step again.
    pub(super) reopened_by: Option<MessageId>,
}

impl OperationTable {
    pub(super) fn new(run: RunId, begin: &RunContinued, now: Timestamp) -> Self {
        let started = &begin.started;
        Self {
            run,
            workflow: started.workflow.clone(),
            rules: started.rules,
            priority: started.priority,
            deadline: started.deadline,
            ops: OperationMap::default(),
            next_op: begin.next_op.0,
            numbered: begin.next_op.0,
            now,
            place: EventPlace::default(),
            seed: seed_run(run, started),
            at_fork: None,
            random: random_seed(seed_run(run, started), begin.next_op),
            cancelled_at: None,
            refusals: None,
            maybe_attempted: BTreeSet::new(),
            recorded_ops: 0,
            history: None,
            patches: BTreeMap::new(),
            is_closed: false,
            wakers: Vec::new(),
            startable: Vec::new(),
            invalid_requests: Vec::new(),
            cancelled_steps: Vec::new(),
            open: 0,
            active: 0,
            due: BTreeSet::new(),
            decisions: Vec::new(),
            hooks: Hooks::default(),
            children: begin.children.iter().map(carried_child).collect(),
            tags: started.tags.clone(),
            tags_set_count: 0,
            writes_count: 0,
            replayed_tags: Tags::new(),
            compensations: None,
            replaced_runs: BTreeSet::new(),
            adoption: None,
            loops: None,
            tokens: HeldTokens::carried(&begin.tokens),
            begin_turn: 0,
            previous: begin.previous.clone(),
            discarded: Vec::new(),
            pending_outbox: None,
            unreadable: None,
            misused: None,
        }
    }

    /// Sets the number of the event that is applied next: `index` events of its turn precede it.
    pub(super) fn set_event_number(&mut self, index: usize) {
        self.place.event = self.place.turn + index as u64;
    }

    /// Assigns a number to a value that is to be recorded, and looks it up in the history.
    #[track_caller]
    pub(super) fn record(&mut self, name: &str, problem: Option<Failure>) -> Recording {
        let op = OpNumber(self.next_op);
        if self.is_closed {
            return Recording::Never(Failure::new(
                FailureKind::Invalid,
                "the run is no longer held by this worker",
            ));
        }
        self.next_op += 1;
        if let Some(failure) = problem {
            return Recording::Never(failure);
        }
        let Some(history) = self.history.as_mut().filter(|history| history.has(op)) else {
            return Recording::New(op);
        };
        let value = history.value(op, name, Location::caller());
        let not_recorded =
            || Failure::new(FailureKind::Invalid, format!("history has no value `{name}` here"));
        // Replay compares the name and the position in the history; the recorded value itself is authoritative.
        let requested = value.clone().unwrap_or_else(|| Err(not_recorded()));
        self.recorded(Event::ValueRecorded { op, name: name.into(), value: requested });
        value.map_or_else(|| Recording::Never(not_recorded()), |value| Recording::Recorded(op, value))
    }

    /// Adds an event that takes effect without waiting.
    pub(super) fn recorded(&mut self, event: Event) {
        if !self.is_closed {
            self.note_number(&event);
            self.decisions.push(Decision::Recorded(event));
        }
    }

    /// Whether the run takes the new branch of a patch. The result is the same for every call with this name.
    pub(super) fn patched(&mut self, name: &str) -> bool {
        if let Some(answer) = self.patch_answer(name) {
            return answer;
        }
        let name = Arc::from(name);
        let answer = match &self.history {
            Some(history) => history.is_patched(&name),
            None => {
                self.recorded(Event::VersionChosen { name: Arc::clone(&name) });
                true
            }
        };
        self.set_patch(name, answer);
        answer
    }

    /// Sets the result for a patch.
    pub(super) fn set_patch(&mut self, name: Arc<str>, is_new: bool) {
        let next_op = self.next_op;
        self.patches.entry(name).or_insert(PatchAnswer { is_new, next_op });
    }

    /// The earlier result for this patch, if there is one.
    pub(super) fn patch_answer(&self, name: &str) -> Option<bool> {
        self.patches.get(name).map(|answer| answer.is_new)
    }

    /// Whether the code requested a value that its history does not contain.
    pub(super) fn has_diverged(&self) -> bool {
        self.history.as_ref().is_some_and(|history| history.has_diverged)
    }

    /// Whether the code is repeating recorded turns, so that their messages were already sent.
    pub(super) fn is_replaying(&self) -> bool {
        self.history.as_ref().is_some_and(|history| !history.accepts_new_requests())
    }

    /// Whether the replayed history contains the request for an operation.
    pub(super) fn is_recorded(&self, op: OpNumber) -> bool {
        self.history.as_ref().is_some_and(|history| history.has(op))
    }

    /// Counters that change whenever the context is used. A closure of `ctx.record` must leave them unchanged.
    pub(super) fn side_effect_counters(&self) -> (u64, u64, usize, u64) {
        (self.next_op, self.random, self.decisions.len(), self.tags_set_count + self.writes_count)
    }

    /// Where the workflow created an operation, if that is known.
    pub(super) fn location(&self, op: OpNumber) -> Option<SourceLocation> {
        let in_history = || self.history.as_ref().and_then(|history| history.location(op));
        self.ops.get(op).map(|slot| slot.location).or_else(in_history)
    }

    /// Creates an operation and returns its number. With a `problem` the operation fails before it is requested. An
    /// operation that is refused because the run was cancelled is [`REFUSED`](super::cancel::REFUSED).
    #[track_caller]
    pub(super) fn create(&mut self, kind: OpKind, problem: Option<Failure>, is_shielded: bool) -> OpNumber {
        let op = OpNumber(self.next_op);
        if self.is_closed {
            return op;
        }
        // Runs with rules 1 have no shields: their operations after a cancel work as before it.
        let is_shielded = is_shielded && self.rules >= 2;
        if self.refusals.is_some() && !is_shielded {
            return REFUSED;
        }
        self.next_op += 1;
        let phase = match problem.or_else(|| self.too_many_open()) {
            Some(failure) => Phase::Ended(Err(failure)),
            None => {
                self.decisions.push(Decision::Created(op));
                Phase::Created
            }
        };
        let location = Location::caller();
        let (is_requested, is_cancelled, is_dropped, waker) = (false, false, false, None);
        let created =
            Op { phase, kind, is_requested, is_shielded, is_cancelled, is_dropped, location, waker };
        self.ops.insert(op, created);
        op
    }

    fn too_many_open(&self) -> Option<Failure> {
        (self.ops.len() >= OPEN_OPERATIONS_MAX).then(|| {
            let message = format!(
                "the run has {OPEN_OPERATIONS_MAX} operations open, which is the limit; \
                 await some before asking for more"
            );
            Failure::new(FailureKind::Limit, message)
        })
    }

    /// Takes an operation that has ended; stores the waker while it has not.
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

    /// Removes an operation whose handle the workflow has dropped.
    pub(super) fn drop_operation(&mut self, op: OpNumber) -> Option<Op> {
        self.request_if_copied(op);
        if self.keep_dropped_step(op) {
            return None;
        }
        if self.is_open(op) {
            self.remove_from_indexes(op);
        }
        let slot = self.ops.remove(op)?;
        match (&slot.phase, &slot.kind) {
            (Phase::Open, OpKind::Step(step)) => {
                self.dropped(Event::StepDropped { op });
                if let Some(queued) = &step.queued {
                    self.terminate_queued_run(
                        queued.run,
                        format!("its parent {} does not wait for it any more", self.run),
                    );
                }
            }
            (Phase::Open, OpKind::Timer { .. }) => self.dropped(Event::TimerCancelled { op }),
            (Phase::Open, OpKind::Hook { .. }) => self.dropped(Event::HookClosed { op }),
            (Phase::Open, OpKind::Token(token)) => self.drop_token_request(op, token),
            (Phase::Ended(Ok(_)), OpKind::Token(_)) => self.close_token(op, false),
            (Phase::Open, OpKind::Child(child)) if child.is_carried => {}
            (Phase::Open, OpKind::Child(child)) => {
                if child.is_cancelled_on_drop && !slot.is_cancelled {
                    self.cancel_by_workflow(op, child.run);
                }
                self.dropped(Event::ChildDropped { op });
            }
            // The workflow did not receive this payload: make it available to other hooks again.
            (Phase::Ended(Ok(payload)), OpKind::Hook { name, taken: Some(arrival), .. }) => {
                self.dropped(Event::HookClosed { op });
                self.return_payload(
                    name,
                    ArrivedPayload { arrival: (**arrival).clone(), payload: payload.clone() },
                );
            }
            _ => {}
        }
        Some(slot)
    }

    pub(super) fn dropped(&mut self, event: Event) {
        self.decisions.push(Decision::Dropped(event));
    }

    /// Removes drops that were not taken yet.
    pub(super) fn forget_dropped(&mut self, is_forgotten: impl Fn(&Event) -> bool) {
        let is_forgotten =
            |decision: &Decision| matches!(decision, Decision::Dropped(event) if is_forgotten(event));
        self.decisions.retain(|decision| !is_forgotten(decision));
    }

    /// Records that the workflow has cancelled an operation.
    pub(super) fn cancelled(&mut self, op: OpNumber) {
        self.decisions.push(Decision::Dropped(Event::OperationCancelled { op }));
    }

    /// Takes the decisions in order: requests the operations that were created, and records those that were dropped.
    pub(super) fn take_decisions(&mut self, requested: &mut Vec<Event>) {
        let mut decisions = std::mem::take(&mut self.decisions);
        for decision in decisions.drain(..) {
            match decision {
                Decision::Dropped(event) | Decision::Recorded(event) => {
                    if let Event::TokenClosed { op } = event {
                        self.free_closed_token(op);
                    }
                    requested.push(event);
                }
                Decision::Created(op) => requested.extend(self.request(op)),
            }
        }
        // Keep the allocation: this runs after every poll.
        self.decisions = decisions;
    }

    /// Takes the recorded values and patches of the poll in which the workflow returned. Its other decisions are
    /// discarded, because the run ends with that poll.
    pub(super) fn take_final_decisions(&mut self, requested: &mut Vec<Event>) {
        requested.extend(self.decisions.drain(..).filter_map(|decision| match decision {
            Decision::Recorded(event) => Some(event),
            Decision::Created(_) | Decision::Dropped(_) => None,
        }));
    }

    /// Takes the decisions of the poll in which the workflow returned an error, before its compensations run: what it
    /// dropped and recorded. What it created in that poll is discarded.
    pub(super) fn take_decisions_before_compensating(&mut self, requested: &mut Vec<Event>) {
        let decisions: Vec<_> = self.decisions.drain(..).collect();
        requested.extend(decisions.into_iter().filter_map(|decision| match decision {
            Decision::Dropped(event @ Event::TokenClosed { op }) => {
                self.free_closed_token(op);
                Some(event)
            }
            Decision::Recorded(event) | Decision::Dropped(event) => Some(event),
            Decision::Created(_) => None,
        }));
    }

    /// Notes that the operation of an event has one.
    pub(super) fn note_number(&mut self, event: &Event) {
        self.numbered = self.numbered.max(event.op().map_or(0, |op| op.0 + 1));
    }

    /// Requests a created operation, and returns the event of the request.
    pub(super) fn request(&mut self, op: OpNumber) -> Option<Event> {
        let event = self.request_created(op)?;
        self.note_number(&event);
        self.note_event(&event);
        Some(event)
    }

    fn request_created(&mut self, op: OpNumber) -> Option<Event> {
        let now = self.now;
        let slot = self.ops.get_mut(op).filter(|slot| matches!(slot.phase, Phase::Created))?;
        slot.phase = Phase::Open;
        slot.is_requested = true;
        self.open += 1;
        let event = match &mut slot.kind {
            OpKind::Child(_) => return self.request_child(op),
            OpKind::Token(_) => return self.request_token(op),
            OpKind::Step(step) => {
                let input = match &step.input {
                    Some(Ok(input)) => input.clone(),
                    Some(Err(failure)) => {
                        self.invalid_requests.push((op, failure.clone()));
                        Payload::null()
                    }
                    None => Payload::null(),
                };
                if !step.new.is_in_place() {
                    return self.request_queued(op, input);
                }
                self.active += 1;
                self.startable.push(op);
                step.started(op, input, self.rules)
            }
            OpKind::Timer { due, started_at, fire_at } => {
                *started_at = now;
                *fire_at = due.resolve(now);
                self.due.insert((*fire_at, op));
                Event::TimerStarted { op, fire_at: *fire_at }
            }
            OpKind::Hook { name, timeout, timeout_at, of, token, .. } => {
                *timeout_at = timeout.map(|timeout| now.plus(timeout));
                self.due.extend(timeout_at.map(|at| (at, op)));
                let (name, timeout_at, of, token) = (name.clone(), *timeout_at, *of, token.clone());
                self.hook_opened(op, &name, token.as_ref());
                Event::HookOpened { op, name, timeout_at, of }
            }
        };
        Some(event)
    }

    /// Ends an open operation with an outcome and wakes its waiter. Returns false when it is not open.
    pub(super) fn end(&mut self, op: OpNumber, outcome: Result<Payload, Failure>) -> bool {
        if !self.is_open(op) {
            return false;
        }
        self.remove_from_indexes(op);
        if let Some(slot) = self.ops.get_mut(op) {
            slot.phase = Phase::Ended(outcome);
            if let OpKind::Step(step) = &mut slot.kind {
                // In a replay the last pause may still be set, because its end is not recorded.
                step.retry_at = None;
            }
            self.wakers.extend(slot.waker.take());
        }
        self.discard_if_dropped(op);
        true
    }

    pub(super) fn is_step(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { kind: OpKind::Step(_), .. }))
    }

    pub(super) fn is_open(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { phase: Phase::Open, .. }))
    }

    /// Removes an operation that is no longer open from all indexes.
    pub(super) fn remove_from_indexes(&mut self, op: OpNumber) {
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
            OpKind::Hook { name, timeout_at, token, .. } => {
                if let Some(at) = timeout_at {
                    self.due.remove(&(*at, op));
                }
                self.hooks.hook_closed(op, name, token.as_ref());
            }
            OpKind::Token(_) => {}
        }
    }
}
