//! What a turn does beyond its own history: children, messages to other runs, tags.

use outlast_core::refusal::{child_exists, child_refused};
use outlast_core::{
    Beyond, Headers, MessageBody, MessageId, NewChild, NewMessage, Started, Then, Timestamp, Turn,
};

use crate::state::{Effects, State};

impl State {
    /// Does it while the run is still held, so that an answer is unread when the run goes to wait.
    pub(crate) fn reach_beyond(
        &mut self,
        turn: &Turn,
        beyond: Beyond,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        for (index, child) in beyond.children.into_iter().enumerate() {
            let answer = self.start_child(child, now, effects);
            if let Some(body) = answer.filter(|_| !matches!(turn.then, Then::End(_))) {
                let id = MessageId::of_answer(turn.id, index);
                self.tell(NewMessage { id, run: turn.run, body, headers: Headers::new() }, now, effects);
            }
        }
        for message in beyond.messages {
            self.tell(message, now, effects);
        }
        if let Some(run) = self.runs.get_mut(&turn.run) {
            run.tags.extend(beyond.tags);
        }
    }

    /// Starts a child; answers what its parent is told.
    fn start_child(&mut self, child: NewChild, now: Timestamp, effects: &mut Effects) -> Option<MessageBody> {
        let NewChild { start, wants_answer } = child;
        let op = start.parent?.op;
        match self.start(start.clone(), now, effects) {
            Ok(Started { run, .. }) if wants_answer => Some(MessageBody::ChildStarted { op, run }),
            Ok(Started { is_new: true, .. }) => None,
            Ok(Started { run, .. }) => Some(MessageBody::Refused { op, failure: child_exists(&start, run) }),
            Err(error) => Some(MessageBody::Refused { op, failure: child_refused(&start, &error) }),
        }
    }

    /// Sends a message whose refusal comes to nothing: the run is gone, or has ended.
    fn tell(&mut self, message: NewMessage, now: Timestamp, effects: &mut Effects) {
        let _dropped = self.send(message, now, effects);
    }
}
