//! Messages and inboxes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::{Event, OpNumber, Outcome};
use crate::failure::Failure;
use crate::id::{MessageId, RunId};
use crate::payload::Payload;
use crate::retried::RetryRequest;
use crate::time::Timestamp;
use crate::token::TokenHash;

/// Headers of starts and messages, such as trace context or the identity of the caller.
pub type Headers = BTreeMap<String, String>;

/// The header of control messages and restarts that names who made the call. The events that record what was asked for
/// contain it.
pub const ACTOR_HEADER: &str = "actor";

/// A message to a run. Its id is chosen before the first send, so that a repeated send is recognised.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    /// The message's id.
    pub id: MessageId,
    /// The run it is for.
    pub run: RunId,
    /// Its content.
    pub body: MessageBody,
    /// Its headers.
    pub headers: Headers,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MessageBody {
    /// A payload for a hook.
    Hook {
        /// The hook's name.
        name: Arc<str>,
        /// The payload.
        payload: Payload,
        /// Which hook of that name takes it, and whether its sender waits for a reply.
        to: HookAddress,
    },
    /// A request to stop.
    Cancel {
        /// Why.
        reason: String,
    },
    /// The run ends now, without its code.
    Terminate {
        /// Why.
        reason: String,
    },
    /// The run ends without its code, after its registered compensations have run. Without any, it ends now.
    Compensate {
        /// Why.
        reason: String,
    },
    /// Ends timers early.
    Wake {
        /// The timer; `None` means all that are open when the message is delivered.
        op: Option<OpNumber>,
    },
    /// The world has started a child with a key, or has found the run that the key names.
    ChildStarted {
        /// The operation that requested it.
        op: OpNumber,
        /// The run that its key names.
        run: RunId,
    },
    /// A child has ended.
    ChildEnded {
        /// The operation that requested it.
        op: OpNumber,
        /// Its outcome.
        outcome: Outcome,
    },
    /// The world refused to start a child or queued step.
    Refused {
        /// The operation.
        op: OpNumber,
        /// Why.
        failure: Failure,
    },
    /// Outcomes of attempts that were not recorded before the run got stuck or was paused.
    Attempted {
        /// The events that record them.
        events: Vec<Event>,
    },
    /// The run stops until it is resumed. It stays in the inbox for as long as the run is paused.
    Pause {
        /// Why.
        reason: String,
    },
    /// Ends a pause.
    Resume,
    /// The run had ended, and continues from an operation. Only [`World::reopen`](crate::World::reopen) sends it.
    Retry(Box<RetryRequest>),
    /// The run holds the token that an operation requested.
    TokenTaken {
        /// The operation.
        op: OpNumber,
    },
}

/// Which hook of a name takes a payload, and whether the sender waits for a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookAddress {
    /// The token to which it was sent; `None` if it was sent by the name of the hook.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "write_token",
        deserialize_with = "read_token"
    )]
    pub token: Option<Arc<str>>,
    /// Whether the sender waits for a reply.
    #[serde(default, rename = "reply", skip_serializing_if = "std::ops::Not::not")]
    pub wants_reply: bool,
}

impl HookAddress {
    /// Whether it is that of a plain payload: sent by the hook's name, without a reply.
    pub fn is_plain(&self) -> bool {
        self.token.is_none() && !self.wants_reply
    }

    /// It as JSON, as worlds store it; `None` for a plain payload.
    pub fn to_text(&self) -> Option<String> {
        (!self.is_plain()).then(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Reads the text of [`to_text`](Self::to_text).
    ///
    /// # Errors
    ///
    /// The problem, if the text is damaged.
    pub fn of_text(text: Option<&str>) -> Result<Self, serde_json::Error> {
        text.map_or_else(|| Ok(Self::default()), serde_json::from_str)
    }
}

fn write_token<S: serde::Serializer>(token: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    token.as_deref().serialize(serializer)
}

fn read_token<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(Into::into))
}

impl MessageBody {
    /// The hash of the token to which it is sent, if it is a payload that is sent to one.
    pub fn token_hash(&self) -> Option<TokenHash> {
        match self {
            Self::Hook { to, .. } => to.token.as_deref().map(TokenHash::of),
            _ => None,
        }
    }

    /// Whether the message is accepted even when the inbox is full, because the engine depends on it.
    pub fn is_exempt_from_limit(&self) -> bool {
        !matches!(self, Self::Hook { .. } | Self::Wake { .. } | Self::Pause { .. })
    }
}

/// The positions of the last messages that can end a run without its workflow's code. Senders update them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndableWithoutCode {
    /// The position of the last terminate; 0 if there was none.
    pub last_terminate: u64,
    /// The position of the last cancel; 0 if there was none.
    pub last_cancel: u64,
}

impl EndableWithoutCode {
    /// The positions after a message was accepted at `position`.
    #[must_use]
    pub fn after(self, body: &MessageBody, position: u64) -> Self {
        match body {
            MessageBody::Terminate { .. } | MessageBody::Compensate { .. } => {
                Self { last_terminate: position, ..self }
            }
            MessageBody::Cancel { .. } => Self { last_cancel: position, ..self },
            _ => self,
        }
    }

    /// Whether a run can be ended without its workflow's code: it has an unread terminate, or it has an unread cancel
    /// and has not had a turn.
    pub fn can_end(self, consumed: u64, next_event: u64) -> bool {
        self.last_terminate > consumed || next_event <= 1 && self.last_cancel > consumed
    }
}

/// The response to a send. Two responses are equal if they say the same about the message, sent again or not.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The position of the message in the inbox, from 1.
    pub position: u64,
    /// Whether the run was already asked to stop, by another message or its deadline.
    pub cancel_was_requested: bool,
    /// Whether the message was sent before.
    pub is_repeated: bool,
}

impl PartialEq for Sent {
    fn eq(&self, other: &Self) -> bool {
        let Self { position, cancel_was_requested, is_repeated: _ } = *self;
        (position, cancel_was_requested) == (other.position, other.cancel_was_requested)
    }
}

impl Eq for Sent {}

/// A message in an inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The message's id.
    pub id: MessageId,
    /// Its position in the inbox, from 1.
    pub position: u64,
    /// When the world accepted it.
    pub at: Timestamp,
    /// Its content.
    pub body: MessageBody,
    /// Its headers.
    pub headers: Headers,
}
