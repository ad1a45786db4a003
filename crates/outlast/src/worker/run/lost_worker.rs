//! Steps that a lost worker may have attempted: which are not attempted again, which may have crashed the worker, and
//! the heartbeat details of their attempts.

use outlast_core::{Event, Failure, FailureKind, HeartbeatDetails, OpNumber};

use super::fact::{Fact, FactKind};
use super::live_run::LiveRun;
use super::position::RunPosition;
use crate::replay::{Delivery, StepToAttempt};

impl LiveRun<'_> {
    /// The failures of steps that are attempted at most once and that a lost worker has announced. It is not known
    /// whether they were attempted, so they fail, unless their outcome is among the facts.
    pub(super) fn unknown_outcomes(&mut self, facts: &[Fact]) -> Vec<Fact> {
        let (at, code) = (self.position.at, &*self.task.session.settings.code);
        let is_known = |op| facts.iter().any(|fact| fact.recovered_step() == Some(op));
        let steps = self.machine.take_startable_once(code).into_iter().filter(|step| !is_known(step.op));
        let outcome = |step: StepToAttempt| {
            let message = "the worker was lost while it attempted the step, so the outcome is unknown; \
                           check whether it had its effect, since it is attempted at most once";
            let failure = Failure::new(FailureKind::Unknown, message).of_step(&*step.name, 1);
            let ended = Delivery::StepEnded { op: step.op, outcome: Err(failure) };
            Fact { at, kind: FactKind::RecoveredOutcome(Box::new(ended)) }
        };
        steps.map(outcome).collect()
    }

    /// Prevents attempts that have not begun from beginning, because the run is about to be cancelled: the cancel is
    /// recorded with the steps that are being attempted at that time.
    pub(super) fn prevent_attempts(&mut self) {
        if self.attempts.is_empty() || self.machine.rules() < 2 {
            return;
        }
        for (op, is_maybe_attempted) in self.attempts.prevent(&self.machine.shielded()) {
            self.machine.withhold_attempt(op);
            if is_maybe_attempted {
                self.maybe_attempted.insert(op);
            }
        }
        self.machine.set_maybe_attempted(&self.maybe_attempted);
    }

    /// The failures of steps that a lost worker attempted when the run was cancelled, unless their outcomes are among the
    /// facts. They are not attempted again.
    pub(super) fn lost_when_cancelled(&self, facts: &[Fact]) -> Vec<Fact> {
        let lost = self.machine.lost_when_cancelled();
        if lost.is_empty() {
            return Vec::new();
        }
        let (at, known) = (self.position.at, Fact::outcomes_of(facts));
        let lost = lost.into_iter().filter(|(op, _)| !known.contains(op));
        let ended = |(op, failure)| Delivery::StepEnded { op, outcome: Err(failure) };
        lost.map(|lost| Fact { at, kind: FactKind::RecoveredOutcome(Box::new(ended(lost))) }).collect()
    }

    /// Sets the heartbeat details that the world has of attempts that were lost with their worker.
    pub(in crate::worker) fn set_lost_details(&mut self, details: Vec<HeartbeatDetails>) {
        if !details.is_empty() {
            self.task.session.heartbeats.add_claimed(&details, |op| self.machine.is_open_step(op));
            self.lost_details = details;
        }
    }

    /// Adds the heartbeat details of the attempt that was lost with its worker.
    pub(super) fn with_lost_details(&mut self, mut step: StepToAttempt) -> StepToAttempt {
        let is_same = |lost: &HeartbeatDetails| lost.op == step.op && lost.attempt == step.attempt;
        if let Some(index) = self.lost_details.iter().position(is_same) {
            step.details = self.lost_details.swap_remove(index).details.or(step.details);
        }
        step
    }

    /// Updates the run after a commit. `events` are the outcomes of attempts in the turn.
    pub(super) fn apply_commit(&mut self, position: RunPosition, events: &[Event], dropped: &[OpNumber]) {
        let (session, run) = (&self.task.session, self.task.run);
        if self.position.columns.crashes > 0 {
            let dropped: Vec<_> = dropped.iter().map(|op| Event::StepDropped { op: *op }).collect();
            self.crash_suspects.committed(events);
            self.crash_suspects.committed(&dropped);
            session.set_crashes(run, position.columns.crashes);
        }
        session.heartbeats.outcomes_committed(run, events, dropped);
        self.task.mailbox.outcomes.set_delivered(Vec::new());
        self.position = position;
    }
}
