//! Facts: the new things that a turn is computed from, in the order in which the world learned of them.

use std::collections::BTreeSet;

use outlast_core::{Event, Message, MessageBody, OpNumber, Timestamp};

use crate::replay::{Delivery, Machine, SentPayload};
use crate::worker::attempts::attempt_end::AttemptEnd;
use crate::worker::end_without_code::{actor_of, deadline_passed};

/// One new thing, and the time at which the world learned of it.
#[derive(Debug)]
pub(in crate::worker) struct Fact {
    pub(in crate::worker) at: Timestamp,
    pub(in crate::worker) kind: FactKind,
}

/// The kinds of facts.
#[derive(Debug)]
pub(in crate::worker) enum FactKind {
    /// A message; its time is that at which it was accepted.
    Message(Message),
    /// The end of an attempt.
    Attempt(AttemptEnd),
    /// The outcome of an attempt whose turn is not in the history: the turn was refused, or the run was stuck.
    ///
    /// Boxed because it is rare and large, and facts are moved several times.
    RecoveredOutcome(Box<Delivery>),
    /// A timer or timeout; its time is that at which it was due.
    Timer(OpNumber),
    /// The run's deadline.
    Deadline,
}

impl Fact {
    pub(in crate::worker) fn message(message: Message) -> Self {
        Self { at: message.at, kind: FactKind::Message(message) }
    }

    pub(in crate::worker) fn attempt(end: AttemptEnd) -> Self {
        Self { at: end.at, kind: FactKind::Attempt(end) }
    }

    pub(in crate::worker) fn timer((at, op): (Timestamp, OpNumber)) -> Self {
        Self { at, kind: FactKind::Timer(op) }
    }

    pub(in crate::worker) fn deadline(at: Timestamp) -> Self {
        Self { at, kind: FactKind::Deadline }
    }

    /// The facts for the outcomes of attempts among the events of a turn that is not in the history.
    pub(in crate::worker) fn recovered_outcomes(events: Vec<Event>, at: Timestamp) -> Vec<Self> {
        let delivery = |event| {
            Some(match event {
                Event::StepCompleted { op, output } => Delivery::StepEnded { op, outcome: Ok(output) },
                Event::StepFailed { op, failure } => Delivery::StepEnded { op, outcome: Err(failure) },
                Event::StepRetried { op, attempt, failure, retry_at, details } => {
                    Delivery::StepRetried { op, attempt, failure, retry_at, details }
                }
                _ => return None,
            })
        };
        let facts = events.into_iter().filter_map(delivery);
        facts.map(|delivery| Self { at, kind: FactKind::RecoveredOutcome(Box::new(delivery)) }).collect()
    }

    /// The event that records the end of an attempt; `None` for other facts.
    pub(in crate::worker) fn into_event(self, machine: &Machine) -> Option<Event> {
        let delivery = match self.kind {
            // This attempt does not count: a build that can decode the input makes it.
            FactKind::Attempt(end) if end.stuck(machine).is_some() => return None,
            FactKind::Attempt(end) => end.into_delivery(machine),
            FactKind::RecoveredOutcome(delivery) => *delivery,
            _ => return None,
        };
        delivery.outcome()
    }

    /// Like [`into_event`](Self::into_event), but does not consume the fact.
    pub(in crate::worker) fn event(&self, machine: &Machine) -> Option<Event> {
        match &self.kind {
            FactKind::Attempt(end) => end.event(|at| machine.may_retry(end.op, at)),
            FactKind::RecoveredOutcome(delivery) => delivery.outcome(),
            _ => None,
        }
    }

    /// The step whose outcome this is, if it is a recovered outcome.
    pub(in crate::worker) fn recovered_step(&self) -> Option<OpNumber> {
        match &self.kind {
            FactKind::RecoveredOutcome(delivery) => match &**delivery {
                Delivery::StepEnded { op, .. } | Delivery::StepRetried { op, .. } => Some(*op),
                _ => None,
            },
            _ => None,
        }
    }

    /// The steps whose outcomes are among the facts.
    pub(in crate::worker) fn outcomes_of(facts: &[Self]) -> BTreeSet<OpNumber> {
        let op = |fact: &Self| match &fact.kind {
            FactKind::Attempt(end) => Some(end.op),
            _ => fact.recovered_step(),
        };
        facts.iter().filter_map(op).collect()
    }

    /// Sorts facts by time; at equal times messages come first and timers last.
    ///
    /// Messages keep their order if the clock was set back between them: one that was accepted earlier counts as no later
    /// than those behind it. So a timer comes after every message that was accepted before it was due, as worlds require.
    pub(in crate::worker) fn sort(facts: &mut [Self]) {
        let mut next_message = Timestamp::NEVER;
        for fact in facts.iter_mut().rev().filter(|fact| matches!(fact.kind, FactKind::Message(_))) {
            fact.at = fact.at.min(next_message);
            next_message = fact.at;
        }
        facts.sort_by_key(|fact| (fact.at, fact.kind.rank()));
    }
}

/// The step and the number of the attempt whose end an event records; 0 if the step has ended with it.
pub(in crate::worker) fn attempt_of(event: &Event) -> Option<(OpNumber, u32)> {
    match event {
        Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } => Some((*op, 0)),
        Event::StepRetried { op, attempt, .. } => Some((*op, *attempt)),
        _ => None,
    }
}

impl FactKind {
    /// The order of facts with the same time.
    fn rank(&self) -> u8 {
        match self {
            Self::Message(_) => 0,
            Self::Attempt(_) | Self::RecoveredOutcome(_) => 1,
            Self::Timer(_) | Self::Deadline => 2,
        }
    }

    /// The operation that it may end: a step or a child.
    pub(in crate::worker) fn ended_operation(&self) -> Option<OpNumber> {
        match self {
            Self::Attempt(end) => Some(end.op),
            Self::Message(message) => match &message.body {
                MessageBody::ChildEnded { op, .. } => Some(*op),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it asks the run to stop.
    pub(in crate::worker) fn is_stop(&self) -> bool {
        match self {
            Self::Message(message) => {
                let body = &message.body;
                matches!(
                    body,
                    MessageBody::Cancel { .. }
                        | MessageBody::Terminate { .. }
                        | MessageBody::Compensate { .. }
                )
            }
            Self::Deadline => true,
            Self::Attempt(_) | Self::RecoveredOutcome(_) | Self::Timer(_) => false,
        }
    }

    /// What the machine receives.
    pub(in crate::worker) fn into_delivery(self, machine: &Machine) -> Option<Delivery> {
        Some(match self {
            Self::Message(message) => return message_delivery(message),
            Self::Attempt(end) => end.into_delivery(machine),
            Self::RecoveredOutcome(delivery) => *delivery,
            Self::Timer(op) => Delivery::Timer { op },
            Self::Deadline => {
                let deadline = machine.deadline()?;
                Delivery::Cancel {
                    message: None,
                    reason: deadline_passed(deadline),
                    actor: None,
                    at: deadline,
                }
            }
        })
    }
}

/// What the machine receives for a message.
fn message_delivery(message: Message) -> Option<Delivery> {
    let (id, at, headers) = (message.id, message.at, message.headers);
    let actor = || actor_of(&headers);
    Some(match message.body {
        MessageBody::Hook { name, payload, to } => {
            Delivery::Hook(SentPayload { name, message: id, payload, headers, at, to })
        }
        MessageBody::Cancel { reason } => Delivery::Cancel { message: Some(id), reason, actor: actor(), at },
        MessageBody::Terminate { reason } => Delivery::Terminate { reason, actor: actor() },
        MessageBody::Compensate { reason } => Delivery::Compensate { reason, actor: actor() },
        MessageBody::Wake { op } => Delivery::Wake { message: id, op, actor: actor(), at },
        MessageBody::ChildStarted { op, run } => Delivery::ChildDetached { op, run },
        MessageBody::ChildEnded { op, outcome } => Delivery::ChildEnded { op, outcome },
        MessageBody::Refused { op, failure } => Delivery::Refused { op, failure },
        MessageBody::TokenTaken { op } => Delivery::TokenTaken { op },
        // Outcomes of attempts become facts of their own. This build cannot claim runs with unknown kinds of messages.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use outlast_core::{Headers, MessageId};

    use super::*;

    fn message(position: u64, at: i64) -> Fact {
        let (id, at) = (MessageId::from_bits(u128::from(position)), Timestamp::from_micros(at));
        let body = MessageBody::Wake { op: None };
        Fact::message(Message { position, id, at, headers: Headers::default(), body })
    }

    fn timer(at: i64) -> Fact {
        Fact::timer((Timestamp::from_micros(at), OpNumber(0)))
    }

    /// The positions of messages, and 0 for timers.
    fn sorted(mut facts: Vec<Fact>) -> Vec<u64> {
        Fact::sort(&mut facts);
        let position = |fact: &Fact| match &fact.kind {
            FactKind::Message(message) => message.position,
            _ => 0,
        };
        facts.iter().map(position).collect()
    }

    #[test]
    fn facts_are_in_the_order_of_their_times_and_messages_before_timers() {
        assert_eq!(sorted(vec![message(1, 10), message(2, 30), timer(20), timer(30)]), [1, 0, 2, 0]);
    }

    #[test]
    fn messages_between_which_the_clock_was_set_back_keep_their_order_and_come_before_later_timers() {
        assert_eq!(sorted(vec![message(1, 30), message(2, 10), message(3, 40), timer(20)]), [1, 2, 0, 3]);
    }
}
