//! One run: its row, its history, its inbox.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use outlast_core::limits::INBOX_READ_MAX;
use outlast_core::state::Awaiting;
use outlast_core::takeover::{crash_class, is_suspect};
use outlast_core::{
    Code, EndableWithoutCode, FailedBuilds, Headers, HeartbeatDetails, HolderColumns, Message, MessageBody,
    MessageId, OpNumber, Parent, Position, RunId, RunView, Sent, SessionId, Start, StartKey, Status, Tags,
    Timestamp, Turn, TurnId, TurnRecord, Wait,
};

use crate::ready_queues::{Line, Place};

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Code,
    pub(crate) queue: Arc<str>,
    priority: u8,
    pub(crate) key: Option<StartKey>,
    pub(crate) parent: Option<Parent>,
    pub(crate) tags: Tags,
    /// The lowest format that a reader needs.
    pub(crate) format: u32,
    /// What only its holder changes. Why it was stuck stays while it is claimed.
    pub(crate) columns: Arc<HolderColumns>,
    pub(crate) is_cancel_requested: bool,
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
    /// What each accepted message was answered with.
    pub(crate) answers: HashMap<MessageId, Sent>,
    pub(crate) consumed: u64,
    codeless: EndableWithoutCode,
    /// How far attempts at its steps had come, by operation.
    pub(crate) details: BTreeMap<OpNumber, HeartbeatDetails>,
    /// Where it stands in line, when it is ready or will be.
    pub(crate) place: Option<Place>,
}

impl Run {
    /// A run that begins with `first`.
    pub(crate) fn new(start: Start, first: TurnRecord, now: Timestamp) -> Self {
        let columns = HolderColumns::of_start(&start);
        Self {
            format: start.format(),
            code: Code { workflow: start.workflow, version: start.version },
            queue: start.queue,
            priority: start.priority,
            key: start.key,
            parent: start.parent,
            tags: start.tags,
            columns: Arc::new(columns),
            is_cancel_requested: false,
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
            answers: HashMap::new(),
            consumed: 0,
            codeless: EndableWithoutCode::default(),
            details: BTreeMap::new(),
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

    /// Adds a message; answers its position, and whether the run was asked to stop before.
    pub(crate) fn accept(
        &mut self,
        id: MessageId,
        body: MessageBody,
        headers: Headers,
        at: Timestamp,
    ) -> Sent {
        let position = self.sent() + 1;
        let sent = Sent { position, cancel_was_requested: self.is_cancel_requested };
        self.codeless = self.codeless.after(&body, position);
        self.is_cancel_requested |= matches!(body, MessageBody::Cancel { .. });
        self.answers.insert(id, sent);
        self.inbox.push(Message { id, position, at, body, headers });
        sent
    }

    /// Whether it can be ended without its workflow's code.
    pub(crate) fn can_end(&self) -> bool {
        self.codeless.can_end(self.consumed, self.seq)
    }

    /// Where it is, for a turn that may be committed.
    pub(crate) fn position(&self) -> Position {
        Position {
            owner: self.owner,
            turn: self.turn,
            next_event: self.seq,
            consumed: self.consumed,
            sent: self.sent(),
        }
    }

    /// What decides when it is ready after a message.
    pub(crate) fn awaiting(&self) -> Awaiting {
        Awaiting {
            status: self.status,
            is_held: self.owner.is_some(),
            starts_later: self.status == Status::Pending && self.wake_at.is_some(),
            can_end: self.can_end(),
            ready_at: self.place.as_ref().map(|place| place.at),
        }
    }

    /// Where the run stands in line when it is ready at `at`.
    pub(crate) fn place_at(&self, at: Timestamp) -> Place {
        let needs_code = !self.can_end();
        let crashes = self.columns.crashes;
        Place {
            served_by: needs_code.then(|| (self.queue.clone(), self.code.clone())),
            line: Line {
                format: self.format,
                class: if is_suspect(crashes) { crash_class(crashes) } else { 0 },
                preferred: self.preferred,
                failed_builds: if needs_code {
                    self.columns.failed_builds.clone()
                } else {
                    FailedBuilds::default()
                },
                priority: if needs_code { self.priority } else { 0 },
            },
            at,
        }
    }

    pub(crate) fn view(&self, id: RunId) -> RunView {
        RunView {
            workflow: self.code.workflow.clone(),
            version: self.code.version,
            queue: self.queue.clone(),
            priority: self.priority,
            key: self.key.as_ref().map(|key| key.text.clone()),
            owner: self.owner,
            created_at: self.created_at,
            updated_at: self.updated_at,
            ended_at: self.ended_at,
            wake_at: self.wake_at,
            waits: self.waits.clone(),
            sent: self.sent(),
            consumed: self.consumed,
            is_cancel_requested: self.is_cancel_requested,
            format: self.format,
            retry_at: self.awaiting().ready_at.filter(|_| self.status == Status::Stuck),
            parent: self.parent,
            tags: self.tags.clone(),
            ..RunView::of_columns(id, self.status, &self.columns)
        }
    }
}
