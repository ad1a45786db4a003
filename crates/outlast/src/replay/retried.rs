//! A run that had ended and is open again.
//!
//! The machine was replayed up to the cut point. The turn that retries the run begins with `run_retried`, which puts the
//! open operations into the state in which they begin again; then the outcomes and payloads that are recorded again are
//! delivered like new ones. A later replay skips everything between the cut point and `run_retried`, and applies that
//! event in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outlast_core::{
    AdoptableChild, ChildStarted, Event, MessageId, OpNumber, Outcome, RenewedWait, RestartedRun,
    RetryRequest, RunId, RunRetried, Stuck, Timestamp,
};

use super::delivery::Delivery;
use super::hooks::SentPayload;
use super::machine::Machine;
use super::operation_table::{FireTime, Op, OpKind, OperationTable, Phase};

/// A retry of a run that no turn has recorded yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingRetry {
    pub(crate) request: Arc<RetryRequest>,
    /// The message of the request, and who sent it.
    pub(crate) message: MessageId,
    pub(crate) actor: Option<String>,
    /// The number of the next operation.
    pub(crate) next_op: OpNumber,
    /// What is recorded again, in order, with the times of their turns.
    pub(crate) again: Vec<(Timestamp, Event)>,
    /// The children with keys that can be adopted.
    pub(crate) children: Vec<ChildStarted>,
    pub(crate) adoptable: Vec<AdoptableChild>,
    /// The queued steps that had ended before the run, which has not read that. They are not started again.
    pub(crate) unread_ends: BTreeSet<OpNumber>,
}

impl PendingRetry {
    /// The steps that have ended: their outcomes are recorded again, or unread.
    fn ended_steps(&self) -> Vec<OpNumber> {
        let again = self.again.iter().filter_map(|(_, event)| ended_step(event));
        again.chain(self.unread_ends.iter().copied()).collect()
    }
}

impl Machine {
    /// Opens the run again, and appends the events. The machine is in its state at the cut point.
    pub(crate) fn retry(&mut self, retry: &PendingRetry, events: &mut Vec<Event>) -> Result<(), Stuck> {
        let adoptable = self.adoptable(retry);
        let mut table = self.state.table.lock();
        table.set_event_number(events.len());
        let RetryRequest { from, reopens, restarts, tokens, deadline, reason, .. } = &*retry.request;
        let retried = RunRetried {
            from: *from,
            reopens: *reopens,
            next_op: retry.next_op,
            restarts: table.runs_to_restart(restarts, &retry.ended_steps()),
            renews: table.renewed_waits(),
            adoptable,
            deadline: *deadline,
            message: retry.message,
            reason: reason.clone(),
            actor: retry.actor.clone(),
        };
        let restarts: Vec<_> = retried.restarts.iter().map(|restarted| restarted.op).collect();
        drop(table);
        let event = Event::RunRetried(Box::new(retried));
        events.push(event.clone());
        self.apply(&event, events)?;
        let mut table = self.state.table.lock();
        table.start_runs_again(&restarts);
        tokens.iter().for_each(|op| table.take_again(OpNumber(*op)));
        drop(table);
        for delivery in retry.again.iter().flat_map(|(at, event)| deliveries(event, *at)) {
            self.deliver(delivery, events)?;
        }
        Ok(())
    }

    /// The operations whose runs a retry will replace by new ones.
    pub(crate) fn replaced_by(&self, retry: &PendingRetry) -> BTreeSet<OpNumber> {
        let table = self.state.table.lock();
        let restarts = table.runs_to_restart(&retry.request.restarts, &retry.ended_steps());
        restarts.into_iter().map(|restarted| restarted.op).collect()
    }

    /// Whether an operation is a queued step that has not ended.
    pub(crate) fn is_queued_step(&self, op: OpNumber) -> bool {
        self.state.table.lock().is_queued(op)
    }

    /// Whether a retry has replaced runs that operations awaited.
    pub(crate) fn has_replaced_runs(&self) -> bool {
        !self.state.table.lock().replaced_runs.is_empty()
    }

    /// The run that an operation awaits since a retry has replaced another one; `None` if none was replaced, or the
    /// operation has ended.
    pub(crate) fn replacing_run(&self, op: OpNumber) -> Option<RunId> {
        let table = self.state.table.lock();
        let child = table.children.get(&op).filter(|_| table.replaced_runs.contains(&op));
        child.map(|child| child.run)
    }

    fn adoptable(&self, retry: &PendingRetry) -> Vec<AdoptableChild> {
        let codec = self.state.codec();
        // An input that cannot be decoded is that of no new request.
        let children = retry.children.iter().filter_map(|child| {
            let plain = codec.decode(child.input.clone()).ok()?;
            Some(AdoptableChild::new(child, &plain))
        });
        children.chain(retry.adoptable.iter().cloned()).collect()
    }

    /// The children that open operations have adopted.
    pub(crate) fn adopted_children(&self) -> Vec<(OpNumber, RunId)> {
        let table = self.state.table.lock();
        let Some(adoption) = &table.adoption else { return Vec::new() };
        let child = |op: &OpNumber| Some((*op, table.children.get(op)?.run));
        adoption.adopted.values().filter_map(child).collect()
    }

    /// Whether a child was adopted since this was called last: it may have ended already.
    pub(crate) fn take_adopted(&self) -> bool {
        let mut table = self.state.table.lock();
        table.adoption.as_mut().is_some_and(|adoption| std::mem::take(&mut adoption.is_new))
    }

    /// Whether a child was adopted that may have ended already, and the worker has not looked.
    pub(crate) fn has_adopted(&self) -> bool {
        let table = self.state.table.lock();
        let is_open = |op: &OpNumber| table.children.contains_key(op);
        table
            .adoption
            .as_ref()
            .is_some_and(|adoption| adoption.is_new && adoption.adopted.values().any(is_open))
    }

    /// The children that open operations await, except those of these operations, and queued steps.
    pub(crate) fn awaited_children(&self, except: &[u64]) -> Vec<(OpNumber, RunId)> {
        let table = self.state.table.lock();
        let open = table.ops.iter().filter_map(|(op, slot)| match (&slot.phase, &slot.kind) {
            (Phase::Open, OpKind::Child(child)) if !except.contains(&op.0) => Some((op, child.run)),
            _ => None,
        });
        open.collect()
    }
}

/// The children with keys that a retry has left behind.
#[derive(Default)]
pub(super) struct Adoption {
    /// Those that no operation has requested again.
    adoptable: Vec<AdoptableChild>,
    /// The operations that have adopted a child, by those that started it.
    adopted: BTreeMap<OpNumber, OpNumber>,
    /// Whether the worker has yet to look whether an adopted child has ended.
    is_new: bool,
}

impl OperationTable {
    /// The child that an operation adopts instead of starting one.
    pub(super) fn adopt(
        &mut self,
        op: OpNumber,
        is_adopted: impl Fn(&AdoptableChild) -> bool,
    ) -> Option<RunId> {
        let adoption = self.adoption.as_mut()?;
        let found = adoption.adoptable.iter().position(is_adopted)?;
        let child = adoption.adoptable.swap_remove(found);
        adoption.adopted.insert(child.op, op);
        adoption.is_new = true;
        Some(child.run)
    }

    /// The operation that awaits the child that this operation has started.
    pub(super) fn awaiting_operation(&self, op: OpNumber) -> OpNumber {
        self.adoption.as_ref().and_then(|adoption| adoption.adopted.get(&op).copied()).unwrap_or(op)
    }

    /// The runs that are started again, with their new ids: those of open queued steps except the `ended` ones, and the
    /// children of these operations.
    fn runs_to_restart(&self, children: &[u64], ended: &[OpNumber]) -> Vec<RestartedRun> {
        self.new_runs(|op, slot| match &slot.kind {
            OpKind::Step(step) => step.queued.is_some() && !ended.contains(&op),
            OpKind::Child(_) => children.contains(&op.0),
            _ => false,
        })
    }

    /// New ids for the runs of open operations.
    pub(super) fn new_runs(&self, is_restarted: impl Fn(OpNumber, &Op) -> bool) -> Vec<RestartedRun> {
        // Not the same ids as before, even if no time has passed.
        let family = RunId::from_bits(self.run.bits() ^ u128::from(self.place.event));
        let is_open = |slot: &Op| matches!(slot.phase, Phase::Open);
        let ops = self.ops.iter().filter(|(op, slot)| is_open(slot) && is_restarted(*op, slot));
        let ops = ops.map(|(op, _)| op);
        let run = |op: OpNumber| RunId::of_child(family, op.0, self.now, self.rules);
        ops.map(|op| RestartedRun { op, run: run(op) }).collect()
    }

    /// Puts the operations into the state in which they begin again, live and in a replay.
    pub(super) fn reopen(&mut self, retried: &RunRetried) {
        self.next_op = self.next_op.max(retried.next_op.0);
        self.deadline = retried.deadline;
        if !retried.adoptable.is_empty() {
            self.adoption.get_or_insert_default().adoptable.extend(retried.adoptable.iter().cloned());
        }
        self.renew_attempts(retried.reopens, Some(retried.message));
        self.set_restarted_runs(&retried.restarts);
        self.replaced_runs.extend(retried.restarts.iter().map(|restarted| restarted.op));
        retried.renews.iter().for_each(|wait| self.renew_wait(wait));
    }

    /// Sets the runs that open operations await from now on.
    pub(super) fn set_restarted_runs(&mut self, restarts: &[RestartedRun]) {
        for RestartedRun { op, run } in restarts {
            if let Some(child) = self.children.get_mut(op) {
                child.run = *run;
            }
            match self.ops.get_mut(*op).map(|slot| &mut slot.kind) {
                Some(OpKind::Child(child)) => child.run = *run,
                Some(OpKind::Step(step)) => {
                    if let Some(queued) = &mut step.queued {
                        queued.run = *run;
                    }
                }
                _ => {}
            }
        }
    }

    /// Gives a step all its attempts again. `message` is that of the retry of the run, if it was retried.
    pub(super) fn renew_attempts(&mut self, op: OpNumber, message: Option<MessageId>) {
        self.end_pause(op);
        if let Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. }) = self.ops.get_mut(op) {
            (step.failed, step.details, step.paused_until) = (0, None, None);
            step.reopened_by = message;
        }
    }

    /// The open waits with their full time from now on. A timer for a certain time keeps it.
    pub(super) fn renewed_waits(&self) -> Vec<RenewedWait> {
        let full = |slot: &Op| match (&slot.phase, &slot.kind) {
            (Phase::Open, OpKind::Timer { due: FireTime::After(_), started_at, fire_at }) => {
                Some(fire_at.since(*started_at))
            }
            (Phase::Open, OpKind::Hook { timeout, timeout_at: Some(_), .. }) => *timeout,
            (Phase::Open, OpKind::Child(child)) => child.timeout_at.and(child.timeout),
            _ => None,
        };
        let waits = self.ops.iter().filter_map(|(op, slot)| Some((op, full(slot)?)));
        waits.map(|(op, full)| RenewedWait { op, until: self.now.plus(full) }).collect()
    }

    /// Sets the time at which an open wait is due.
    pub(super) fn renew_wait(&mut self, &RenewedWait { op, until }: &RenewedWait) {
        let now = self.now;
        let Some(Op { phase: Phase::Open, kind, .. }) = self.ops.get_mut(op) else { return };
        let before = match kind {
            OpKind::Timer { started_at, fire_at, .. } => {
                *started_at = now;
                Some(std::mem::replace(fire_at, until))
            }
            OpKind::Hook { timeout_at, .. } => timeout_at.replace(until),
            OpKind::Child(child) => child.timeout_at.replace(until),
            OpKind::Step(_) | OpKind::Token(_) => return,
        };
        if let Some(before) = before {
            self.due.remove(&(before, op));
        }
        self.due.insert((until, op));
    }
}

/// The step that ends with an event.
fn ended_step(event: &Event) -> Option<OpNumber> {
    match event {
        Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } => Some(*op),
        _ => None,
    }
}

/// What is delivered again for a recorded event.
fn deliveries(event: &Event, at: Timestamp) -> Vec<Delivery> {
    let one = match event.clone() {
        Event::StepCompleted { op, output } => Delivery::StepEnded { op, outcome: Ok(output) },
        Event::StepFailed { op, failure } => Delivery::StepEnded { op, outcome: Err(failure) },
        Event::StepRetried { op, attempt, failure, retry_at, details } => {
            Delivery::StepRetried { op, attempt, failure, retry_at, details }
        }
        Event::TimerFired { op } => Delivery::Timer { op },
        Event::TimerWoken { message, ops, actor } => {
            let wake =
                |op| Delivery::Wake { message, op: Some(op), actor: actor.clone(), at: Timestamp::NEVER };
            return ops.into_iter().map(wake).collect();
        }
        Event::HookReceived { name, message, payload, headers, at: accepted, to, .. } => {
            let at = accepted.unwrap_or(at);
            Delivery::Hook(SentPayload { name, message, payload, headers, at, to })
        }
        Event::ChildCompleted { op, output } => {
            Delivery::ChildEnded { op, outcome: Outcome::Completed(output) }
        }
        Event::ChildFailed { op, failure } => Delivery::ChildEnded { op, outcome: Outcome::Failed(failure) },
        Event::ChildCancelled { op, failure } => {
            Delivery::ChildEnded { op, outcome: Outcome::Cancelled(failure) }
        }
        Event::ChildDetached { op, run } => Delivery::ChildDetached { op, run },
        _ => return Vec::new(),
    };
    vec![one]
}
