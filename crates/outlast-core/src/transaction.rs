//! Transactions of steps: the request of the engine to a world that has them, and the response.
//!
//! The code of a transactional step changes rows of the user in the same database as the runs. Its outcome is recorded
//! in the same transaction, as a message to its own run. So the effect happens if and only if the outcome is recorded,
//! and since a run accepts a message id once, it happens once.

use crate::error::WorldError;
use crate::event::Event;
use crate::id::{MessageId, RunId, SessionId};
use crate::message::{Headers, MessageBody, NewMessage};
use crate::time::Timestamp;

/// The attempt whose outcome a transaction records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutcomeSlot {
    /// The session of the worker. It must hold the run when the transaction commits.
    pub session: SessionId,
    /// The run to whose inbox the outcome is added.
    pub run: RunId,
    /// The id of the message, by [`MessageId::of_outcome`]: the inbox contains at most one.
    pub message: MessageId,
}

impl OutcomeSlot {
    /// The message that records these events.
    pub fn message(&self, events: Vec<Event>) -> NewMessage {
        let body = MessageBody::Attempted { events };
        NewMessage { id: self.message, run: self.run, body, headers: Headers::new() }
    }
}

/// How a transaction of a step ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Transacted {
    /// It is committed. The outcome is in the inbox, at this position and accepted at this time.
    Committed {
        /// The position in the inbox.
        position: u64,
        /// When the world accepted the outcome.
        at: Timestamp,
    },
    /// It was rolled back, because the code of the step returned no outcome.
    RolledBack,
    /// It was rolled back, because the inbox has a message with this id.
    AlreadyRecorded,
    /// The world refused the outcome, and rolled the transaction back. `Fenced` when the session does not hold the run.
    Refused(WorldError),
    /// There is no answer to the commit: the transaction may be committed or not, or may still be.
    Unknown(WorldError),
    /// It has not begun, and the code of the step was not called.
    NotBegun(WorldError),
}
