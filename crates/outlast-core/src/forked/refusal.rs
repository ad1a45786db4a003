//! Why a run cannot be forked.

use std::sync::Arc;

use crate::event::OpNumber;

/// Why a run cannot be forked there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForkRefusal {
    /// Nothing would be copied.
    #[error("a fork before event 0 has no events; restart the run instead")]
    Nothing,
    /// It has no such event.
    #[error("it has no event {at}: its history has {events} events; fork at 1 to {events}")]
    NoSuchEvent {
        /// The event.
        at: u64,
        /// The number of events.
        events: u64,
    },
    /// The history before the event is deleted.
    #[error(
        "the events before event {0} belong to a generation, or to an iteration of a loop, whose history is deleted; \
         fork at a later event, or restart the run"
    )]
    Deleted(u64),
    /// The run had ended before the event.
    #[error("it had ended with event {0}; fork at event {0} or an earlier one")]
    Ended(u64),
    /// Its code does not run any more at the event.
    #[error(
        "it had begun to compensate, or to begin again, with event {0}; fork at event {0} or an earlier one"
    )]
    Compensating(u64),
    /// An open operation belongs to the other run, and cannot be asked for again.
    #[error("operation {op} is open there, and {why}; fork at event {before} or an earlier one")]
    NotAskable {
        /// The operation.
        op: OpNumber,
        /// Why.
        why: String,
        /// The event that requested it.
        before: u64,
    },
    /// It has no such operation, or not in its current generation.
    #[error("it has no operation {0} that a replay reads; `steps` lists the operations of a run")]
    NoSuchOperation(OpNumber),
    /// The outcome of the operation cannot be replaced.
    #[error("operation {0} cannot get another outcome: {1}")]
    NotReplaceable(OpNumber, &'static str),
    /// The operation did not exist when the earliest outcome was recorded.
    #[error(
        "operation {op} was requested after the outcome of operation {first}, and everything after that is dropped; \
         fork the fork when it has come that far"
    )]
    RequestedLater {
        /// The operation.
        op: OpNumber,
        /// The operation with the earliest outcome.
        first: OpNumber,
    },
    /// A step would be attempted again that is attempted at most once.
    #[error(
        "step `{1}` (operation {0}) is attempted at most once, and would be attempted again; force the fork if that is safe"
    )]
    AtMostOnce(OpNumber, Arc<str>),
}
