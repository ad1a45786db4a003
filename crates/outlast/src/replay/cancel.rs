//! Cancel from rules 2 on: which operations it ends, which are refused afterwards, and which are shielded.
//!
//! The operations that a cancel ends are determined once, when it is delivered, and recorded in its event. They depend
//! on which steps are being attempted at that time, which a replay cannot know. A replay applies the record.

use std::collections::BTreeSet;
use std::task::Poll;

use outlast_core::limits::REFUSALS_MAX;
use outlast_core::{
    CANCELLED_BY_WORKFLOW, Event, Failure, OpNumber, ParentEnd, Payload, Stuck, StuckReason, Timestamp,
};

use super::machine::Machine;
use super::operation_table::{Op, OpKind, OperationTable, Phase};

/// The number of a refused operation. No operation in the table has it.
pub(super) const REFUSED: OpNumber = OpNumber(u64::MAX);

/// The refused operations since a run was cancelled.
pub(super) struct Refusals {
    /// Why the run was cancelled; every refused operation fails with this reason.
    reason: Box<str>,
    /// The number of refused operations that the workflow has polled.
    pub(super) count: u64,
    /// Whether the workflow exceeded the limit.
    is_past_limit: bool,
}

impl OperationTable {
    /// The operations that a cancel ends if it is delivered now, and those steps among them that a lost worker may have
    /// attempted. A step that is being attempted continues. So does a queued step: its run receives a cancel of its own
    /// and reports its outcome.
    pub(super) fn ended_by_cancel(&self) -> (Vec<OpNumber>, Vec<OpNumber>) {
        let ends = self.ops.iter().filter(|(_, slot)| {
            // The answer to a request of a token is awaited, so that the token is not taken unnoticed.
            let continues = match &slot.kind {
                OpKind::Step(step) => step.attempting || step.queued.is_some(),
                OpKind::Token(_) => true,
                _ => false,
            };
            matches!(slot.phase, Phase::Open) && !slot.is_shielded && !continues
        });
        let ends: Vec<_> = ends.map(|(op, _)| op).collect();
        let is_maybe_attempted = |op: &OpNumber| self.is_step(*op) && self.maybe_attempted.contains(op);
        let maybe_attempted = ends.iter().copied().filter(is_maybe_attempted).collect();
        (ends, maybe_attempted)
    }

    /// Refuses operations from now on, unless they are shielded.
    pub(super) fn begin_refusing(&mut self, reason: &str) {
        self.refusals = Some(Box::new(Refusals { reason: reason.into(), count: 0, is_past_limit: false }));
    }

    /// Why the run was cancelled, if it was; from rules 2 on.
    pub(super) fn cancel_reason(&self) -> Option<&str> {
        self.refusals.as_ref().map(|refusals| &*refusals.reason)
    }

    /// The outcome of a refused operation. It stays pending when the limit is exceeded, so that the turn ends.
    pub(super) fn poll_refused(&mut self) -> Poll<Result<Payload, Failure>> {
        let Some(refusals) = &mut self.refusals else { return Poll::Pending };
        if refusals.count >= REFUSALS_MAX {
            refusals.is_past_limit = true;
            return Poll::Pending;
        }
        refusals.count += 1;
        Poll::Ready(Err(Failure::cancelled(&refusals.reason)))
    }

    /// Whether the workflow has requested more operations after a cancel than the limit allows.
    pub(super) fn ignores_cancel(&self) -> bool {
        self.refusals.as_ref().is_some_and(|refusals| refusals.is_past_limit)
    }

    /// Whether an operation is protected from a cancel and the deadline.
    pub(super) fn is_shielded(&self, op: OpNumber) -> bool {
        self.ops.get(op).is_some_and(|slot| slot.is_shielded)
    }

    /// Whether no further attempt at a step may begin, because the run or the step was cancelled.
    pub(super) fn is_last_attempt(&self, op: OpNumber) -> bool {
        self.is_cancelled(op) || (self.refusals.is_some() && !self.is_shielded(op))
    }
}

impl Machine {
    /// Ends the operations that the event of a cancel names, one per poll, and cancels the children and queued steps
    /// that are not shielded.
    pub(super) fn cancel_as_recorded(
        &mut self,
        reason: &str,
        ends: &[OpNumber],
        maybe_attempted: &[OpNumber],
        requested: &mut Vec<Event>,
    ) -> Result<(), Stuck> {
        let child_reason = format!("its parent {} was cancelled: {reason}", self.state.run());
        let mut table = self.state.table.lock();
        if table.cancelled_at.is_some() {
            return Ok(());
        }
        table.cancelled_at = Some(table.next_op);
        table.begin_refusing(reason);
        table.cancel_unshielded_children(&child_reason, &[ParentEnd::Cancel, ParentEnd::Wait]);
        table.cancel_queued(reason);
        drop(table);
        let maybe_attempted: BTreeSet<_> = maybe_attempted.iter().copied().collect();
        let failure = |table: &OperationTable, op| {
            let Some(OpKind::Step(step)) = table.ops.get(op).map(|slot| &slot.kind) else {
                return Some(Err(Failure::cancelled(reason)));
            };
            let failure = if maybe_attempted.contains(&op) {
                Failure::maybe_attempted(reason)
            } else {
                Failure::cancelled(reason)
            };
            Some(Err(failure.of_step(&*step.new.name, step.failed)))
        };
        self.end_each(ends, failure, requested)
    }

    /// Why a run is stuck that requests too many operations after a cancel.
    pub(super) fn ignores_cancel(&self) -> Stuck {
        let message = format!(
            "run {} was cancelled, and its workflow requested {REFUSALS_MAX} operations since, all of which \
             failed as cancelled; return the error instead of continuing, and clean up with `ctx.shielded()`",
            self.state.run()
        );
        Stuck::new(StuckReason::IgnoresCancel, message)
    }

    /// The rules of the run.
    pub(crate) fn rules(&self) -> u32 {
        self.state.table.lock().rules
    }

    /// The shielded operations.
    pub(crate) fn shielded(&self) -> BTreeSet<OpNumber> {
        let table = self.state.table.lock();
        table.ops.iter().filter(|(_, slot)| slot.is_shielded).map(|(op, _)| op).collect()
    }

    /// The steps that a lost worker may have attempted by `now`. Transactional steps are not among them: an attempt of a
    /// lost worker had no effect, unless its outcome is in the inbox.
    pub(crate) fn maybe_attempted(&self, now: Timestamp) -> BTreeSet<OpNumber> {
        let table = self.state.table.lock();
        let may_begin = |(_, slot): &(OpNumber, &Op)| {
            matches!((&slot.phase, &slot.kind), (Phase::Open, OpKind::Step(step))
                if step.queued.is_none() && step.retry_at.is_none_or(|at| at <= now)
                    && !step.new.policy.is_transactional)
        };
        let begun = table.ops.iter().filter(may_begin).map(|(op, _)| op);
        begun.filter(|op| !self.is_unrecorded(*op)).collect()
    }

    /// The steps that a lost worker was attempting when the run or the step was cancelled, each with its failure. They
    /// are not attempted again, because no attempt begins after a cancel.
    pub(crate) fn lost_when_cancelled(&self) -> Vec<(OpNumber, Failure)> {
        let table = self.state.table.lock();
        let reason_of = |slot: &Op| match &table.refusals {
            Some(refusals) if !slot.is_shielded => Some(refusals.reason.clone()),
            _ => slot.is_cancelled.then(|| CANCELLED_BY_WORKFLOW.into()),
        };
        // Includes steps that are paused according to the replay, because the end of a pause is not recorded.
        let lost = table.ops.iter().filter_map(|(op, slot)| match (&slot.phase, &slot.kind) {
            (Phase::Open, OpKind::Step(step)) if !step.attempting && step.queued.is_none() => {
                let reason = reason_of(slot)?;
                // Nobody has attempted the steps of a fork that no worker has continued.
                let failure = match step.new.policy.is_transactional || self.has_pending_fork() {
                    true => Failure::cancelled(&reason),
                    false => Failure::maybe_attempted(&reason),
                };
                Some((op, failure.of_step(&*step.new.name, step.failed)))
            }
            _ => None,
        });
        let lost = lost.filter(|(op, _)| !table.cancelled_steps.contains(op));
        lost.collect()
    }

    /// Sets which steps a lost worker may have attempted and this worker has not attempted since.
    pub(crate) fn set_maybe_attempted(&mut self, ops: &BTreeSet<OpNumber>) {
        self.state.table.lock().maybe_attempted.clone_from(ops);
    }

    /// Marks the steps whose outcomes are delivered next, so that a cancel before them does not end them. Under rules 1 the
    /// cancel of a run ends steps that are paused between attempts.
    pub(crate) fn expect_outcomes(&mut self, ops: &BTreeSet<OpNumber>) {
        self.mark_attempting(ops);
        if self.rules() >= 2 {
            self.end_pauses(ops);
        }
    }
}
