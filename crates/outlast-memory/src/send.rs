//! Sending: a message is added to the inbox once, in order, and wakes a run that no session holds.

use outlast_core::refusal::{Holder, Receiver, check_send, no_run, unreadable_by_holder};
use outlast_core::state::ready_after_send;
use outlast_core::{NewMessage, Sent, Timestamp, WorldError};

use crate::state::{Notifications, State};

impl State {
    /// Sends a message of a client. A message that the run's holder cannot read is refused.
    pub(crate) fn send_by_client(
        &mut self,
        message: NewMessage,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<Sent, WorldError> {
        let run = self.get(message.run)?;
        let holder = run.owner.and_then(|owner| self.sessions.get(&owner));
        if let Some(holder) = holder
            && !run.status.is_final()
            && !run.answers.contains_key(&message.id)
            && message.body.format() > holder.join.format
        {
            let join = &holder.join;
            let holder = Holder { host: &join.host, pid: join.pid, format: join.format };
            return Err(unreadable_by_holder(message.run, &holder, &message.body));
        }
        if !run.status.is_final() && !run.answers.contains_key(&message.id) {
            self.check_token(message.run, &message.body)?;
        }
        self.send(message, now, notifications)
    }

    /// Appends a message to the inbox of a run. Repeating it returns the same answer.
    pub(crate) fn send(
        &mut self,
        message: NewMessage,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<Sent, WorldError> {
        let id = message.run;
        let run = self.runs.get_mut(&id).ok_or_else(|| no_run(id))?;
        if let Some(sent) = run.answers.get(&message.id) {
            return Ok(Sent { is_repeated: true, ..*sent });
        }
        let unread = run.sent() - run.consumed;
        let kept = run.columns.kept + self.hook_limit_reduction;
        let (status, waits, is_cancel_requested) = (run.status, &*run.waits, run.is_cancel_requested);
        check_send(id, Receiver { status, unread, kept, waits, is_cancel_requested }, &message.body)?;
        let marks_before = run.marks;
        run.format = run.format.max(message.body.format());
        let sent = run.accept(message.id, message.body, message.headers, now);
        run.updated_at = now;
        notifications.wakes_workers = true;
        if let Some(owner) = run.owner {
            if let Some(session) = self.sessions.get_mut(&owner) {
                session.unread.insert(id);
            }
            return Ok(sent);
        }
        let at = ready_after_send(&run.awaiting(marks_before), now);
        self.set_ready_at(id, at, now, notifications);
        Ok(sent)
    }
}
