//! What a lost worker leaves behind: details of its attempts, and steps that may have crashed it.

use outlast_core::{Event, HeartbeatDetails, OpNumber};

use super::{Live, Place};
use crate::replay::StepToAttempt;

impl Live<'_> {
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
        session.heartbeats.committed(run, events);
        self.place = place;
    }
}
