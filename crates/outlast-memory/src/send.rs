//! Sending: messages enter the inbox once, in order, and wake a run that nobody holds.

use outlast_core::refusal::{check_send, no_run};
use outlast_core::{NewMessage, RunId, Status, Timestamp, WorldError};

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
        let position = run.accept(message.id, message.body, message.headers, now);
        run.updated_at = now;
        effects.ring = true;
        match run.owner {
            Some(owner) => {
                if let Some(session) = self.sessions.get_mut(&owner) {
                    session.unread.insert(id);
                }
            }
            None if run.needs_no_code() => self.wake(id, now, effects),
            None if run.status == Status::Stuck && run.place.is_none() => {}
            None if run.is_delayed(now) => {}
            None => self.wake(id, now, effects),
        }
        Ok(position)
    }

    fn wake(&mut self, id: RunId, now: Timestamp, effects: &mut Effects) {
        // A run that was due before stays where it is in line.
        let due =
            self.runs.get(&id).and_then(|run| run.place.as_ref()).map_or(now, |place| place.at.min(now));
        self.line_up(id, Some(due), now, effects);
    }
}
