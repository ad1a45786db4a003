//! What a lost worker leaves behind: details of its attempts, steps that may have crashed it, and steps that are not
//! attempted again.

use outlast_core::{Event, Failure, FailureKind, HeartbeatDetails, OpNumber};

use super::{Delivery, Fact, Live, Place, StepToAttempt, What};

impl Live<'_> {
    /// Steps that are attempted at most once, and were announced by a worker that is gone. Whether
    /// they were attempted is not known, so they are not, unless a fact tells what came of it.
    pub(super) fn unknown_outcomes(&mut self, facts: &[Fact]) -> Vec<Fact> {
        let (at, code) = (self.place.at, &self.task.session.settings.code);
        let is_known = |op| facts.iter().any(|fact| fact.again() == Some(op));
        let steps = self.machine.take_startable_once(code).into_iter().filter(|step| !is_known(step.op));
        let outcome = |step: StepToAttempt| {
            let message = "the worker was lost while it attempted the step, so the outcome is unknown; \
                           look whether it happened, since it is attempted at most once";
            let failure = Failure::new(FailureKind::Unknown, message).of_step(&*step.name, 1);
            let ended = Delivery::StepEnded { op: step.op, outcome: Err(failure) };
            Fact { at, what: What::Again(Box::new(ended)) }
        };
        steps.map(outcome).collect()
    }

    /// The run is about to be told to stop. Steps whose attempts have not begun are not being attempted at that
    /// moment: the record says so, and no attempt at them begins.
    pub(super) fn withhold_attempts(&mut self) {
        if self.attempts.is_empty() || self.machine.rules() < 2 {
            return;
        }
        for (op, is_doubtful) in self.attempts.withhold(&self.machine.shielded()) {
            self.machine.withhold_attempt(op);
            if is_doubtful {
                self.doubtful.insert(op);
            }
        }
        self.machine.set_doubtful(&self.doubtful);
    }

    /// Steps that a worker which is gone attempted when the run was cancelled. They are not attempted again.
    pub(super) fn lost_by_cancel(&self) -> Vec<Fact> {
        let at = self.place.at;
        let lost = self.machine.lost_by_cancel().into_iter();
        let ended = |(op, failure)| Delivery::StepEnded { op, outcome: Err(failure) };
        lost.map(|lost| Fact { at, what: What::Again(Box::new(ended(lost))) }).collect()
    }

    /// The world has these details of attempts that were lost with their worker.
    pub(in crate::worker) fn told_of(&mut self, details: Vec<HeartbeatDetails>) {
        if !details.is_empty() {
            self.task.session.heartbeats.claimed(&details, |op| self.machine.is_open_step(op));
            self.lost_details = details;
        }
    }

    /// Gives an attempt the details of the one that was lost with its worker.
    pub(super) fn with_lost_details(&mut self, mut step: StepToAttempt) -> StepToAttempt {
        let is_it = |lost: &HeartbeatDetails| lost.op == step.op && lost.attempt == step.attempt;
        if let Some(place) = self.lost_details.iter().position(is_it) {
            step.details = self.lost_details.swap_remove(place).details.or(step.details);
        }
        step
    }

    /// A turn was committed that says how attempts ended, and which steps were dropped.
    pub(super) fn committed(&mut self, place: Place, events: &[Event], dropped: &[OpNumber]) {
        let (session, run) = (&self.task.session, self.task.run);
        if self.place.columns.crashes > 0 {
            let dropped: Vec<_> = dropped.iter().map(|op| Event::StepDropped { op: *op }).collect();
            self.suspicion.committed(events);
            self.suspicion.committed(&dropped);
            session.set_crashes(run, place.columns.crashes);
        }
        session.heartbeats.committed(run, events, dropped);
        self.task.notes.outcomes.set_told(Vec::new());
        self.place = place;
    }
}
