//! A run whose first events are copies of another run's.
//!
//! A replay of the copied events ends in the state that the other run had there. Then `run_forked` is applied: what is
//! open begins again, as the fork's own, and what the other run has done and would undo, or await, is forgotten.
//!
//! The copies may end between two requests of one poll. The requests behind the cut are made in the replay and recorded
//! behind `run_forked`, as after a turn that is committed in parts. If the workflow returns in that poll, its result is
//! withheld until `run_forked` is applied, because the end of the run depends on what is forgotten.

use std::collections::BTreeSet;

use outlast_core::cut::is_skipped;
use outlast_core::{
    Event, ForkOrigin, MessageBody, OpNumber, Payload, RenewedWait, ReplayHistory, RunForked, RunId, Stuck,
};

use super::machine::Machine;
use super::operation_table::{Decision, Op, OpKind, OperationTable, Phase};
use crate::error::Error;

/// The end of the copied events, until a turn has recorded it with `run_forked`.
pub(super) struct PendingFork {
    origin: ForkOrigin,
    /// Operations with lower numbers are copied.
    next_op: OpNumber,
    /// The number of copied deliveries that are not replayed yet.
    deliveries_left: usize,
    /// The ends of copied events, those that are themselves copied (the other run is a fork) and this one.
    ends: Vec<CopiedEnd>,
    /// The runs that copied operations have started: those of the other run.
    runs: BTreeSet<RunId>,
    /// The result of the workflow, if it returned after the last of them.
    returned: Option<Result<Payload, Error>>,
}

/// Where copied events end.
struct CopiedEnd {
    /// The number of copied deliveries that are left there.
    deliveries_left: usize,
    /// What the workflow had decided since the delivery before.
    decisions: Vec<Event>,
    /// Operations with lower numbers are copied.
    next_op: OpNumber,
}

impl PendingFork {
    /// The end of the copied events of a history that is about to be replayed.
    pub(super) fn of(history: &ReplayHistory) -> Option<Box<Self>> {
        let begin = history.skips.first().map_or(0, |skip| skip.end.saturating_sub(1));
        let origin = history.begin.started.forked.as_deref().filter(|origin| begin < origin.at)?;
        let numbered = history.turns.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
        let copied = numbered
            .filter(|(number, _)| *number < origin.at && !is_skipped(&history.skips, *number))
            .map(|(_, event)| event);
        let (mut next_op, mut deliveries) = (history.begin.next_op, 0);
        let (mut ends, mut decisions) = (Vec::new(), Vec::new());
        let mut runs: BTreeSet<_> = history.begin.children.iter().map(|child| child.run).collect();
        for event in copied {
            runs.extend(runs_of(event));
            if matches!(event, Event::RunForked(_)) {
                ends.push((deliveries, decisions.clone(), next_op));
            }
            if event.is_decision() {
                decisions.push(event.clone());
            } else if !is_patch(event) {
                deliveries += 1;
                decisions.clear();
            }
            next_op = next_op.max(OpNumber(event.op().map_or(0, |op| op.0 + 1)));
        }
        ends.push((deliveries, decisions, next_op));
        let end = |(before, decisions, next_op)| {
            let deliveries_left = deliveries - before;
            CopiedEnd { deliveries_left, decisions, next_op }
        };
        let ends = ends.into_iter().map(end).collect();
        let (origin, returned) = (origin.clone(), None);
        Some(Box::new(Self { origin, next_op, deliveries_left: deliveries, ends, runs, returned }))
    }
}

impl PendingFork {
    /// The end of copied events that is reached.
    fn end(&self) -> Option<&CopiedEnd> {
        self.ends.iter().find(|end| end.deliveries_left == self.deliveries_left)
    }
}

/// The operations that a fork has copied, as far as its last copied poll must know.
pub(super) struct CopiedOperations {
    /// Those with lower numbers are copied.
    pub(super) next_op: OpNumber,
    /// Those that the run that was forked has requested in this poll.
    requested: BTreeSet<OpNumber>,
}

impl CopiedEnd {
    fn copied_operations(&self) -> Box<CopiedOperations> {
        let requests = self.decisions.iter().filter(|decision| is_request(decision));
        let requested = requests.filter_map(Event::op).collect();
        Box::new(CopiedOperations { next_op: self.next_op, requested })
    }
}

/// Whether an event requests an operation that can be dropped or cancelled.
fn is_request(event: &Event) -> bool {
    matches!(
        event,
        Event::StepStarted { .. }
            | Event::TimerStarted { .. }
            | Event::HookOpened { .. }
            | Event::TokenRequested(_)
            | Event::ChildStarted(_)
    )
}

/// The runs that an event starts.
fn runs_of(event: &Event) -> Vec<RunId> {
    let restarts = match event {
        Event::ChildStarted(child) => return vec![child.run],
        Event::StepStarted { queued: Some(queued), .. }
        | Event::CompensationStarted { queued: Some(queued), .. } => return vec![queued.run],
        Event::RunRetried(retried) => &retried.restarts,
        Event::RunForked(forked) => &forked.restarts,
        _ => return Vec::new(),
    };
    restarts.iter().map(|restarted| restarted.run).collect()
}

/// Whether an event has no place among the deliveries and decisions.
fn is_patch(event: &Event) -> bool {
    matches!(event, Event::VersionChosen { .. })
}

impl Machine {
    /// Whether the run is a fork whose `run_forked` is not recorded yet: the next turn records it.
    pub(crate) fn has_pending_fork(&self) -> bool {
        self.fork.is_some()
    }

    /// Sets the end of the copied events, before a replay.
    pub(super) fn expect_fork(&mut self, fork: Option<Box<PendingFork>>) {
        self.fork = fork;
        self.note_fork_progress();
    }

    /// Counts a replayed delivery.
    pub(super) fn count_copied_delivery(&mut self) {
        if let Some(fork) = &mut self.fork {
            fork.deliveries_left = fork.deliveries_left.saturating_sub(1);
        }
        self.note_fork_progress();
    }

    fn note_fork_progress(&self) {
        if let Some(fork) = &self.fork {
            self.state.table.lock().at_fork = fork.end().map(CopiedEnd::copied_operations);
        }
    }

    /// Whether all copied deliveries are replayed.
    pub(super) fn is_at_fork(&self) -> bool {
        self.fork.as_ref().is_some_and(|fork| fork.deliveries_left == 0)
    }

    /// Whether the workflow has returned, and its result is withheld.
    pub(super) fn has_withheld_result(&self) -> bool {
        self.fork.as_ref().is_some_and(|fork| fork.returned.is_some())
    }

    /// Withholds the result of the workflow until the end of the copied events. Returns it if it is not to be withheld.
    pub(super) fn withhold(&mut self, result: Result<Payload, Error>) -> Option<Result<Payload, Error>> {
        match &mut self.fork {
            Some(fork) if fork.end().is_some() => {
                fork.returned = Some(result);
                None
            }
            _ => Some(result),
        }
    }

    /// Takes the decisions of the poll in which the workflow returned, while its result is withheld.
    pub(super) fn take_withheld_decisions(&mut self, requested: &mut Vec<Event>) {
        let end = self.fork.as_ref().and_then(|fork| fork.end());
        let copied = end.map_or(&[][..], |end| end.decisions.as_slice());
        self.state.table.lock().take_withheld_decisions(requested, copied);
    }

    /// Applies the recorded end of the copied events, in a replay, and appends what the workflow decides because of it.
    pub(super) fn apply_forked(
        &mut self,
        forked: &RunForked,
        requested: &mut Vec<Event>,
    ) -> Result<(), Stuck> {
        let mut table = self.state.table.lock();
        let number = table.place.event;
        if let Some(fork) = &self.fork {
            table.forget_copied_messages(&fork.runs);
        }
        table.fork(forked);
        drop(table);
        let returned = self.fork.as_mut().and_then(|fork| fork.returned.take());
        // That of the other run is copied as well, if it is a fork.
        drop(self.fork.take_if(|fork| number >= fork.origin.at));
        self.continue_after_fork(returned, requested)
    }

    fn continue_after_fork(
        &mut self,
        returned: Option<Result<Payload, Error>>,
        requested: &mut Vec<Event>,
    ) -> Result<(), Stuck> {
        let must_poll = match returned {
            Some(result) => self.returned(result, requested)?,
            // It no longer waits for children of the other run.
            None => self.result.is_some(),
        };
        if must_poll { self.poll_until_pending(requested) } else { Ok(()) }
    }

    /// Records the end of the copied events, and what follows from it. Does nothing if it is recorded.
    pub(crate) fn fork(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        let Some(fork) = self.fork.take() else { return Ok(()) };
        let PendingFork { origin, next_op, runs, returned, .. } = *fork;
        let mut table = self.state.table.lock();
        table.set_event_number(events.len());
        table.forget_copied_messages(&runs);
        let (renews, own): (Vec<_>, Vec<_>) =
            table.renewed_waits().into_iter().partition(|wait| wait.op < next_op);
        let restarts = table.runs_of_copies(next_op);
        let forked = RunForked { of: origin.of, next_op, restarts, renews };
        table.fork(&forked);
        if let Some(unrecorded) = &mut self.unrecorded {
            own.iter().for_each(|wait| renew_request(&mut unrecorded.events, wait));
            own.iter().for_each(|wait| table.renew_wait(wait));
            table.set_turn_of_loops_since(next_op);
        }
        let is_started = |op: &OpNumber| !origin.outputs.contains(&op.0);
        let ops = forked.restarts.iter().map(|restarted| restarted.op).filter(is_started);
        table.start_runs_again(&ops.collect::<Vec<_>>());
        let restarts: Vec<_> = forked.restarts.iter().map(|restarted| restarted.run).collect();
        drop(table);
        events.push(Event::RunForked(Box::new(forked)));
        self.take_unrecorded_requests(events);
        self.continue_after_fork(returned, events)?;
        if self.ended.is_some() {
            self.state.table.lock().withdraw_runs(&restarts);
        }
        self.rewrite_tags();
        self.apply_follow_ups(events)
    }
}

impl OperationTable {
    /// Puts the operations into the state in which the fork begins, live and in a replay.
    pub(super) fn fork(&mut self, forked: &RunForked) {
        let copied = |op: OpNumber| op < forked.next_op;
        let open = |(op, slot): (OpNumber, &Op)| matches!(slot.phase, Phase::Open).then_some(op);
        let open: BTreeSet<OpNumber> = self.ops.iter().filter_map(open).filter(|op| copied(*op)).collect();
        // Not the open operations: a run that compensates is restored without those of its children.
        let is_started = |op: &OpNumber| forked.restarts.iter().any(|restarted| restarted.op == *op);
        self.children.retain(|op, _| !copied(*op) || is_started(op));
        self.adoption = None;
        self.at_fork = None;
        self.forget_copied_compensations(forked);
        open.iter().for_each(|op| self.renew_attempts(*op, None));
        self.set_restarted_runs(&forked.restarts);
        forked.renews.iter().for_each(|wait| self.renew_wait(wait));
        self.disturb_loops();
    }

    /// Takes the recorded values and patches of the poll in which the workflow returned, before its result is known to
    /// count: a fork withholds it. So are copied requests, and drops, if the fork has copied one of this poll: whether they
    /// are recorded depends on the result. The others stay.
    pub(super) fn take_withheld_decisions(&mut self, requested: &mut Vec<Event>, copied: &[Event]) {
        let is_copied = |dropped: &Event| copied.contains(dropped) && !requested.contains(dropped);
        let has_drops = self.decisions.iter().any(|decision| match decision {
            Decision::Dropped(event) => is_copied(event),
            Decision::Recorded(_) | Decision::Created(_) => false,
        });
        for decision in std::mem::take(&mut self.decisions) {
            match decision {
                Decision::Recorded(event) => requested.push(event),
                Decision::Dropped(event) if has_drops => {
                    if let Event::TokenClosed { op } = event {
                        self.free_closed_token(op);
                    }
                    requested.push(event);
                }
                Decision::Created(op) if self.is_request_copied(op) => requested.extend(self.request(op)),
                left => self.decisions.push(left),
            }
        }
    }

    fn is_request_copied(&self, op: OpNumber) -> bool {
        self.at_fork.as_ref().is_some_and(|fork| fork.requested.contains(&op))
    }

    /// Requests an operation that the workflow drops or cancels in the poll in which it has created it, if that request is
    /// copied. Behind the cut the poll may go another way than in the run that was forked, because what was recorded
    /// there is decided anew.
    pub(super) fn request_if_copied(&mut self, op: OpNumber) {
        if !self.is_request_copied(op) {
            return;
        }
        let is_created =
            |decision: &Decision| matches!(decision, Decision::Created(created) if *created == op);
        let Some(place) = self.decisions.iter().position(is_created) else { return };
        match self.request(op) {
            Some(event) => self.decisions[place] = Decision::Recorded(event),
            None => drop(self.decisions.remove(place)),
        }
    }

    /// New ids for the runs of copied operations that are open: queued steps and children.
    fn runs_of_copies(&self, next_op: OpNumber) -> Vec<outlast_core::RestartedRun> {
        self.new_runs(|op, slot| {
            let has_run = match &slot.kind {
                OpKind::Step(step) => step.queued.is_some(),
                OpKind::Child(_) => true,
                _ => false,
            };
            op < next_op && has_run
        })
    }

    /// Removes runs that would be started with the turn, and what would be sent to them: the run has ended in it.
    fn withdraw_runs(&mut self, runs: &[RunId]) {
        let Some(pending_outbox) = &mut self.pending_outbox else { return };
        pending_outbox.children.retain(|child| !runs.contains(&child.started.run));
        let is_left = |(run, _): &(RunId, MessageBody)| !runs.contains(run);
        let settled = pending_outbox.messages[..pending_outbox.settled_messages].iter();
        pending_outbox.settled_messages = settled.filter(|message| is_left(message)).count();
        pending_outbox.messages.retain(is_left);
    }

    /// Removes what the last copied poll would send to runs that the other run has started, and its replies. A replay does
    /// the same: it makes that poll again if the first turn of the fork was committed in part.
    fn forget_copied_messages(&mut self, runs: &BTreeSet<RunId>) {
        let Some(pending_outbox) = &mut self.pending_outbox else { return };
        pending_outbox.messages.retain(|(run, _)| !runs.contains(run));
        pending_outbox.settled_messages = 0;
        pending_outbox.replies.clear();
    }
}

/// Sets the time of a request that is not recorded yet.
fn renew_request(events: &mut [Event], wait: &RenewedWait) {
    let request = events.iter_mut().find(|event| event.is_decision() && event.op() == Some(wait.op));
    match request {
        Some(Event::TimerStarted { fire_at, .. }) => *fire_at = wait.until,
        Some(Event::HookOpened { timeout_at, .. }) => *timeout_at = Some(wait.until),
        Some(Event::ChildStarted(child)) => child.timeout_at = Some(wait.until),
        _ => {}
    }
}
