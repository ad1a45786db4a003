//! Reopening runs that have ended.

use outlast_core::refusal::no_run;
use outlast_core::state::{EndedRun, reopened};
use outlast_core::{Reopen, Sent, Status, Timestamp, WorldError};
use std::sync::Arc;

use crate::state::{Notifications, State};

impl State {
    /// Reopens a run that has failed or was cancelled. Repeating it returns the same answer.
    pub(crate) fn reopen(
        &mut self,
        reopen: Reopen,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<Sent, WorldError> {
        let id = reopen.message.run;
        let has_outbox = self.outboxes.has_entries_of(id);
        let run = self.runs.get_mut(&id).ok_or_else(|| no_run(id))?;
        if let Some(sent) = run.answers.get(&reopen.message.id) {
            return Ok(*sent);
        }
        let ended = EndedRun {
            status: run.status,
            marks: run.marks,
            events: run.seq,
            kept: run.columns.kept,
            continued: run.columns.continued,
            has_outbox,
        };
        run.columns = Arc::new(reopened(&ended, &reopen, now)?);
        run.forget_requests_to_stop();
        run.format = run.format.max(reopen.message.body.format());
        let message = reopen.message;
        let sent = run.accept(message.id, message.body, message.headers, now);
        run.updated_at = now;
        run.ended_at = None;
        run.wake_at = None;
        run.waits = Vec::new();
        run.preferred = None;
        self.set_status(id, Status::Pending);
        self.set_ready_at(id, Some(now), now, notifications);
        notifications.wakes_workers = true;
        Ok(sent)
    }
}
