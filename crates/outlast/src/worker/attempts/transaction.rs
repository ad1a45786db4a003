//! The transaction of one attempt at a transactional step: how far it is, and how it ended.
//!
//! The outcome of such an attempt is a message in the inbox of its own run, which the world adds in the transaction of
//! the step. Two situations need care:
//!
//! * **The attempt is given up** (its timeout has passed, or the workflow has dropped the step) while its transaction is
//!   being committed. Whoever changes [`TransactionStage`] first decides: either the transaction is rolled back, or its
//!   end is awaited.
//! * **The answer to the commit is lost.** Then a message with the same id and no outcome is sent: the inbox accepts one
//!   of the two. If it is this one, the transaction can never commit, and the attempt has failed.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outlast_core::limits::INBOX_READ_MAX;
use outlast_core::{
    Backoff, Event, Message, MessageBody, MessageId, NewMessage, OpNumber, OutcomeSlot, Payload, RunId,
    SessionId, Timestamp, World, WorldError,
};

use crate::authoring::attempt::StopReason;
use crate::clock::pause_before_retry;
use crate::error::StepError;
use crate::replay::StepToAttempt;

/// The pauses between two tries of a call to a world that does not respond.
pub(crate) const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));

/// The code of the step may be running. The attempt can be given up.
const OPEN: u8 = 0;
/// The code of the step has returned, and its outcome is being recorded. The end must be awaited.
const COMMITTING: u8 = 1;
/// The attempt was given up before that: nothing is recorded.
const GIVEN_UP: u8 = 2;

/// How far the transaction of an attempt is: `OPEN`, `COMMITTING` or `GIVEN_UP`.
#[derive(Debug, Default)]
struct TransactionStage(AtomicU8);

impl TransactionStage {
    /// Changes the stage if it is open. Returns whether it is `stage` now.
    fn change(&self, stage: u8) -> bool {
        match self.0.compare_exchange(OPEN, stage, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(now) => now == stage,
        }
    }
}

/// The transaction of one attempt.
#[derive(Debug)]
pub(crate) struct AttemptTransaction {
    pub(crate) world: Arc<dyn World>,
    pub(crate) slot: OutcomeSlot,
    /// The step's operation in the run of the slot.
    op: OpNumber,
    stage: TransactionStage,
    /// The message with the outcome, when it is in the inbox.
    recorded: OnceLock<Message>,
}

impl AttemptTransaction {
    /// The transaction of an attempt, by the session that holds the run.
    pub(super) fn new(world: Arc<dyn World>, session: SessionId, run: RunId, step: &StepToAttempt) -> Self {
        let op = step.op;
        let message = MessageId::of_outcome(run, op.0, step.attempt, step.reopened_by);
        let slot = OutcomeSlot { session, run, message };
        Self { world, slot, op, stage: TransactionStage::default(), recorded: OnceLock::new() }
    }

    /// The events that record this output, or `None` if the attempt was given up. From now on its end is awaited.
    pub(crate) fn begin_commit(&self, output: &Payload) -> Option<Vec<Event>> {
        let completed = || Event::StepCompleted { op: self.op, output: output.clone() };
        self.stage.change(COMMITTING).then(|| vec![completed()])
    }

    /// Gives the attempt up. Returns false if its outcome is being recorded: then its end must be awaited.
    pub(crate) fn give_up(&self) -> bool {
        self.stage.change(GIVEN_UP)
    }

    /// The outcome is in the inbox.
    pub(crate) fn set_recorded(&self, position: u64, at: Timestamp, output: &Payload) {
        let events = vec![Event::StepCompleted { op: self.op, output: output.clone() }];
        let NewMessage { id, body, headers, .. } = self.slot.message(events);
        let _ = self.recorded.set(Message { id, position, at, body, headers });
    }

    /// The message with the outcome, if it is in the inbox.
    pub(super) fn recorded(&self) -> Option<Message> {
        self.recorded.get().cloned()
    }

    /// Decides an attempt whose commit was not answered: prevents the commit if it has not happened, and returns the
    /// outcome if it has.
    pub(crate) async fn decide(
        &self,
        stop_reason: impl Fn() -> Option<StopReason>,
        cause: &WorldError,
    ) -> Result<Payload, StepError> {
        let prevention = self.slot.message(Vec::new());
        let sent = repeat_while_unavailable(&stop_reason, || async {
            let sent = self.world.send(vec![prevention.clone()]).await?;
            sent.into_iter().next().unwrap_or_else(|| Err(WorldError::corrupt("a send has no answer")))
        });
        sent.await?;
        match self.find(&stop_reason).await? {
            Some(output) => Ok(output),
            None => Err(StepError::msg(format!("the transaction of the step was rolled back: {cause}"))),
        }
    }

    /// The outcome with the id of this attempt, if the inbox has one.
    pub(crate) async fn find(
        &self,
        stop_reason: impl Fn() -> Option<StopReason>,
    ) -> Result<Option<Payload>, StepError> {
        let mut after = 0;
        loop {
            let page =
                repeat_while_unavailable(&stop_reason, || self.world.inbox(self.slot.run, after)).await?;
            let is_last = page.len() < INBOX_READ_MAX;
            after = page.last().map_or(after, |last| last.position);
            if let Some(found) = page.into_iter().find(|message| message.id == self.slot.message) {
                let output = output_of(&found.body);
                if output.is_some() {
                    let _ = self.recorded.set(found);
                }
                return Ok(output);
            }
            if is_last {
                return Ok(None);
            }
        }
    }
}

/// The output in a message that records the outcome of a transactional step.
fn output_of(body: &MessageBody) -> Option<Payload> {
    let MessageBody::Attempted { events } = body else { return None };
    events.iter().find_map(|event| match event {
        Event::StepCompleted { output, .. } => Some(output.clone()),
        _ => None,
    })
}

/// Repeats a call while the world is not available, until the worker gives up the run.
async fn repeat_while_unavailable<T, F>(
    stop_reason: impl Fn() -> Option<StopReason>,
    mut call: impl FnMut() -> F,
) -> Result<T, StepError>
where
    F: Future<Output = Result<T, WorldError>>,
{
    let mut backoff = BACKOFF;
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_transient() && stop_reason() != Some(StopReason::Released) => {
                pause_before_retry(&mut backoff).await;
            }
            Err(error) => return Err(refused(&error)),
        }
    }
}

/// The error of an attempt that the world refused. It is attempted again, unless the code of the step is the cause.
pub(crate) fn refused(error: &WorldError) -> StepError {
    match error {
        WorldError::Invalid(message) => StepError::fatal(message.to_string()),
        other => StepError::msg(other.to_string()),
    }
}
