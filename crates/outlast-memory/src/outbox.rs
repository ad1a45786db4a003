//! What turns do to other runs: children, messages, tags. It is done with the commit, or queued and done later.

use std::collections::{BTreeMap, VecDeque};

use outlast_core::refusal::{child_exists, child_refused};
use outlast_core::{
    Delivered, Headers, MessageBody, MessageId, NewChild, NewMessage, Outbox, RunId, Started, Timestamp,
    Turn, TurnId,
};

use crate::state::{Effects, State};

/// Entries that one delivery applies at the most.
const DELIVERED_MAX: u64 = 64;

/// What turns have left to be done to other runs, in order per run.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    /// Whether entries wait for a delivery. Otherwise they are applied with the commit.
    pub(crate) are_deferred: bool,
    by_source: BTreeMap<RunId, VecDeque<Entry>>,
    /// The run whose entry was applied last: the next delivery begins behind it, so that each has its turn.
    last: Option<RunId>,
    left: u64,
}

/// One thing that a turn does to another run.
#[derive(Debug)]
struct Entry {
    source: RunId,
    /// Names the answer to the source, so that it is recognised.
    answer: MessageId,
    what: What,
}

#[derive(Debug)]
enum What {
    Start(Box<NewChild>),
    Tell(Box<NewMessage>),
}

impl Outboxes {
    /// Whether a run has entries that are not applied.
    pub(crate) fn has(&self, source: RunId) -> bool {
        self.by_source.contains_key(&source)
    }

    fn push(&mut self, entry: Entry) {
        self.left += 1;
        self.by_source.entry(entry.source).or_default().push_back(entry);
    }

    /// The first entry of the next run.
    fn pop(&mut self) -> Option<Entry> {
        let behind = self.last.and_then(|last| {
            let behind = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
            self.by_source.range(behind).next().map(|(source, _)| *source)
        });
        let source = behind.or_else(|| self.by_source.keys().next().copied())?;
        let entries = self.by_source.get_mut(&source)?;
        let entry = entries.pop_front();
        if entries.is_empty() {
            self.by_source.remove(&source);
        }
        self.last = Some(source);
        self.left -= 1;
        entry
    }
}

fn entries(run: RunId, turn: TurnId, outbox: &Outbox) -> impl Iterator<Item = Entry> {
    let children = outbox.children.iter().map(|child| What::Start(Box::new(child.clone())));
    let messages = outbox.messages.iter().map(|message| What::Tell(Box::new(message.clone())));
    let what = children.chain(messages).enumerate();
    what.map(move |(index, what)| Entry { source: run, answer: MessageId::of_answer(turn, index), what })
}

impl State {
    /// Applies what a turn does to other runs, or queues it. Its tags are its own run's.
    pub(crate) fn post(&mut self, turn: &Turn, outbox: &Outbox, now: Timestamp, effects: &mut Effects) {
        if let Some(run) = self.runs.get_mut(&turn.run) {
            run.tags.extend(outbox.tags.clone());
        }
        for entry in entries(turn.run, turn.id, outbox) {
            if self.outboxes.are_deferred {
                self.outboxes.push(entry);
                effects.ring = true;
            } else {
                let ends = matches!(turn.then, outlast_core::Then::End(_));
                self.apply_entry(entry, ends, now, effects);
            }
        }
    }

    /// Applies some of what is queued.
    pub(crate) fn deliver(&mut self, now: Timestamp, effects: &mut Effects) -> Delivered {
        let mut applied = 0;
        while applied < DELIVERED_MAX
            && let Some(entry) = self.outboxes.pop()
        {
            self.apply_entry(entry, false, now, effects);
            applied += 1;
        }
        Delivered { applied, left: self.outboxes.left }
    }

    fn apply_entry(&mut self, entry: Entry, ends: bool, now: Timestamp, effects: &mut Effects) {
        let Entry { source, answer, what } = entry;
        match what {
            What::Tell(message) => self.tell(*message, now, effects),
            What::Start(child) => {
                let body = self.start_child(*child, now, effects).filter(|_| !ends);
                if let Some(body) = body {
                    let headers = Headers::new();
                    self.tell(NewMessage { id: answer, run: source, body, headers }, now, effects);
                }
            }
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
