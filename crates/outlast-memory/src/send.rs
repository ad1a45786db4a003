//! Sending: messages enter the inbox once, in order, and wake a run that nobody holds.

use outlast_core::refusal::{check_send, no_run};
use outlast_core::{Message, NewMessage, Status, Timestamp, WorldError};

use crate::state::{Effects, State};

impl State {
    pub(crate) fn send(
        &mut self,
        message: NewMessage,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<u64, WorldError> {
        let id = message.run;
        let run = self.runs.get_mut(&id).ok_or_else(|| no_run(id))?;
        if let Some(position) = run.positions.get(&message.id) {
            return Ok(*position);
        }
        check_send(id, run.status, run.sent() - run.consumed, &message.body)?;
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
