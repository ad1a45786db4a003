//! Cancel from rules 2 on: what it ends, what is refused afterwards, and what is shielded from it.
//!
//! What a cancel ends is found out once, when it is delivered, and recorded in its event: which steps are being
//! attempted at that moment is nothing that a replay could know. A replay follows the record.

use std::collections::BTreeSet;
use std::task::Poll;

use outlast_core::limits::REFUSALS_MAX;
use outlast_core::{Event, Failure, OpNumber, ParentEnd, Payload, Stuck, StuckReason, Timestamp};

use super::cell::{Cell, Op, OpKind, Phase};
use super::machine::Machine;

/// The number of an operation that was refused. No operation gets it.
pub(super) const REFUSED: OpNumber = OpNumber(u64::MAX);

/// What a run is refused since it was cancelled.
pub(super) struct Refusals {
    /// Why the run was cancelled: every refused operation fails with it.
    reason: Box<str>,
    /// How many have failed.
    pub(super) count: u64,
    /// Whether there was one too many.
    is_past_limit: bool,
}

impl Cell {
    /// The operations that a cancel ends which is delivered now, and those of them that are steps which a lost
    /// worker may have attempted. A step that is being attempted goes on; so does a queued one, since its own run
    /// is told and answers.
    pub(super) fn ended_by_cancel(&self) -> (Vec<OpNumber>, Vec<OpNumber>) {
        let ends = self.ops.iter().filter(|(_, slot)| {
            let goes_on =
                matches!(&slot.kind, OpKind::Step(step) if step.attempting || step.queued.is_some());
            matches!(slot.phase, Phase::Open) && !slot.is_shielded && !goes_on
        });
        let ends: Vec<_> = ends.map(|(op, _)| op).collect();
        let is_unsure = |op: &OpNumber| self.is_step(*op) && self.doubtful.contains(op);
        let maybe_attempted = ends.iter().copied().filter(is_unsure).collect();
        (ends, maybe_attempted)
    }

    /// From now on operations are refused, unless they are shielded.
    pub(super) fn begin_refusing(&mut self, reason: &str) {
        self.refusals = Some(Box::new(Refusals { reason: reason.into(), count: 0, is_past_limit: false }));
    }

    /// The outcome of a refused operation; none when there were too many of them.
    pub(super) fn poll_refused(&mut self) -> Poll<Result<Payload, Failure>> {
        let Some(refusals) = &mut self.refusals else { return Poll::Pending };
        if refusals.count >= REFUSALS_MAX {
            refusals.is_past_limit = true;
            return Poll::Pending;
        }
        refusals.count += 1;
        Poll::Ready(Err(Failure::cancelled(&refusals.reason)))
    }

    /// Whether the workflow goes on asking, however often it is refused.
    pub(super) fn ignores_cancel(&self) -> bool {
        self.refusals.as_ref().is_some_and(|refusals| refusals.is_past_limit)
    }

    /// Whether neither a cancel nor a deadline touches an operation.
    pub(super) fn is_shielded(&self, op: OpNumber) -> bool {
        self.ops.get(op).is_some_and(|slot| slot.is_shielded)
    }

    /// Whether no further attempt at a step may begin, since the run was cancelled.
    pub(super) fn is_last_attempt(&self, op: OpNumber) -> bool {
        self.refusals.is_some() && !self.is_shielded(op)
    }
}

impl Machine {
    /// Ends the operations that the record of a cancel names, one per poll, and passes the word on to the
    /// children and queued steps that are not shielded.
    pub(super) fn cancel_as_recorded(
        &mut self,
        reason: &str,
        ends: &[OpNumber],
        maybe_attempted: &[OpNumber],
        asked: &mut Vec<Event>,
    ) -> Result<(), Stuck> {
        let word = format!("its parent {} was cancelled: {reason}", self.state.run());
        let mut cell = self.state.cell.lock();
        if cell.cancelled_at.is_some() {
            return Ok(());
        }
        cell.cancelled_at = Some(cell.next_op);
        cell.begin_refusing(reason);
        cell.cancel_unshielded_children(&word, &[ParentEnd::Cancel, ParentEnd::Wait]);
        cell.cancel_queued(reason);
        drop(cell);
        let maybe_attempted: BTreeSet<_> = maybe_attempted.iter().copied().collect();
        let failure = |cell: &Cell, op| {
            let Some(OpKind::Step(step)) = cell.ops.get(op).map(|slot| &slot.kind) else {
                return Some(Err(Failure::cancelled(reason)));
            };
            let failure = if maybe_attempted.contains(&op) {
                Failure::maybe_attempted(reason)
            } else {
                Failure::cancelled(reason)
            };
            Some(Err(failure.of_step(&*step.new.name, step.failed)))
        };
        self.end_each(ends, failure, asked)
    }

    /// Why a run is stuck that asks for more and more after a cancel.
    pub(super) fn ignores_cancel(&self) -> Stuck {
        let message = format!(
            "run {} was cancelled, and its workflow asked for {REFUSALS_MAX} operations since, all of which \
             failed as cancelled; return the error instead of going on, and clean up with `ctx.shielded()`",
            self.state.run()
        );
        Stuck { reason: StuckReason::IgnoresCancel, message, build: String::new() }
    }

    /// The rules of the run.
    pub(crate) fn rules(&self) -> u32 {
        self.state.cell.lock().rules
    }

    /// The operations that neither a cancel nor a deadline touches.
    pub(crate) fn shielded(&self) -> BTreeSet<OpNumber> {
        let cell = self.state.cell.lock();
        cell.ops.iter().filter(|(_, slot)| slot.is_shielded).map(|(op, _)| op).collect()
    }

    /// Steps that a worker which is gone may have attempted: those that may be attempted at a moment.
    pub(crate) fn maybe_attempted(&self, now: Timestamp) -> BTreeSet<OpNumber> {
        let cell = self.state.cell.lock();
        let may_begin = |(_, slot): &(OpNumber, &Op)| {
            matches!((&slot.phase, &slot.kind), (Phase::Open, OpKind::Step(step))
                if step.queued.is_none() && step.retry_at.is_none_or(|at| at <= now))
        };
        let begun = cell.ops.iter().filter(may_begin).map(|(op, _)| op);
        begun.filter(|op| !self.is_unrecorded(*op)).collect()
    }

    /// Steps that were being attempted when the run was cancelled, by a worker that is gone, and how they end: no
    /// attempt begins after a cancel.
    pub(crate) fn lost_by_cancel(&self) -> Vec<(OpNumber, Failure)> {
        let cell = self.state.cell.lock();
        let Some(refusals) = &cell.refusals else { return Vec::new() };
        // Also one whose last pause a replay takes for not over: that it was leaves no event.
        let lost = cell.ops.iter().filter_map(|(op, slot)| match (&slot.phase, &slot.kind) {
            (Phase::Open, OpKind::Step(step))
                if !slot.is_shielded && !step.attempting && step.queued.is_none() =>
            {
                let failure = Failure::maybe_attempted(&refusals.reason);
                Some((op, failure.of_step(&*step.new.name, step.failed)))
            }
            _ => None,
        });
        lost.collect()
    }

    /// Says which steps a worker that is gone may have attempted, and nobody here has since.
    pub(crate) fn set_doubtful(&mut self, ops: &BTreeSet<OpNumber>) {
        self.state.cell.lock().doubtful.clone_from(ops);
    }

    /// Steps whose outcomes are about to be delivered: a cancel before them does not end them.
    pub(crate) fn expect_outcomes(&mut self, ops: &BTreeSet<OpNumber>) {
        if self.rules() >= 2 {
            self.set_attempting(ops);
        }
    }
}
