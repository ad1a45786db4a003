//! Loops whose past a replay skips: `ctx.iterate`.
//!
//! The end of an iteration records the state with which the next one begins. It is a cut if everything else of the
//! iteration can be forgotten: then `iteration_ended` also records what outlives it, and a replay continues there with
//! the recorded state. An iteration cannot be skipped in these cases:
//!
//! * an operation from outside of the loop was open when it began, or code outside of the loop used the context
//!   meanwhile: that code would run at another time in a replay;
//! * it leaves an operation or a compensation behind, or has settled a compensation that is older;
//! * the run was cancelled.
//!
//! Its end is recorded nevertheless, and the next range that can be skipped begins there.
//!
//! How a replay meets a skipped range: the code creates the loop, or ends an iteration that is not skipped, and asks for
//! the next iteration ([`RunState::resume_loop`]). If the history has a cut behind that operation, the state of the run
//! becomes that of the cut, and the loop continues with the recorded state.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::cut::LoopResume;
use outlast_core::limits::SKIPPED_RANGES_MAX;
use outlast_core::{
    Event, Failure, FailureKind, IterationCut, IterationEnded, OpNumber, Payload, SkippedRange, Stuck,
    StuckReason,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::children::carried_child;
use super::hooks::carried_payload;
use super::names::name_problem;
use super::operation_table::{OperationTable, Phase};
use super::random::random_seed;
use super::state::{OUTSIDE_TURN_PANIC, RunState};
use crate::error::{Error, stuck_on_unreadable};

/// The loops of a run.
#[derive(Default)]
pub(super) struct Loops {
    /// The ranges of the generation that a replay skips, in order.
    skips: Vec<SkippedRange>,
    /// The loops that have not ended, by the operations that began them.
    open: BTreeMap<OpNumber, OpenLoop>,
}

/// A loop that has not ended.
struct OpenLoop {
    /// The iteration that is executed, from 1.
    iteration: u64,
    /// The last event of the loop that a replay does not skip, and the first event of its turn.
    after: OpNumber,
    after_turn: u64,
    /// The number of the first operation of the iteration.
    first_op: u64,
    /// The registered compensations before the iteration, and the sagas.
    unsettled: usize,
    sagas: usize,
    /// The number of tokens that the run held before the iteration.
    tokens: usize,
    /// What the context was used for when the code of the loop was polled last.
    seen: UsedContext,
    /// Whether the iteration cannot be skipped because of something outside of the loop.
    is_disturbed: bool,
}

/// What changes whenever the code of a workflow uses its context.
#[derive(Clone, Copy, Default, PartialEq)]
struct UsedContext {
    next_op: u64,
    random: u64,
    tags_set_count: u64,
}

impl OperationTable {
    fn used_context(&self) -> UsedContext {
        let Self { next_op, random, tags_set_count, .. } = *self;
        UsedContext { next_op, random, tags_set_count }
    }

    fn loops(&mut self) -> &mut Loops {
        self.loops.get_or_insert_default()
    }

    fn open_loop(&mut self, of: OpNumber) -> Option<&mut OpenLoop> {
        self.loops.as_mut()?.open.get_mut(&of)
    }

    fn unsettled_compensations(&self) -> usize {
        self.compensations.as_ref().map_or(0, |ledger| ledger.compensations.unsettled())
    }

    fn start_loop(&mut self, name: &str) -> OpNumber {
        let op = OpNumber(self.next_op);
        self.next_op += 1;
        self.recorded(Event::LoopStarted { op, name: name.into() });
        let after_turn = self.place.turn;
        let new = OpenLoop {
            iteration: 1,
            after: op,
            after_turn,
            first_op: 0,
            unsettled: 0,
            sagas: 0,
            tokens: 0,
            seen: UsedContext::default(),
            is_disturbed: false,
        };
        self.loops().open.insert(op, new);
        self.begin_iteration(op);
        op
    }

    /// Begins an iteration with the operation that is created next.
    fn begin_iteration(&mut self, of: OpNumber) {
        let is_open = |phase: &Phase| !matches!(phase, Phase::Ended(_));
        let is_disturbed = self.ops.iter().any(|(_, slot)| is_open(&slot.phase));
        let (first_op, seen) = (self.next_op, self.used_context());
        let unsettled = self.unsettled_compensations();
        let sagas = self.compensations.as_ref().map_or(0, |ledger| ledger.sagas_count());
        let (tokens, _) = self.tokens.as_ref().map_or((0, 0), |tokens| tokens.counts(first_op));
        if let Some(open) = self.open_loop(of) {
            (open.first_op, open.seen, open.is_disturbed) = (first_op, seen, is_disturbed);
            (open.unsettled, open.sagas, open.tokens) = (unsettled, sagas, tokens);
        }
    }

    /// Drops what the iteration has left open, and returns whether a replay can skip the iteration.
    fn can_skip_iteration(&mut self, of: OpNumber) -> bool {
        let Some(&mut OpenLoop { first_op, is_disturbed, after, unsettled, tokens, .. }) = self.open_loop(of)
        else {
            return false;
        };
        // The end of the copied events must not be skipped.
        if is_disturbed || self.at_fork.is_some() || self.cancelled_at.is_some() || self.refusals.is_some() {
            return false;
        }
        // All of them belong to the loop: nothing else has created operations.
        let left: Vec<_> = self.ops.iter().map(|(op, _)| op).filter(|op| op.0 >= first_op).collect();
        for op in left {
            let dropped = self.drop_operation(op);
            self.discarded.extend(dropped);
        }
        // A token that outlives the iteration, or was closed in it, must be known after it.
        let held = self.tokens.as_ref().map_or((0, 0), |tokens| tokens.counts(first_op));
        let is_left = self.ops.iter().any(|(op, _)| op.0 >= first_op) || held != (tokens, 0);
        let ledger = self.compensations.as_ref();
        let is_registered = ledger.is_some_and(|ledger| {
            ledger.compensations.iter().any(|entry| entry.op > after && entry.is_unsettled())
        });
        let has_room = self.loops.as_ref().is_none_or(|loops| loops.skips.len() < SKIPPED_RANGES_MAX);
        !is_left && !is_registered && unsettled == self.unsettled_compensations() && has_room
    }

    /// Makes the end of an iteration a cut: everything that happened since the last event of the loop that a replay does
    /// not skip is forgotten.
    fn cut(&mut self, of: OpNumber, op: OpNumber) -> IterationCut {
        let until_turn = self.place.turn;
        let begin = self.begin_turn;
        let Some(&mut OpenLoop { after, after_turn, sagas, .. }) = self.open_loop(of) else {
            return IterationCut::default();
        };
        let loops = self.loops();
        loops.skips.retain(|skip| skip.after < after);
        loops.skips.push(SkippedRange { after, after_turn, until: op, until_turn });
        let skips = loops.skips.clone();
        self.forget_patches_since(after);
        if let Some(ledger) = &mut self.compensations {
            ledger.forget_settled_since(after, sagas);
        }
        let kept = self.hooks.take_kept_payloads();
        let places = kept.iter().map(|(_, payload)| payload.place()).collect();
        self.carry_payloads(kept);
        let cut = IterationCut {
            begin,
            skips,
            tags: self.tags.clone(),
            patches: self
                .patches
                .iter()
                .filter(|(_, answer)| answer.is_new)
                .map(|(name, _)| (**name).into())
                .collect(),
            children: self.carried_children(),
            kept: places,
        };
        self.children = cut.children.iter().map(carried_child).collect();
        self.random = random_seed(self.seed, OpNumber(op.0 + 1));
        // A replay, which continues here, does not send them again.
        self.settle_messages();
        cut
    }

    /// Removes the negative answers that were given after an operation: a replay does not know them.
    fn forget_patches_since(&mut self, after: OpNumber) {
        self.patches.retain(|_, answer| answer.is_new || answer.next_op <= after.0);
    }

    /// Keeps payloads that had arrived before a cut.
    fn carry_payloads(&mut self, kept: Vec<(super::hooks::HookKey, super::hooks::ArrivedPayload)>) {
        let taken = self.ops.iter().filter_map(|(_, slot)| slot.kind.arrival());
        let arrived = taken.map(super::hooks::Arrival::number).max().map_or(0, |last| last + 1);
        self.hooks.forget_arrivals(arrived);
        self.hooks.carry(kept);
    }

    /// Puts the run into the state of a cut, in a replay.
    fn resume_at(&mut self, of: OpNumber, resume: LoopResume) -> Result<Payload, Failure> {
        let LoopResume { at, ended, kept, .. } = resume;
        self.recorded(Event::IterationEnded(Box::new(ended.clone())));
        let IterationEnded { op, iteration, state, cut, .. } = ended;
        let IterationCut { skips, tags, patches, children, .. } = cut.unwrap_or_default();
        self.next_op = op.0 + 1;
        self.now = at;
        self.random = random_seed(self.seed, OpNumber(self.next_op));
        self.tags = tags;
        for name in patches {
            self.set_patch(Arc::from(name), true);
        }
        self.children = children.iter().map(carried_child).collect();
        self.carry_payloads(kept.into_iter().filter_map(carried_payload).collect());
        self.loops().skips = skips;
        if let Some(open) = self.open_loop(of) {
            open.iteration = iteration + 1;
        }
        self.begin_iteration(of);
        state
    }

    /// Records the end of an iteration. In a replay the recorded state is authoritative.
    fn end_iteration(&mut self, of: OpNumber, state: Result<Payload, Failure>) -> Result<Payload, Failure> {
        let op = OpNumber(self.next_op);
        self.next_op += 1;
        let iteration = self.open_loop(of).map_or(0, |open| open.iteration);
        let can_skip = self.can_skip_iteration(of) && state.is_ok();
        self.settle_closed_tokens();
        let is_recorded = self.is_recorded(op);
        let (state, cut) = match is_recorded {
            false => (state, can_skip.then(|| self.cut(of, op))),
            true => (self.recorded_state(op, of), None),
        };
        let is_cut = cut.is_some();
        let ended = IterationEnded { op, of, iteration, state: state.clone(), cut };
        self.recorded(Event::IterationEnded(Box::new(ended)));
        let turn = self.place.turn;
        if let Some(open) = self.open_loop(of) {
            open.iteration += 1;
            if !is_cut {
                (open.after, open.after_turn) = (op, turn);
            }
        }
        self.begin_iteration(of);
        state
    }

    /// The recorded state of an iteration that is not skipped.
    fn recorded_state(&mut self, op: OpNumber, of: OpNumber) -> Result<Payload, Failure> {
        let recorded = self.history.as_mut().and_then(|history| history.iteration(op, of));
        recorded.unwrap_or_else(|| {
            let message = format!("history has no end of an iteration of loop operation {of} here");
            Err(Failure::new(FailureKind::Invalid, message))
        })
    }

    /// Keeps a replay from skipping the iterations that are executed now.
    pub(super) fn disturb_loops(&mut self) {
        let open = self.loops.iter_mut().flat_map(|loops| loops.open.values_mut());
        open.for_each(|open| open.is_disturbed = true);
    }

    /// Sets the turn of loop events that the current turn records, though a replay has made them.
    pub(super) fn set_turn_of_loops_since(&mut self, first: OpNumber) {
        let turn = self.place.turn;
        let open = self.loops.iter_mut().flat_map(|loops| loops.open.values_mut());
        open.filter(|open| open.after >= first).for_each(|open| open.after_turn = turn);
    }

    /// Notes the turn that contains an event of a loop, in a replay.
    pub(super) fn set_loop_turn(&mut self, event: &Event, turn: u64) {
        let (of, op) = match event {
            Event::LoopStarted { op, .. } => (*op, *op),
            Event::IterationEnded(ended) => (ended.of, ended.op),
            _ => return,
        };
        if let Some(open) = self.open_loop(of).filter(|open| open.after == op) {
            open.after_turn = turn;
        }
    }
}

/// A loop of a run, until it is dropped.
pub(crate) struct LoopHandle {
    state: Arc<RunState>,
    op: OpNumber,
}

impl LoopHandle {
    /// The code of the loop is about to be polled.
    pub(crate) fn enter(&self) {
        let mut table = self.state.table.lock();
        let used = table.used_context();
        if let Some(open) = table.open_loop(self.op) {
            open.is_disturbed |= open.seen != used;
        }
    }

    /// The code of the loop was polled.
    pub(crate) fn leave(&self) {
        let mut table = self.state.table.lock();
        let used = table.used_context();
        if let Some(open) = table.open_loop(self.op) {
            open.seen = used;
        }
    }

    /// The state with which the next iteration begins, if the replay skips iterations here. The outer `None` means that
    /// the recorded state cannot be read: the run is stuck.
    pub(crate) fn resume<S: DeserializeOwned>(&self) -> Option<Option<Result<S, Error>>> {
        let mut table = self.state.table.lock();
        let after = table.open_loop(self.op).map(|open| open.after);
        let resume = after.and_then(|after| table.history.as_mut()?.take_resume(after));
        let Some(resume) = resume else { return Some(None) };
        let state = table.resume_at(self.op, resume);
        drop(table);
        self.decode(state).map(Some)
    }

    /// Ends an iteration, and returns the state of the next one, decoded as a replay will decode it. `None` when the
    /// state cannot be read: the run is stuck.
    pub(crate) fn end_iteration<S>(&self, state: &S) -> Option<Result<S, Error>>
    where
        S: Serialize + DeserializeOwned,
    {
        if self.state.is_outside_turn(|| "it ended an iteration".to_owned()) {
            return None;
        }
        // Serialize outside the lock: this runs code of the user, which may use the context.
        let encoded = self.state.encode(state);
        let mut table = self.state.table.lock();
        if table.is_closed {
            return None;
        }
        let state = table.end_iteration(self.op, encoded);
        let discarded = std::mem::take(&mut table.discarded);
        drop(table);
        // Outside the lock: they may contain values of the user.
        drop(discarded);
        self.decode(state)
    }

    fn decode<S: DeserializeOwned>(&self, state: Result<Payload, Failure>) -> Option<Result<S, Error>> {
        let state = match state {
            Ok(state) => state,
            Err(failure) => return Some(Err(Error::of_failure(failure))),
        };
        match self.state.codec().decode(state).and_then(|plain| plain.decode()) {
            Ok(state) => Some(Ok(state)),
            Err(error) => {
                let problem = error.cannot_be_read();
                let message = format!("the state of the loop that operation {} began {problem}", self.op);
                self.state.set_unreadable(stuck_on_unreadable(error.is_coded(), message));
                None
            }
        }
    }

    /// Makes the run stuck, because its iterations do not await anything.
    pub(crate) fn set_hung(&self, iterations: usize) {
        let message = format!(
            "{iterations} iterations of the loop that operation {} began have ended without awaiting anything, which is \
             the limit; let each iteration await something",
            self.op
        );
        self.state.set_unreadable(Stuck::new(StuckReason::Hung, message));
    }
}

impl Drop for LoopHandle {
    fn drop(&mut self) {
        let mut table = self.state.table.lock();
        if let Some(loops) = &mut table.loops {
            loops.open.remove(&self.op);
        }
    }
}

impl RunState {
    /// Begins a loop.
    pub(crate) fn start_loop(self: &Arc<Self>, name: &str) -> Result<LoopHandle, Error> {
        if self.is_outside_turn(|| format!("it began loop `{name}`")) {
            return Err(Error::invalid(OUTSIDE_TURN_PANIC));
        }
        if let Some(problem) = name_problem("loop", name) {
            return Err(Error::of_failure(problem));
        }
        let mut table = self.table.lock();
        if table.is_closed {
            return Err(Error::invalid("the run is no longer held by this worker"));
        }
        let op = table.start_loop(name);
        drop(table);
        Ok(LoopHandle { state: self.clone(), op })
    }
}
