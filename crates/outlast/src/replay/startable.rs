//! Which steps of a run can be attempted, and which are being attempted.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use outlast_core::{MessageId, OpNumber, Payload, Policy, Stuck, StuckReason, Timestamp};

use super::code::ReplayCode;
use super::machine::{Machine, stuck};
use super::operation_table::{Op, OpKind, OperationTable, Phase, StepOp};
use crate::authoring::registry::StepCall;
use crate::error::stuck_on_unreadable;

/// A step to attempt, with everything that the worker needs for it.
pub(crate) struct StepToAttempt {
    pub(crate) op: OpNumber,
    pub(crate) name: Arc<str>,
    pub(crate) input: Payload,
    pub(crate) policy: Policy,
    /// The number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// The details of the last recorded heartbeat.
    pub(crate) details: Option<Payload>,
    /// Rules 1: whether the run was cancelled before this attempt.
    pub(crate) is_cancelled: bool,
    /// Rules 1: whether the attempt begins even if the run is cancelled before it does.
    pub(crate) begins_after_cancel: bool,
    /// The code of a step that is written in place.
    pub(crate) call: Option<StepCall>,
    /// The message of the retry that has opened the step again.
    pub(crate) reopened_by: Option<MessageId>,
}

impl Machine {
    /// The steps that can be attempted now.
    pub(crate) fn startable(&self) -> BTreeSet<OpNumber> {
        self.state.table.lock().startable.iter().copied().collect()
    }

    /// Takes the steps that can be attempted now.
    pub(crate) fn take_startable(&mut self) -> Vec<StepToAttempt> {
        let mut table = self.state.table.lock();
        let startable = std::mem::take(&mut table.startable);
        startable.into_iter().filter_map(|op| table.start(op)).collect()
    }

    /// Takes those of the steps to attempt now that are attempted at most once.
    pub(crate) fn take_startable_once(&mut self, code: &dyn ReplayCode) -> Vec<StepToAttempt> {
        let mut table = self.state.table.lock();
        let startable = std::mem::take(&mut table.startable);
        let (once, others) = startable.into_iter().partition(|op| table.is_startable_once(*op, code));
        table.startable = others;
        let once: Vec<_> = once;
        once.into_iter().filter_map(|op| table.start(op)).collect()
    }

    /// Whether one of the steps to attempt now is attempted at most once.
    pub(crate) fn has_startable_once(&self, code: &dyn ReplayCode) -> bool {
        let table = self.state.table.lock();
        table.startable.iter().any(|op| table.is_startable_once(*op, code))
    }

    /// Why the run is stuck when the worker has no code for one of the steps to attempt now.
    pub(crate) fn missing_step(&self, code: &dyn ReplayCode) -> Option<Stuck> {
        let table = self.state.table.lock();
        let missing = table.startable.iter().find_map(|op| match table.ops.get(*op) {
            Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. })
                if step.new.call.is_none() && !code.has_step(&step.new.name) =>
            {
                Some(step.new.name.clone())
            }
            _ => None,
        })?;
        let message =
            format!("step `{missing}` is not registered with this worker; add it to `.register((…))`");
        Some(stuck(StuckReason::StepNotRegistered, message))
    }

    /// Why the turn must not be committed: it requests a step that this worker cannot attempt.
    pub(crate) fn cannot_attempt(&self, code: &dyn ReplayCode) -> Option<Stuck> {
        self.missing_step(code).or_else(|| self.unreadable_once(code))
    }

    /// Why the run is stuck when the code of an at-most-once step cannot decode the step's input. This must be found
    /// before the request is committed: afterwards another worker could not know that the step was not attempted.
    fn unreadable_once(&self, code: &dyn ReplayCode) -> Option<Stuck> {
        if self.state.rules() < 2 {
            return None;
        }
        let table = self.state.table.lock();
        let inputs = table.startable.iter().filter_map(|op| match table.ops.get(*op) {
            Some(Op { kind: OpKind::Step(step), .. }) if table.is_startable_once(*op, code) => {
                let can_read = code.can_read_input(&step.new.name).filter(|_| step.new.call.is_none())?;
                Some((step.new.name.clone(), can_read, step.input.clone()?.ok()?))
            }
            _ => None,
        });
        let inputs: Vec<_> = inputs.collect();
        drop(table);
        let codec = &**self.state.codec();
        inputs.into_iter().find_map(|(name, can_read, input)| {
            // If decoding panics, the attempt reports it.
            let error = catch_unwind(AssertUnwindSafe(|| can_read(&input, codec))).ok()?.err()?;
            let message = format!("the input of step `{name}` does not fit: {error}");
            Some(stuck_on_unreadable(error.is_coded(), message))
        })
    }

    /// Whether a failed attempt at this step may be followed by another one at `at`. A step that the workflow has
    /// cancelled may not, a shielded step always may, and others may not after a cancel or the deadline.
    pub(crate) fn may_retry(&self, op: OpNumber, at: Timestamp) -> bool {
        let table = self.state.table.lock();
        if table.is_cancelled(op) {
            return false;
        }
        let is_shielded = table.is_shielded(op);
        drop(table);
        if is_shielded {
            return true;
        }
        if self.deadline_before(op, at).is_some() {
            return false;
        }
        self.state.table.lock().cancelled_at.is_none_or(|before| op.0 >= before)
    }

    /// The deadline of the run, when another attempt at this step at `at` would be after it.
    pub(crate) fn deadline_before(&self, op: OpNumber, at: Timestamp) -> Option<Timestamp> {
        let deadline = self.deadline().filter(|deadline| at >= *deadline)?;
        (!self.state.table.lock().is_shielded(op)).then_some(deadline)
    }

    /// Marks no step as being attempted, because the worker releases the run.
    pub(crate) fn forget_attempts(&mut self) {
        self.state.table.lock().forget_attempts();
    }

    /// Marks a step as not being attempted: its attempt was prevented from beginning.
    pub(crate) fn withhold_attempt(&mut self, op: OpNumber) {
        if let Some(Op { kind: OpKind::Step(step), .. }) = self.state.table.lock().ops.get_mut(op) {
            step.attempting = false;
        }
    }

    /// Sets which steps are being attempted. A replayed machine does not know this from its history.
    pub(crate) fn set_attempting(&mut self, ops: &BTreeSet<OpNumber>) {
        self.mark_attempting(ops);
        // The end of a pause is not recorded: a step that is being attempted is no longer paused.
        self.end_pauses(ops);
    }

    pub(super) fn mark_attempting(&mut self, ops: &BTreeSet<OpNumber>) {
        let mut table = self.state.table.lock();
        for op in ops {
            if let Some(Op { kind: OpKind::Step(step), .. }) = table.ops.get_mut(*op) {
                step.attempting = true;
            }
        }
    }

    /// Ends the pauses of steps between two attempts.
    pub(crate) fn end_pauses(&mut self, ops: &BTreeSet<OpNumber>) {
        let mut table = self.state.table.lock();
        ops.iter().for_each(|op| table.end_pause(*op));
    }
}

impl OperationTable {
    /// Pauses a step whose attempt failed until `retry_at`. Returns false when it is not an open step in place.
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
        // It may still be listed from before the failed attempt.
        self.startable.retain(|startable| *startable != op);
        match step.retry_at.replace(retry_at) {
            // The end of a pause is not recorded: in a replay one pause directly follows another.
            Some(over) => drop(self.due.remove(&(over, op))),
            None => self.active -= 1,
        }
        self.due.insert((retry_at, op));
        true
    }

    /// Ends the pause of a step, so that it can be attempted.
    pub(super) fn end_pause(&mut self, op: OpNumber) {
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

    /// Whether an operation is an open step that is not paused between two attempts.
    pub(super) fn is_startable(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. }) if step.retry_at.is_none())
    }

    /// Whether an operation is an open at-most-once step that is not being attempted.
    pub(super) fn is_startable_once(&self, op: OpNumber, code: &dyn ReplayCode) -> bool {
        matches!(self.ops.get(op), Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. })
            if !step.attempting && code.is_at_most_once(&step.new.name, &step.new.policy))
    }

    /// The steps that were paused between two attempts at `at`. A step whose pause has ended since then is included
    /// until it is attempted.
    pub(super) fn pauses(&self, at: Timestamp) -> Vec<OpNumber> {
        let is_paused = |step: &StepOp| {
            step.retry_at.is_some() || (!step.attempting && step.paused_until.is_some_and(|until| until > at))
        };
        let paused = self.ops.iter().filter(|(_, slot)| {
            matches!((&slot.phase, &slot.kind), (Phase::Open, OpKind::Step(step)) if is_paused(step))
        });
        paused.map(|(op, _)| op).collect()
    }

    /// Marks all steps as not being attempted.
    pub(super) fn forget_attempts(&mut self) {
        for slot in self.ops.iter_mut() {
            if let OpKind::Step(step) = &mut slot.kind {
                step.attempting = false;
            }
        }
    }

    /// Marks a step as being attempted, and returns it for the worker.
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
            // From rules 2 on only shielded steps are attempted after a cancel.
            is_cancelled: self.rules < 2 && self.cancelled_at.is_some_and(|before| op.0 < before),
            begins_after_cancel: self.rules < 2,
            call: step.new.call.clone(),
            reopened_by: step.reopened_by,
        })
    }
}
