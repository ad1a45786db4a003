//! The model's outboxes: what turns do to other runs is done with the commit, or later.

use std::collections::VecDeque;

use outlast_core::refusal::{child_exists, child_refused};
use outlast_core::{
    Headers, MessageBody, MessageId, NewChild, NewMessage, Outbox, RunId, SessionId, Started, Then,
    Timestamp, Turn,
};

use super::runs::{Model, Refusal};

/// What turns have left to be done to other runs.
#[derive(Debug, Default)]
pub(super) struct Outboxes {
    /// Whether that is done by deliveries. Otherwise it is done with the commit.
    pub(super) are_deferred: bool,
    /// In the order of the commits.
    left: VecDeque<Entry>,
    /// The run whose entry was applied last: each has its turn.
    last: Option<RunId>,
}

#[derive(Debug)]
struct Entry {
    source: RunId,
    what: What,
}

#[derive(Debug)]
enum What {
    Start(Box<NewChild>),
    Tell(Box<NewMessage>),
}

impl Outboxes {
    /// Whether something is left to be done of what a run asked for.
    pub(super) fn has(&self, source: RunId) -> bool {
        self.left.iter().any(|entry| entry.source == source)
    }

    /// The first entry of the run that comes next.
    fn pop(&mut self) -> Option<Entry> {
        let sources = || self.left.iter().map(|entry| entry.source);
        let behind = sources().filter(|source| self.last.is_none_or(|last| *source > last)).min();
        let next = behind.or_else(|| sources().min())?;
        self.last = Some(next);
        let place = self.left.iter().position(|entry| entry.source == next)?;
        self.left.remove(place)
    }
}

impl Model {
    /// Does what a turn asks of other runs, or leaves it for later. Its tags are its own run's.
    pub(super) fn post(&mut self, turn: &Turn, outbox: Outbox, now: Timestamp) {
        let source = turn.run;
        let children = outbox.children.into_iter().map(|child| What::Start(Box::new(child)));
        let messages = outbox.messages.into_iter().map(|message| What::Tell(Box::new(message)));
        let entries: Vec<_> = children.chain(messages).map(|what| Entry { source, what }).collect();
        if self.outboxes.are_deferred {
            self.outboxes.left.extend(entries);
        } else {
            let ends = matches!(turn.then, Then::End(_));
            entries.into_iter().for_each(|entry| self.apply(entry, ends, now));
        }
        if let Some(run) = self.find(source) {
            run.view.tags.extend(outbox.tags);
        }
    }

    /// Does all that is left to be done; answers how much that was.
    pub(super) fn deliver(&mut self, session: SessionId, now: Timestamp) -> Result<u64, Refusal> {
        if !self.lives(session) {
            return Err(Refusal::Fenced);
        }
        let mut applied = 0;
        while let Some(entry) = self.outboxes.pop() {
            self.apply(entry, false, now);
            applied += 1;
        }
        Ok(applied)
    }

    fn apply(&mut self, Entry { source, what }: Entry, ends: bool, now: Timestamp) {
        let message = match what {
            What::Tell(message) => *message,
            What::Start(child) => {
                let Some(body) = self.start_child(*child, now).filter(|_| !ends) else { return };
                // Worlds name their answers as they like. Whoever has ended is told nothing.
                let (id, headers) = (MessageId::from_bits(0), Headers::new());
                let Some(run) = self.find(source).filter(|run| !run.view.status.is_final()) else { return };
                run.accept(NewMessage { id, run: source, body, headers }, now);
                return;
            }
        };
        // A refusal comes to nothing.
        let _ = self.send(message, now);
    }

    fn start_child(&mut self, child: NewChild, now: Timestamp) -> Option<MessageBody> {
        let NewChild { start, wants_answer } = child;
        let op = start.parent?.op;
        match self.start(start.clone(), now) {
            Err(error) => Some(MessageBody::Refused { op, failure: child_refused(&start, &error) }),
            Ok(Started { run, .. }) if wants_answer => Some(MessageBody::ChildStarted { op, run }),
            Ok(Started { is_new: true, .. }) => None,
            Ok(Started { run, .. }) => Some(MessageBody::Refused { op, failure: child_exists(&start, run) }),
        }
    }
}
