//! Replies: answers to messages whose senders wait for one.

use crate::id::MessageId;
use crate::payload::Payload;
use crate::time::Timestamp;

/// The end of an ask, as the run that received the message has decided it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// The workflow replied with this value.
    Answered(Payload),
    /// No open hook can decode the payload, for this reason.
    Rejected(String),
    /// The operation or the generation that took the payload is over, and it did not reply.
    NotAnswered,
}

/// A reply that a turn stores. The first reply to a message counts; others change nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct NewReply {
    /// The message.
    pub message: MessageId,
    /// The reply.
    pub reply: Reply,
}

/// A stored reply.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredReply {
    /// When the world stored it.
    pub at: Timestamp,
    /// The reply.
    pub reply: Reply,
}
