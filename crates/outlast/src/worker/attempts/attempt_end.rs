//! The end of one attempt, and what it means for the step: an outcome, or another attempt.

use std::sync::Arc;

use outlast_core::{AttemptId, Event, Message, OpNumber, Payload, Policy, Stuck, Timestamp};

use crate::error::{NextAttempt, StepError};
use crate::ids::chance;
use crate::replay::{Delivery, Machine};

/// The end of one attempt.
#[derive(Debug)]
pub(in crate::worker) struct AttemptEnd {
    pub(in crate::worker) op: OpNumber,
    pub(in crate::worker) at: Timestamp,
    pub(super) result: Result<Payload, Box<AttemptFailure>>,
    /// The message with the outcome, if the attempt has recorded it in the inbox. Boxed because few attempts do.
    pub(in crate::worker) recorded: Option<Box<Message>>,
}

/// An attempt that failed. Boxed in [`AttemptEnd`], because most attempts succeed, and ends are moved several times.
#[derive(Debug)]
pub(super) struct AttemptFailure {
    pub(super) id: AttemptId,
    pub(super) name: Arc<str>,
    /// The number of the attempt, from 1.
    pub(super) attempt: u32,
    pub(super) policy: Policy,
    /// The details of its last heartbeat.
    pub(super) details: Option<Payload>,
    pub(super) error: StepError,
}

/// A failed attempt: its step, its number and its id.
#[derive(Clone, Copy, Debug)]
pub(in crate::worker) struct FailedAttempt {
    pub(in crate::worker) op: OpNumber,
    pub(in crate::worker) attempt: u32,
    pub(in crate::worker) id: AttemptId,
}

impl AttemptEnd {
    /// Why the run is stuck because of this attempt: the step's code cannot decode the input, or it used the context of
    /// a run. Such an attempt has not failed.
    pub(in crate::worker) fn stuck(&self, machine: &Machine) -> Option<Stuck> {
        self.result.as_ref().err()?.error.stuck(machine.rules())
    }

    /// The event that records the end. `None` if the step's code cannot decode the input: a build that can makes the
    /// attempt. Also `None` if the inbox has the outcome.
    pub(in crate::worker) fn event(&self, may_retry: impl FnOnce(Timestamp) -> bool) -> Option<Event> {
        let op = self.op;
        let delivery = match &self.result {
            Ok(_) if self.recorded.is_some() => return None,
            Ok(output) => Delivery::StepEnded { op, outcome: Ok(output.clone()) },
            Err(failure) if failure.error.is_stuck(2) => return None,
            Err(failure) => {
                let may_retry = |at| if may_retry(at) { Ok(()) } else { Err(None) };
                failure.copy().into_delivery(op, self.at, may_retry)
            }
        };
        delivery.outcome()
    }

    /// The step, number and id of the attempt, if it failed.
    pub(in crate::worker) fn failed(&self) -> Option<FailedAttempt> {
        let AttemptFailure { id, attempt, .. } = **self.result.as_ref().err()?;
        Some(FailedAttempt { op: self.op, attempt, id })
    }

    /// What the machine receives: the outcome of the step, or that another attempt follows.
    pub(in crate::worker) fn into_delivery(self, machine: &Machine) -> Delivery {
        let op = self.op;
        match self.result {
            Ok(output) => Delivery::StepEnded { op, outcome: Ok(output) },
            Err(failure) => {
                failure.into_delivery(op, self.at, |retry_at| match machine.may_retry(op, retry_at) {
                    true => Ok(()),
                    false if machine.rules() < 2 => Err(None),
                    false => Err(machine.deadline_before(op, retry_at)),
                })
            }
        }
    }
}

impl AttemptFailure {
    fn copy(&self) -> Self {
        let (name, details, error) = (self.name.clone(), self.details.clone(), self.error.copy());
        Self { name, details, error, ..*self }
    }

    /// Decides whether another attempt follows. `may_retry` says whether it may begin at a given time; if not, it may
    /// return the deadline that prevents it.
    fn into_delivery(
        self,
        op: OpNumber,
        at: Timestamp,
        may_retry: impl FnOnce(Timestamp) -> Result<(), Option<Timestamp>>,
    ) -> Delivery {
        let Self { name, attempt, policy, details, error, .. } = self;
        let (failure, next) = error.into_parts();
        let retry = policy.retry();
        let pause = retry.pause_after(attempt, &failure, chance());
        let retry_at = pause.map(|pause| next.unwrap_or(NextAttempt::After(pause)).moment(at));
        let is_exhausted = failure.kind.is_retryable() && retry.is_exhausted(attempt);
        let mut failure = failure.of_step(&*name, attempt);
        failure.is_exhausted = is_exhausted;
        let Some(retry_at) = retry_at else {
            return Delivery::StepEnded { op, outcome: Err(failure) };
        };
        match may_retry(retry_at) {
            Ok(()) => {
                let details = details.map(Box::new);
                Delivery::StepRetried { op, attempt, failure, retry_at, details }
            }
            Err(deadline) => {
                if let Some(deadline) = deadline {
                    failure.add_to_message(&format!(
                        " (not attempted again: that would be at {retry_at}, after the run's deadline of {deadline})"
                    ));
                }
                Delivery::StepEnded { op, outcome: Err(failure) }
            }
        }
    }
}
