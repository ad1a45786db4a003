//! Compensations of a live run: what the worker adds to the [machine](crate::replay::Machine), because only it knows which
//! attempts are running.

use outlast_core::{Event, Stuck};

use super::live_run::LiveRun;
use super::turn::Draft;
use crate::replay::ReplayCode;

impl LiveRun<'_> {
    /// Continues the compensations of a run at the end of a turn. The turn that decides to compensate begins none: the
    /// decision must be recorded even if this worker does not have the code of the steps.
    pub(super) fn compensate(&mut self, draft: &mut Draft) -> Result<(), Stuck> {
        if !self.machine.is_compensating() {
            return Ok(());
        }
        // Attempts that have not begun must not begin now. Compensations are shielded.
        self.prevent_attempts();
        self.machine.settle(&mut draft.events)?;
        if begins_compensating(&draft.events) || !self.can_advance() {
            return Ok(());
        }
        if self.lacks_code_of_next() {
            // A worker without the workflow began to end the run. One with the workflow continues.
            self.is_stopping = true;
            return Ok(());
        }
        self.machine.advance(&mut draft.events)
    }

    /// Whether a turn without new facts continues the compensations of the run.
    pub(super) fn has_compensating_to_do(&self) -> bool {
        self.requested_end.is_some() || self.machine.must_settle() || self.can_advance()
    }

    fn can_advance(&self) -> bool {
        // Runs that do not compensate, which are nearly all, need no clock.
        !self.is_stopping
            && self.machine.is_compensating()
            && self.machine.can_advance(self.attempts.is_empty(), self.task.session.clock.now())
    }

    /// Whether the run stays held after a turn: something of it is running here, or can begin.
    pub(super) fn must_hold(&self) -> bool {
        if !self.machine.is_compensating() {
            // It may have adopted a child that has ended: this worker looks after the commit.
            return self.machine.is_active() || self.machine.has_adopted();
        }
        // A worker without the workflow keeps the run during pauses: it could not claim it again.
        self.machine.is_active()
            || !self.attempts.is_empty()
            || self.machine.must_settle()
            || self.machine.can_advance(true, self.task.session.clock.now())
            || self.lacks_workflow()
    }

    fn lacks_workflow(&self) -> bool {
        let (workflow, version) = self.machine.workflow();
        self.task.session.settings.code.workflow(&workflow, version).is_none()
    }

    fn lacks_code_of_next(&self) -> bool {
        let code = &self.task.session.settings.code;
        let next = self.machine.next_compensation();
        next.is_some_and(|step| !code.has_step(&step)) && self.lacks_workflow()
    }
}

/// Whether a turn decides that the run compensates, or begins again.
pub(super) fn begins_compensating(events: &[Event]) -> bool {
    let is_decision = |event: &Event| matches!(event, Event::RunCompensating { .. } | Event::RunRetrying(_));
    events.iter().any(is_decision)
}
