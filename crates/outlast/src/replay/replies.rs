//! Replies to messages whose senders wait for one.
//!
//! A payload says whether its sender waits for a reply. Whoever takes it gets a [`ReplySlot`]: the workflow replies
//! (`reply_sent`), or drops the slot (`reply_dropped`), and the sender learns that nobody answers. If the payload cannot
//! be decoded, the sender learns the reason. The reply is part of the turn's outbox, and the first one counts. When the
//! run ends, all senders that still wait learn it from its status.

use std::sync::Arc;

use outlast_core::{Event, Failure, MessageId, NewReply, OpNumber, Payload, Reply};
use parking_lot::Mutex;
use serde::Serialize;

use super::operation_table::OperationTable;
use super::state::{OUTSIDE_TURN_PANIC, RunState};
use crate::error::Error;

impl OperationTable {
    /// Adds a reply to the outbox of the turn; a replay does not send it again.
    pub(super) fn put_reply(&mut self, message: MessageId, reply: Reply) {
        if !self.is_replaying() && !self.is_closed {
            self.pending_outbox().replies.push(NewReply { message, reply });
        }
    }
}

impl RunState {
    /// Replies to a message.
    fn reply<T: Serialize + ?Sized>(&self, message: MessageId, value: &T) -> Result<(), Error> {
        if self.is_outside_turn(|| format!("it replied to message {message}")) {
            return Err(Error::invalid(OUTSIDE_TURN_PANIC));
        }
        // Encoded in a replay too: whether it fails decides what the workflow sees next.
        let payload = self.encode_reply(value).map_err(Error::of_failure)?;
        let mut table = self.table.lock();
        if table.is_closed {
            return Ok(());
        }
        let op = OpNumber(table.next_op);
        table.next_op += 1;
        table.put_reply(message, Reply::Answered(payload.clone()));
        table.recorded(Event::ReplySent { op, message, payload });
        Ok(())
    }

    fn encode_reply<T: Serialize + ?Sized>(&self, value: &T) -> Result<Payload, Failure> {
        self.apply_codec(self.to_json(value)?)
    }

    /// The workflow did not reply to a message that it has taken.
    pub(crate) fn drop_reply(&self, message: MessageId) {
        let is_open = || !self.table.lock().is_closed;
        if self.is_handle_dropped_outside_turn(is_open, || format!("it dropped message {message}")) {
            return;
        }
        let mut table = self.table.lock();
        if !table.is_closed {
            table.put_reply(message, Reply::NotAnswered);
            table.dropped(Event::ReplyDropped { message });
        }
    }
}

/// Where the workflow puts its reply to a message.
pub(crate) struct ReplySlot {
    state: Arc<RunState>,
    message: MessageId,
    has_replied: Mutex<bool>,
}

impl ReplySlot {
    pub(crate) fn new(state: Arc<RunState>, message: MessageId) -> Self {
        Self { state, message, has_replied: Mutex::new(false) }
    }

    /// Replies, unless the workflow has replied already.
    pub(crate) fn reply<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), Error> {
        if *self.has_replied.lock() {
            return Err(Error::invalid(format!("message {} was already replied to", self.message)));
        }
        self.state.reply(self.message, value)?;
        *self.has_replied.lock() = true;
        Ok(())
    }
}

impl Drop for ReplySlot {
    fn drop(&mut self) {
        if !*self.has_replied.lock() {
            self.state.drop_reply(self.message);
        }
    }
}

impl std::fmt::Debug for ReplySlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "reply to {}", self.message)
    }
}
