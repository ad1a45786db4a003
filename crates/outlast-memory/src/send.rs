//! Sending: messages enter the inbox once, in order, and wake a run that nobody holds.

use outlast_core::refusal::{Receiver, check_send, no_run};
use outlast_core::state::ready_after_send;
use outlast_core::{NewMessage, Sent, Timestamp, WorldError};

use crate::state::{Effects, State};

impl State {
    pub(crate) fn send(
        &mut self,
        message: NewMessage,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<Sent, WorldError> {
        let id = message.run;
        let run = self.runs.get_mut(&id).ok_or_else(|| no_run(id))?;
        if let Some(sent) = run.answers.get(&message.id) {
            return Ok(*sent);
        }
        let unread = run.sent() - run.consumed;
        let kept = run.columns.kept + self.hook_room_withheld;
        check_send(id, Receiver { status: run.status, unread, kept }, &message.body)?;
        let sent = run.accept(message.id, message.body, message.headers, now);
        run.updated_at = now;
        effects.ring = true;
        if let Some(owner) = run.owner {
            if let Some(session) = self.sessions.get_mut(&owner) {
                session.unread.insert(id);
            }
            return Ok(sent);
        }
        let at = ready_after_send(&run.awaiting(), now);
        self.line_up(id, at, now, effects);
        Ok(sent)
    }
}
