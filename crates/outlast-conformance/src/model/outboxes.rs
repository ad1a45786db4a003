//! The model's outboxes: effects on other runs are applied with the commit, or later.

use std::collections::VecDeque;

use outlast_core::refusal::{child_exists, child_refused};
use outlast_core::{
    Headers, MessageBody, MessageId, NewChild, NewMessage, Outbox, RunId, SessionId, Started, Then,
    Timestamp, Turn,
};

use super::runs::{Model, Refusal};

/// The effects on other runs that are not applied yet.
#[derive(Debug, Default)]
pub(super) struct Outboxes {
    /// Whether deliveries apply them. Otherwise the commit does.
    pub(super) are_deferred: bool,
    /// In the order of the commits.
    left: VecDeque<OutboxEntry>,
    /// The run whose entry was applied last: runs take turns.
    last: Option<RunId>,
}

#[derive(Debug)]
struct OutboxEntry {
    source: RunId,
    effect: OutboxEffect,
}

#[derive(Debug)]
enum OutboxEffect {
    Start(Box<NewChild>),
    Send(Box<NewMessage>),
}

impl Outboxes {
    /// Whether effects of a run are not applied yet.
    pub(super) fn has(&self, source: RunId) -> bool {
        self.left.iter().any(|entry| entry.source == source)
    }

    /// Takes the first entry of the next run.
    fn pop(&mut self) -> Option<OutboxEntry> {
        let sources = || self.left.iter().map(|entry| entry.source);
        let behind = sources().filter(|source| self.last.is_none_or(|last| *source > last)).min();
        let next = behind.or_else(|| sources().min())?;
        self.last = Some(next);
        let place = self.left.iter().position(|entry| entry.source == next)?;
        self.left.remove(place)
    }
}

impl Model {
    /// Applies the outbox of a turn, or defers it. Tags belong to the turn's own run.
    pub(super) fn apply_outbox(&mut self, turn: &Turn, outbox: Outbox, now: Timestamp) {
        let source = turn.run;
        let children = outbox.children.into_iter().map(|child| OutboxEffect::Start(Box::new(child)));
        let messages = outbox.messages.into_iter().map(|message| OutboxEffect::Send(Box::new(message)));
        let entries: Vec<_> = children.chain(messages).map(|effect| OutboxEntry { source, effect }).collect();
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

    /// Applies all deferred effects. Returns how many.
    pub(super) fn deliver(&mut self, session: SessionId, now: Timestamp) -> Result<u64, Refusal> {
        if !self.is_live(session) {
            return Err(Refusal::Fenced);
        }
        let mut applied = 0;
        while let Some(entry) = self.outboxes.pop() {
            self.apply(entry, false, now);
            applied += 1;
        }
        Ok(applied)
    }

    fn apply(&mut self, OutboxEntry { source, effect }: OutboxEntry, ends: bool, now: Timestamp) {
        let message = match effect {
            OutboxEffect::Send(message) => *message,
            OutboxEffect::Start(child) => {
                let Some(body) = self.start_child(*child, now).filter(|_| !ends) else { return };
                // Worlds choose the ids of answers. A parent that has ended gets none.
                let (id, headers) = (MessageId::from_bits(0), Headers::new());
                let Some(run) = self.find(source).filter(|run| !run.view.status.is_final()) else { return };
                run.accept(NewMessage { id, run: source, body, headers }, now);
                return;
            }
        };
        // A refused message is dropped.
        let _ = self.send(message, now);
    }

    fn start_child(&mut self, child: NewChild, now: Timestamp) -> Option<MessageBody> {
        let NewChild { start, notify_parent } = child;
        let op = start.parent?.op;
        match self.start(start.clone(), now) {
            Err(error) => Some(MessageBody::Refused { op, failure: child_refused(&start, &error) }),
            Ok(Started { run, .. }) if notify_parent => Some(MessageBody::ChildStarted { op, run }),
            Ok(Started { is_new: true, .. }) => None,
            Ok(Started { run, .. }) => Some(MessageBody::Refused { op, failure: child_exists(&start, run) }),
        }
    }
}
