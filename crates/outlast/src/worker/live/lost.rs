//! Steps that a worker which is gone attempted, or may have, and that are not attempted again.

use outlast_core::{Failure, FailureKind};

use super::{Delivery, Fact, Live, StepToAttempt, What};

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
            Fact { at, what: What::Again(Delivery::StepEnded { op: step.op, outcome: Err(failure) }) }
        };
        steps.map(outcome).collect()
    }

    /// Steps that a worker which is gone attempted when the run was cancelled. They are not attempted again.
    pub(super) fn lost_by_cancel(&self) -> Vec<Fact> {
        let at = self.place.at;
        let lost = self.machine.lost_by_cancel().into_iter();
        let ended = |(op, failure)| Delivery::StepEnded { op, outcome: Err(failure) };
        lost.map(|lost| Fact { at, what: What::Again(ended(lost)) }).collect()
    }
}
