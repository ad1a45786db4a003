//! The outboxes of turns: children to start and messages to other runs. They are applied with the commit, or queued and
//! applied later. The tags, streams and state of the turn's own run are always changed with the commit.

use std::collections::{BTreeMap, VecDeque};

use outlast_core::refusal::{child_exists, child_refused};
use outlast_core::{
    Delivered, FreedToken, Headers, MessageBody, MessageId, NewChild, NewMessage, NewToken, Outbox, RunId,
    Started, Timestamp, Turn, TurnId,
};

use crate::state::{Notifications, State};

/// The number of entries that one delivery applies at most.
const DELIVERED_MAX: u64 = 64;

/// The queued entries of outboxes, in order per run.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    /// Whether entries are queued for a delivery. Otherwise they are applied with the commit.
    pub(crate) are_deferred: bool,
    by_source: BTreeMap<RunId, VecDeque<OutboxEntry>>,
    /// The run whose entry was applied last. The next delivery continues with the run after it, so that no run waits
    /// for long.
    last: Option<RunId>,
    /// The number of queued entries.
    queued: u64,
}

/// One effect of a turn on another run.
#[derive(Debug)]
struct OutboxEntry {
    /// The run whose turn it was.
    source: RunId,
    /// The id of the answer to the source, so that a repeated answer is recognised.
    answer: MessageId,
    effect: OutboxEffect,
}

#[derive(Debug)]
enum OutboxEffect {
    FreeToken(FreedToken),
    TakeToken(Box<NewToken>),
    StartChild(Box<NewChild>),
    Send(Box<NewMessage>),
}

impl Outboxes {
    /// Whether a run has queued entries.
    pub(crate) fn has_entries_of(&self, source: RunId) -> bool {
        self.by_source.contains_key(&source)
    }

    fn push(&mut self, entry: OutboxEntry) {
        self.queued += 1;
        self.by_source.entry(entry.source).or_default().push_back(entry);
    }

    /// Removes and returns the first entry of the next run.
    fn pop(&mut self) -> Option<OutboxEntry> {
        let next = self.last.and_then(|last| {
            let after = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
            self.by_source.range(after).next().map(|(source, _)| *source)
        });
        let source = next.or_else(|| self.by_source.keys().next().copied())?;
        let entries = self.by_source.get_mut(&source)?;
        let entry = entries.pop_front();
        if entries.is_empty() {
            self.by_source.remove(&source);
        }
        self.last = Some(source);
        self.queued -= 1;
        entry
    }
}

fn entries(run: RunId, turn: TurnId, outbox: &Outbox) -> impl Iterator<Item = OutboxEntry> {
    let children = outbox.children.iter().map(|child| OutboxEffect::StartChild(Box::new(child.clone())));
    let messages = outbox.messages.iter().map(|message| OutboxEffect::Send(Box::new(message.clone())));
    let freed = outbox.tokens.freed.iter().map(|freed| OutboxEffect::FreeToken(*freed));
    let taken = outbox.tokens.taken.iter().map(|taken| OutboxEffect::TakeToken(Box::new(taken.clone())));
    // Only children and tokens that are taken get answers.
    let answered = children.enumerate().map(move |(nth, effect)| (MessageId::of_answer(turn, nth), effect));
    let unanswered = messages.chain(freed).map(move |effect| (MessageId::from_bits(turn.bits()), effect));
    let taken = taken.enumerate().map(move |(nth, effect)| (outbox.token_answer(turn, nth), effect));
    let effects = answered.chain(unanswered).chain(taken);
    effects.map(move |(answer, effect)| OutboxEntry { source: run, answer, effect })
}

impl State {
    /// Changes the tags, streams and state of the turn's run, and applies or queues the effects on other runs.
    pub(crate) fn apply_outbox(
        &mut self,
        turn: &Turn,
        outbox: &Outbox,
        now: Timestamp,
        notifications: &mut Notifications,
    ) {
        if let Some(run) = self.runs.get_mut(&turn.run) {
            run.tags.extend(outbox.tags.clone());
            if !outbox.writes.is_empty() {
                run.streams.get_or_insert_default().apply(turn.id, &outbox.writes, now);
                notifications.written.push(turn.run);
            }
        }
        if !outbox.replies.is_empty() {
            self.put_replies(turn.run, &outbox.replies, now);
            notifications.written.push(turn.run);
        }
        for entry in entries(turn.run, turn.id, outbox) {
            if self.outboxes.are_deferred {
                self.outboxes.push(entry);
                notifications.wakes_workers = true;
            } else {
                let ends = matches!(turn.then, outlast_core::Then::End(_));
                self.apply_entry(entry, ends, now, notifications);
            }
        }
    }

    /// Applies some of the queued entries.
    pub(crate) fn deliver(&mut self, now: Timestamp, notifications: &mut Notifications) -> Delivered {
        let mut applied = 0;
        while applied < DELIVERED_MAX
            && let Some(entry) = self.outboxes.pop()
        {
            self.apply_entry(entry, false, now, notifications);
            applied += 1;
        }
        Delivered { applied, left: self.outboxes.queued }
    }

    /// Applies one entry. If the turn `ends` its run, the run gets no answer.
    fn apply_entry(
        &mut self,
        entry: OutboxEntry,
        ends: bool,
        now: Timestamp,
        notifications: &mut Notifications,
    ) {
        let OutboxEntry { source, answer, effect } = entry;
        match effect {
            OutboxEffect::Send(message) => self.send_if_possible(*message, now, notifications),
            OutboxEffect::FreeToken(freed) => self.free_token(source, &freed),
            OutboxEffect::TakeToken(new) => {
                let body = self.take_token(source, &new, now).filter(|_| !ends);
                self.answer(source, answer, body, now, notifications);
            }
            OutboxEffect::StartChild(child) => {
                let body = self.start_child(*child, now, notifications).filter(|_| !ends);
                self.answer(source, answer, body, now, notifications);
            }
        }
    }

    /// Sends the answer to an entry to the run whose turn it was, if there is one.
    fn answer(
        &mut self,
        run: RunId,
        id: MessageId,
        body: Option<MessageBody>,
        now: Timestamp,
        notifications: &mut Notifications,
    ) {
        if let Some(body) = body {
            let headers = Headers::new();
            self.send_if_possible(NewMessage { id, run, body, headers }, now, notifications);
        }
    }

    /// Starts a child, and returns the message to its parent.
    fn start_child(
        &mut self,
        child: NewChild,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Option<MessageBody> {
        let NewChild { start, notify_parent } = child;
        let op = start.parent?.op;
        match self.start(start.clone(), now, notifications) {
            Ok(Started { run, .. }) if notify_parent => Some(MessageBody::ChildStarted { op, run }),
            Ok(Started { is_new: true, .. }) => None,
            Ok(Started { run, .. }) => Some(MessageBody::Refused { op, failure: child_exists(&start, run) }),
            Err(error) => Some(MessageBody::Refused { op, failure: child_refused(&start, &error) }),
        }
    }

    /// Sends a message. If it is refused, because the run does not exist or has ended, it is dropped.
    fn send_if_possible(&mut self, message: NewMessage, now: Timestamp, notifications: &mut Notifications) {
        let _dropped = self.send(message, now, notifications);
    }
}
