//! Facts: what is new for a run, in the order in which the world knew it.

use outlast_core::{Event, Message, MessageBody, OpNumber, Timestamp};

use super::attempts::AttemptEnd;
use crate::replay::{Delivery, Machine};

/// Something new, and when the world knew it.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) at: Timestamp,
    pub(super) what: What,
}

/// What is new.
#[derive(Debug)]
pub(super) enum What {
    /// A message, known when it was accepted.
    Message(Message),
    /// An attempt, known when it ended.
    Attempt(AttemptEnd),
    /// The outcome of an attempt, from a turn that the world refused.
    Again(Delivery),
    /// A timer or timeout, known when it was due.
    Timer(OpNumber),
}

impl Fact {
    pub(super) fn message(message: Message) -> Self {
        Self { at: message.at, what: What::Message(message) }
    }

    pub(super) fn attempt(end: AttemptEnd) -> Self {
        Self { at: end.at, what: What::Attempt(end) }
    }

    pub(super) fn timer((at, op): (Timestamp, OpNumber)) -> Self {
        Self { at, what: What::Timer(op) }
    }

    /// The attempts that a refused turn was told of. They have ended and will not end again.
    pub(super) fn attempts_of(events: Vec<Event>, at: Timestamp) -> Vec<Self> {
        let again = |event| {
            Some(match event {
                Event::StepCompleted { op, output } => Delivery::StepEnded { op, outcome: Ok(output) },
                Event::StepFailed { op, failure } => Delivery::StepEnded { op, outcome: Err(failure) },
                Event::StepRetried { op, attempt, failure, retry_at, details } => {
                    Delivery::StepRetried { op, attempt, failure, retry_at, details }
                }
                _ => return None,
            })
        };
        let facts = events.into_iter().filter_map(again);
        facts.map(|delivery| Self { at, what: What::Again(delivery) }).collect()
    }

    /// Sorts facts by time; at equal times messages come first and timers last.
    pub(super) fn sort(facts: &mut [Self]) {
        facts.sort_by_key(|fact| (fact.at, fact.what.rank()));
    }
}

impl What {
    fn rank(&self) -> u8 {
        match self {
            Self::Message(_) => 0,
            Self::Attempt(_) | Self::Again(_) => 1,
            Self::Timer(_) => 2,
        }
    }

    /// What the run is told.
    pub(super) fn into_delivery(self, machine: &Machine) -> Option<Delivery> {
        Some(match self {
            Self::Message(message) => match message.body {
                MessageBody::Hook { name, payload } => Delivery::Hook { name, message: message.id, payload },
                MessageBody::Cancel { reason } => {
                    Delivery::Cancel { message: message.id, reason, at: message.at }
                }
                // A kind of message that this build does not know cannot be claimed by it.
                _ => return None,
            },
            Self::Attempt(end) => end.into_delivery(machine),
            Self::Again(delivery) => delivery,
            Self::Timer(op) => Delivery::Timer { op },
        })
    }
}
