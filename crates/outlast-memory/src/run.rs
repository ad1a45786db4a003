//! One run: its row, its history, its inbox.

use std::collections::HashMap;
use std::sync::Arc;

use outlast_core::limits::INBOX_READ_MAX;
use outlast_core::takeover::is_suspect;
use outlast_core::{
    Code, Headers, Message, MessageBody, MessageId, Parent, RunId, RunView, SessionId, Start, StartKey,
    Status, Stuck, Tags, Timestamp, Turn, TurnId, TurnRecord, Wait,
};

use crate::ready::{Line, Place};

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Code,
    pub(crate) queue: Arc<str>,
    priority: u8,
    pub(crate) key: Option<StartKey>,
    pub(crate) parent: Option<Parent>,
    pub(crate) tags: Tags,
    /// When it is told to stop, as long as that counts.
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) status: Status,
    pub(crate) owner: Option<SessionId>,
    /// The session that may still have the run's future.
    pub(crate) preferred: Option<SessionId>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) history: Vec<TurnRecord>,
    /// The number that the next event gets.
    pub(crate) seq: u64,
    pub(crate) turn: TurnId,
    pub(crate) turn_at: Timestamp,
    /// Every message that was ever accepted; the first `consumed` have been consumed.
    pub(crate) inbox: Vec<Message>,
    pub(crate) positions: HashMap<MessageId, u64>,
    pub(crate) consumed: u64,
    /// The position of the last message that can be obeyed without the workflow's code.
    last_without_code: u64,
    /// The same, of those that count as long as the run is fresh.
    last_while_fresh: u64,
    pub(crate) crashes: u32,
    pub(crate) stuck: Option<Stuck>,
    /// The build that is not given the run again, until it is resumed.
    pub(crate) stuck_build: Option<Arc<str>>,
    /// Where it stands in line, when it is ready or will be.
    pub(crate) place: Option<Place>,
}

impl Run {
    /// A run that begins with `first`.
    pub(crate) fn new(start: Start, first: TurnRecord, now: Timestamp) -> Self {
        Self {
            code: Code { workflow: start.workflow, version: start.version },
            queue: start.queue,
            priority: start.priority,
            key: start.key,
            parent: start.parent,
            tags: start.tags,
            deadline: start.deadline,
            status: Status::Pending,
            owner: None,
            preferred: None,
            created_at: now,
            updated_at: now,
            ended_at: None,
            wake_at: start.not_before.filter(|at| *at > now),
            waits: Vec::new(),
            seq: first.events.len() as u64,
            turn: first.id,
            turn_at: first.at,
            history: vec![first],
            inbox: Vec::new(),
            positions: HashMap::new(),
            consumed: 0,
            last_without_code: 0,
            last_while_fresh: 0,
            crashes: 0,
            stuck: None,
            stuck_build: None,
            place: None,
        }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.inbox.len() as u64
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.sent() > self.consumed
    }

    /// The messages behind a position, as many as are read at a time.
    pub(crate) fn inbox_after(&self, after: u64) -> Vec<Message> {
        let after = usize::try_from(after).unwrap_or(usize::MAX);
        self.inbox.iter().skip(after).take(INBOX_READ_MAX).cloned().collect()
    }

    /// Whether this turn, or a first try of it, began the run and is still its last.
    pub(crate) fn was_begun_by(&self, turn: &Turn) -> bool {
        self.turn == turn.id && self.history.first().is_some_and(|first| first.build == turn.build)
    }

    /// Whether it was never more than started.
    pub(crate) fn is_fresh(&self) -> bool {
        self.seq <= 1
    }

    /// Adds a message; answers its position.
    pub(crate) fn accept(
        &mut self,
        id: MessageId,
        body: MessageBody,
        headers: Headers,
        at: Timestamp,
    ) -> u64 {
        let position = self.sent() + 1;
        if body.needs_no_code(false) {
            self.last_without_code = position;
        }
        if body.needs_no_code(true) {
            self.last_while_fresh = position;
        }
        self.positions.insert(id, position);
        self.inbox.push(Message { id, position, at, body, headers });
        position
    }

    /// Whether an unread message can be obeyed without the workflow's code.
    pub(crate) fn needs_no_code(&self) -> bool {
        let last = if self.is_fresh() { self.last_while_fresh } else { self.last_without_code };
        last > self.consumed
    }

    /// Whether it was started to begin later.
    pub(crate) fn is_delayed(&self, now: Timestamp) -> bool {
        self.status == Status::Pending && self.wake_at.is_some_and(|at| at > now)
    }

    /// Where the run stands in line when it is ready at `at`.
    pub(crate) fn place_at(&self, at: Timestamp) -> Place {
        let needs_code = !self.needs_no_code();
        Place {
            served_by: needs_code.then(|| (self.queue.clone(), self.code.clone())),
            line: Line {
                is_suspect: is_suspect(self.crashes),
                preferred: self.preferred,
                not_for: self.stuck_build.clone().filter(|_| needs_code),
                priority: if needs_code { self.priority } else { 0 },
            },
            at,
        }
    }

    pub(crate) fn view(&self, id: RunId) -> RunView {
        RunView {
            id,
            workflow: self.code.workflow.clone(),
            version: self.code.version,
            queue: self.queue.clone(),
            priority: self.priority,
            key: self.key.as_ref().map(|key| key.text.clone()),
            status: self.status,
            owner: self.owner,
            created_at: self.created_at,
            updated_at: self.updated_at,
            ended_at: self.ended_at,
            wake_at: self.wake_at,
            waits: self.waits.clone(),
            sent: self.sent(),
            consumed: self.consumed,
            crashes: self.crashes,
            stuck: self.stuck.clone(),
            parent: self.parent,
            tags: self.tags.clone(),
            deadline: self.deadline,
        }
    }
}
