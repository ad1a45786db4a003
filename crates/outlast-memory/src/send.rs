//! Sending: messages enter the inbox once, in order, and wake a run that nobody holds.

use outlast_core::limits::INBOX_MESSAGES_MAX;
use outlast_core::{Message, NewMessage, Status, Timestamp, WorldError};

use crate::state::{Effects, State, unknown_run};

impl State {
    pub(crate) fn send(
        &mut self,
        message: NewMessage,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<u64, WorldError> {
        let id = message.run;
        let run = self.runs.get_mut(&id).ok_or_else(|| unknown_run(id))?;
        if let Some(position) = run.positions.get(&message.id) {
            return Ok(*position);
        }
        if run.status.is_final() {
            return Err(WorldError::Conflict(format!(
                "run {id} has {}; it takes no more messages",
                run.status
            )));
        }
        if run.sent() - run.consumed >= INBOX_MESSAGES_MAX && !message.body.is_exempt_from_limit() {
            return Err(WorldError::Limit(format!(
                "the inbox of run {id} is full: {INBOX_MESSAGES_MAX} messages are unread; wait until it reads them"
            )));
        }
        let position = run.sent() + 1;
        run.positions.insert(message.id, position);
        let NewMessage { id: message, body, headers, .. } = message;
        run.inbox.push(Message { id: message, position, at: now, body, headers });
        run.updated_at = now;
        effects.ring = true;
        match run.owner {
            Some(owner) => {
                if let Some(session) = self.sessions.get_mut(&owner) {
                    session.unread.insert(id);
                }
            }
            None if run.status == Status::Stuck && run.place.is_none() => {}
            None => {
                // A run that was due before stays where it is in line.
                let at = run.place.as_ref().map_or(now, |place| place.at.min(now));
                self.line_up(id, Some(at), now, effects);
            }
        }
        Ok(position)
    }
}
