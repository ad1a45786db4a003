//! Facts: what is new for a run, in the order in which the world knew it.

use std::collections::BTreeSet;

use outlast_core::{Event, Message, MessageBody, OpNumber, Timestamp};

use super::attempts::AttemptEnd;
use crate::replay::{Delivery, Machine, SentPayload};
use crate::upkeep::deadline_passed;

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
    /// The outcome of an attempt, from a turn that is not in the history.
    ///
    /// Boxed: it is rare and large, and every fact is moved several times.
    Again(Box<Delivery>),
    /// A timer or timeout, known when it was due.
    Timer(OpNumber),
    /// The run's deadline.
    Deadline,
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

    pub(super) fn deadline(at: Timestamp) -> Self {
        Self { at, what: What::Deadline }
    }

    /// The attempts that these events of a turn tell of, which is not in the history. They have ended and will
    /// not end again.
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
        facts.map(|delivery| Self { at, what: What::Again(Box::new(delivery)) }).collect()
    }

    /// What the history gets of an attempt that ended.
    pub(super) fn into_event(self, machine: &Machine) -> Option<Event> {
        let delivery = match self.what {
            // It does not count: a build that can read the input makes the attempt.
            What::Attempt(end) if end.stuck(machine).is_some() => return None,
            What::Attempt(end) => end.into_delivery(machine),
            What::Again(delivery) => *delivery,
            _ => return None,
        };
        delivery.outcome()
    }

    /// The same without taking the fact.
    pub(super) fn outcome(&self, machine: &Machine) -> Option<Event> {
        match &self.what {
            What::Attempt(end) => end.event(|at| machine.may_retry(end.op, at)),
            What::Again(delivery) => delivery.outcome(),
            _ => None,
        }
    }

    /// The step whose outcome this is, from a turn that is not in the history.
    pub(super) fn again(&self) -> Option<OpNumber> {
        match &self.what {
            What::Again(delivery) => match &**delivery {
                Delivery::StepEnded { op, .. } | Delivery::StepRetried { op, .. } => Some(*op),
                _ => None,
            },
            _ => None,
        }
    }

    /// The steps whose outcomes are among these facts.
    pub(super) fn outcomes_of(facts: &[Self]) -> BTreeSet<OpNumber> {
        let op = |fact: &Self| match &fact.what {
            What::Attempt(end) => Some(end.op),
            _ => fact.again(),
        };
        facts.iter().filter_map(op).collect()
    }

    /// Sorts facts by time; at equal times messages come first and timers last.
    pub(super) fn sort(facts: &mut [Self]) {
        facts.sort_by_key(|fact| (fact.at, fact.what.rank()));
    }
}

/// The step and the attempt whose end an event tells of; 0 for the last one.
pub(super) fn attempt_of(event: &Event) -> Option<(OpNumber, u32)> {
    match event {
        Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } => Some((*op, 0)),
        Event::StepRetried { op, attempt, .. } => Some((*op, *attempt)),
        _ => None,
    }
}

impl What {
    fn rank(&self) -> u8 {
        match self {
            Self::Message(_) => 0,
            Self::Attempt(_) | Self::Again(_) => 1,
            Self::Timer(_) | Self::Deadline => 2,
        }
    }

    /// Whether it tells the run to stop.
    pub(super) fn is_stop(&self) -> bool {
        match self {
            Self::Message(message) => {
                matches!(message.body, MessageBody::Cancel { .. } | MessageBody::Terminate { .. })
            }
            Self::Deadline => true,
            Self::Attempt(_) | Self::Again(_) | Self::Timer(_) => false,
        }
    }

    /// What the run is told.
    pub(super) fn into_delivery(self, machine: &Machine) -> Option<Delivery> {
        Some(match self {
            Self::Message(message) => return of_message(message),
            Self::Attempt(end) => end.into_delivery(machine),
            Self::Again(delivery) => *delivery,
            Self::Timer(op) => Delivery::Timer { op },
            Self::Deadline => {
                let deadline = machine.deadline()?;
                Delivery::Cancel { message: None, reason: deadline_passed(deadline), at: deadline }
            }
        })
    }
}

/// What a message tells the run.
fn of_message(message: Message) -> Option<Delivery> {
    let (id, at, headers) = (message.id, message.at, message.headers);
    Some(match message.body {
        MessageBody::Hook { name, payload } => {
            Delivery::Hook(SentPayload { name, message: id, payload, headers, at })
        }
        MessageBody::Cancel { reason } => Delivery::Cancel { message: Some(id), reason, at },
        MessageBody::Terminate { reason } => Delivery::Terminate { reason },
        MessageBody::Wake { op } => Delivery::Wake { message: id, op, at },
        MessageBody::ChildStarted { op, run } => Delivery::ChildDetached { op, run },
        MessageBody::ChildEnded { op, outcome } => Delivery::ChildEnded { op, outcome },
        MessageBody::Refused { op, failure } => Delivery::Refused { op, failure },
        // Outcomes of attempts are facts of their own; a kind of message that this build does not know cannot be
        // claimed by it.
        _ => return None,
    })
}
