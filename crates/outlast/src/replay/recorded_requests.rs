//! Requests that are recorded: the recorded parameters replace those of the code.

use outlast_core::Event;

use super::operation_table::{OpKind, OperationTable, Phase};

impl OperationTable {
    /// Replaces the parameters of a request with the recorded ones, which are authoritative even if the code has
    /// changed.
    pub(super) fn apply_recorded_request(&mut self, event: &Event) {
        match event {
            Event::ChildStarted(child) => return self.apply_recorded_child(child),
            Event::TokenRequested(requested) => return self.apply_recorded_token(requested),
            Event::StepStarted { op, input, queued, is_transactional, .. } => {
                self.note_event(event);
                return self.apply_recorded_step(*op, Some((input, *is_transactional)), queued.as_deref());
            }
            Event::CompensationStarted { op, queued, .. } => {
                return self.apply_recorded_step(*op, None, queued.as_deref());
            }
            Event::TagsSet { tags, .. } => return self.tags.extend(tags.clone()),
            _ => {}
        }
        let now = self.now;
        let Some(slot) = event.op().and_then(|op| self.ops.get_mut(op)) else { return };
        match (event, &mut slot.kind) {
            (Event::TimerStarted { op, fire_at: recorded }, OpKind::Timer { fire_at, started_at, .. }) => {
                *started_at = now;
                self.due.remove(&(*fire_at, *op));
                self.due.insert((*recorded, *op));
                *fire_at = *recorded;
            }
            (Event::HookOpened { op, timeout_at: recorded, .. }, OpKind::Hook { timeout_at, .. }) => {
                if let Some(at) = timeout_at.take() {
                    self.due.remove(&(at, *op));
                }
                *timeout_at = *recorded;
                // A kept payload may have ended the hook already.
                if matches!(slot.phase, Phase::Open) {
                    self.due.extend(recorded.map(|at| (at, *op)));
                }
            }
            _ => {}
        }
    }
}
