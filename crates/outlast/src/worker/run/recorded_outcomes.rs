//! Outcomes that attempts at transactional steps have recorded in the run's own inbox.
//!
//! The worker that made the attempt knows the message before it reads the inbox. It becomes a fact like any other
//! message: in the order of positions, and once, whether the attempt's end or the message arrives first.

use super::exit::Exit;
use super::fact::{Fact, attempt_of};
use super::live_run::{LiveRun, read_inbox};
use crate::worker::attempts::attempt_end::AttemptEnd;
use outlast_core::MessageBody;

impl LiveRun<'_> {
    /// Accepts the end of an attempt. Its outcome is a fact, unless the attempt has recorded it in the inbox.
    pub(super) fn accept_end(&mut self, mut end: AttemptEnd, facts: &mut Vec<Fact>) {
        match end.recorded.take() {
            None => facts.push(Fact::attempt(end)),
            Some(message) => {
                if let MessageBody::Attempted { events } = &message.body {
                    self.outcomes_in_inbox.extend(events.iter().filter_map(attempt_of));
                }
                self.recorded_outcomes.push(*message);
            }
        }
    }

    /// Accepts the end of an attempt at a time when no facts are taken.
    pub(super) fn accept_end_later(&mut self, end: AttemptEnd) {
        let mut facts = std::mem::take(&mut self.arrived_during_commit);
        self.accept_end(end, &mut facts);
        self.arrived_during_commit = facts;
    }

    /// Turns the recorded outcomes into facts, after the messages that are before them in the inbox.
    pub(super) async fn accept_recorded(&mut self, facts: &mut Vec<Fact>) -> Result<(), Exit> {
        let mut recorded = std::mem::take(&mut self.recorded_outcomes);
        recorded.sort_by_key(|message| message.position);
        if recorded.last().is_some_and(|last| last.position > self.read_position + recorded.len() as u64) {
            let inbox = read_inbox(&self.task.session, self.task.run, self.read_position).await?;
            self.accept_messages(inbox, facts);
        }
        // Those that were read are not accepted again. If there are too many messages before one of them, the claim loop
        // delivers it later.
        self.accept_messages(recorded, facts);
        Ok(())
    }
}
