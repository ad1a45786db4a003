//! The inbox: what the outside has told a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{Event, OpNumber, Outcome};
use crate::failure::Failure;
use crate::id::{MessageId, RunId};
use crate::payload::Payload;
use crate::time::Timestamp;

/// A small map that travels with starts and messages: trace context, the caller's identity.
pub type Headers = BTreeMap<String, String>;

/// Something to tell a run. The id is made before the first try, so that a repeat is recognised.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    /// The message's id.
    pub id: MessageId,
    /// The run it is for.
    pub run: RunId,
    /// What it says.
    pub body: MessageBody,
    /// What travels with it.
    pub headers: Headers,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MessageBody {
    /// A payload for a hook.
    Hook {
        /// The hook's name.
        name: Arc<str>,
        /// The payload.
        payload: Payload,
    },
    /// The run should stop.
    Cancel {
        /// Why.
        reason: String,
    },
    /// The run ends now, whatever its code would say.
    Terminate {
        /// Why.
        reason: String,
    },
    /// A sleep ends early.
    Wake {
        /// Which one; all that are open when it is delivered if `None`.
        op: Option<OpNumber>,
    },
    /// The world has started a child that wanted to know, or found it by its key.
    ChildStarted {
        /// The operation that asked for it.
        op: OpNumber,
        /// The run that its key names.
        run: RunId,
    },
    /// A child has ended.
    ChildEnded {
        /// The operation that asked for it.
        op: OpNumber,
        /// How it ended.
        outcome: Outcome,
    },
    /// The world refused what an operation asked of names that runs share.
    Refused {
        /// The operation.
        op: OpNumber,
        /// Why.
        failure: Failure,
    },
    /// Attempts ended, and the run got stuck before its history had that.
    Attempted {
        /// What the history would have got of them.
        events: Vec<Event>,
    },
}

impl MessageBody {
    /// Whether the engine needs the message to keep its promises, so that a full inbox still takes it.
    pub fn is_exempt_from_limit(&self) -> bool {
        !matches!(self, Self::Hook { .. } | Self::Wake { .. })
    }
}

/// The positions of the last messages that can be obeyed without a workflow's code, as senders write them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndableWithoutCode {
    /// The position of the last terminate; 0 when there was none.
    pub last_terminate: u64,
    /// The position of the last cancel; 0 when there was none.
    pub last_cancel: u64,
}

impl EndableWithoutCode {
    /// The positions after a message was accepted at `position`.
    #[must_use]
    pub fn after(self, body: &MessageBody, position: u64) -> Self {
        match body {
            MessageBody::Terminate { .. } => Self { last_terminate: position, ..self },
            MessageBody::Cancel { .. } => Self { last_cancel: position, ..self },
            _ => self,
        }
    }

    /// Whether a run can be ended without its workflow's code: it has an unread terminate, or an unread cancel
    /// and was never more than started.
    pub fn can_end(self, consumed: u64, next_event: u64) -> bool {
        self.last_terminate > consumed || next_event <= 1 && self.last_cancel > consumed
    }
}

/// The answer to a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The message's place in the run's inbox, from 1.
    pub position: u64,
    /// Whether the run was asked to stop before, by another message or its deadline.
    pub cancel_was_requested: bool,
}

/// A message as a run reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The message's id.
    pub id: MessageId,
    /// Its place in the run's inbox, from 1.
    pub position: u64,
    /// When the world accepted it.
    pub at: Timestamp,
    /// What it says.
    pub body: MessageBody,
    /// What travels with it.
    pub headers: Headers,
}
