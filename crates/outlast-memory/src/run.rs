//! One run: its row, its history, its inbox.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use outlast_core::limits::INBOX_READ_MAX;
use outlast_core::state::{Awaiting, PauseEffect, marks_after_send};
use outlast_core::takeover::{crash_class, is_suspect};
use outlast_core::{
    Code, EndableWithoutCode, FailedBuilds, Headers, HeartbeatDetails, HolderColumns, Marks, Message,
    MessageBody, MessageId, OpNumber, Parent, Position, RunId, RunView, Sent, SessionId, Start, StartKey,
    Status, Tags, Timestamp, Turn, TurnId, TurnRecord, Wait,
};

use crate::ready_queues::{ReadyEntry, ReadyGroup};
use crate::streams::RunStreams;

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
    /// The columns that only its holder changes. The reason why it was stuck remains while it is claimed.
    pub(crate) columns: Arc<HolderColumns>,
    pub(crate) is_cancel_requested: bool,
    pub(crate) marks: Marks,
    pub(crate) status: Status,
    pub(crate) owner: Option<SessionId>,
    /// The session whose worker may still have the run in memory.
    pub(crate) preferred: Option<SessionId>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) history: Vec<TurnRecord>,
    /// The number of the next event.
    pub(crate) seq: u64,
    pub(crate) turn: TurnId,
    pub(crate) turn_at: Timestamp,
    /// All messages that were ever accepted. The run has consumed the first `consumed` of them.
    pub(crate) inbox: Vec<Message>,
    /// The answer to each accepted message.
    pub(crate) answers: HashMap<MessageId, Sent>,
    pub(crate) consumed: u64,
    endable: EndableWithoutCode,
    /// The heartbeat details of its attempts, by operation.
    pub(crate) details: BTreeMap<OpNumber, HeartbeatDetails>,
    /// Its streams and published state; `None` if it has none.
    pub(crate) streams: Option<Box<RunStreams>>,
    /// Its entry in the ready queues, if it is or will be ready.
    pub(crate) ready_entry: Option<ReadyEntry>,
}

impl Run {
    /// A run whose first turn is `first`.
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
            marks: Marks::NONE,
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
            endable: EndableWithoutCode::default(),
            details: BTreeMap::new(),
            streams: None,
            ready_entry: None,
        }
    }

    /// The number of messages that were sent to it.
    pub(crate) fn sent(&self) -> u64 {
        self.inbox.len() as u64
    }

    /// Whether it has messages that it has not consumed.
    pub(crate) fn has_unread(&self) -> bool {
        self.sent() > self.consumed
    }

    /// The part of its history that a replay needs.
    pub(crate) fn replayed_history(&self) -> &[TurnRecord] {
        let first = self.history.partition_point(|turn| turn.seq < self.columns.replay_from);
        &self.history[first..]
    }

    /// The messages after a position, at most [`INBOX_READ_MAX`].
    pub(crate) fn inbox_after(&self, after: u64) -> Vec<Message> {
        let after = usize::try_from(after).unwrap_or(usize::MAX);
        self.inbox.iter().skip(after).take(INBOX_READ_MAX).cloned().collect()
    }

    /// Whether this turn, or an earlier attempt to commit it, started the run and is still its last turn.
    pub(crate) fn was_started_by(&self, turn: &Turn) -> bool {
        self.turn == turn.id && self.history.first().is_some_and(|first| first.build == turn.build)
    }

    /// Whether it has no turn after its start.
    pub(crate) fn is_fresh(&self) -> bool {
        self.seq <= 1
    }

    /// Adds a message. Returns its position, and whether a cancel was requested before.
    pub(crate) fn accept(
        &mut self,
        id: MessageId,
        body: MessageBody,
        headers: Headers,
        at: Timestamp,
    ) -> Sent {
        let position = self.sent() + 1;
        let sent = Sent { position, cancel_was_requested: self.is_cancel_requested, is_repeated: false };
        self.endable = self.endable.after(&body, position);
        self.is_cancel_requested |= matches!(body, MessageBody::Cancel { .. });
        self.marks = marks_after_send(self.marks, &body, self.is_cancel_requested);
        self.answers.insert(id, sent);
        self.inbox.push(Message { id, position, at, body, headers });
        sent
    }

    /// Forgets the requests to stop that it has got, because it has ended and is reopened.
    pub(crate) fn forget_requests_to_stop(&mut self) {
        self.endable = EndableWithoutCode::default();
        self.is_cancel_requested = false;
    }

    /// Whether it can be ended without its workflow's code.
    pub(crate) fn can_end(&self) -> bool {
        self.endable.can_end(self.consumed, self.seq)
    }

    /// Its position, against which a turn is checked.
    pub(crate) fn position(&self) -> Position {
        Position {
            owner: self.owner,
            turn: self.turn,
            next_event: self.seq,
            consumed: self.consumed,
            sent: self.sent(),
        }
    }

    /// The state that decides when it is ready after a message, before which it had these marks.
    pub(crate) fn awaiting(&self, marks_before: Marks) -> Awaiting {
        let begins_at = self.wake_at.filter(|_| self.status == Status::Pending);
        Awaiting {
            status: self.status,
            is_held: self.owner.is_some(),
            starts_later: begins_at.is_some(),
            can_end: self.can_end(),
            ready_at: self.ready_at(),
            pause: PauseEffect::of(marks_before, self.marks, self.columns.deadline, begins_at),
        }
    }

    /// When it is ready, if no session holds it.
    pub(crate) fn ready_at(&self) -> Option<Timestamp> {
        self.ready_entry.as_ref().map(|entry| entry.at)
    }

    /// The entry of the run in the ready queues if it is ready at `at`.
    pub(crate) fn ready_entry_at(&self, at: Timestamp) -> ReadyEntry {
        let needs_code = !self.can_end();
        let crashes = self.columns.crashes;
        ReadyEntry {
            required: needs_code.then(|| (self.queue.clone(), self.code.clone())),
            group: ReadyGroup {
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
        let mut view = RunView::of_columns(id, self.status, &self.columns);
        view.workflow = self.code.workflow.clone();
        view.version = self.code.version;
        view.queue = self.queue.clone();
        view.priority = self.priority;
        view.key = self.key.as_ref().map(|key| key.text.clone());
        view.owner = self.owner;
        view.created_at = self.created_at;
        view.updated_at = self.updated_at;
        view.ended_at = self.ended_at;
        view.wake_at = self.wake_at;
        view.waits = self.waits.clone();
        view.sent = self.sent();
        view.consumed = self.consumed;
        view.is_cancel_requested = self.is_cancel_requested;
        view.format = self.format;
        view.retry_at = self.ready_at().filter(|_| self.status == Status::Stuck);
        view.parent = self.parent;
        view.tags = self.tags.clone();
        view.marks = self.marks;
        view
    }
}
