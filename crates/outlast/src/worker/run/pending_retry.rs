//! The first turn of a run that had ended and was reopened: its message is found, and its history split.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast_core::event::TurnRecord;
use outlast_core::limits::INBOX_READ_MAX;
use outlast_core::retried::SplitHistory;
use outlast_core::{
    ACTOR_HEADER, Event, Failure, FailureKind, Message, MessageBody, OpNumber, Outcome, RunId, Status,
    Timestamp, WorldError,
};

use super::exit::Exit;
use super::fact::{Fact, FactKind};
use super::live_run::{LiveRun, read_inbox};
use super::task::RunTask;
use super::turn::outcome_for_parent;
use crate::replay::{Delivery, PendingRetry};
use crate::worker::committer::retry_while_unavailable;
use crate::worker::session::Session;

/// Removes the requests before a retry from messages: they concern the run before its end. Each message stays, so that
/// no position is missing.
pub(crate) fn without_earlier_requests(mut messages: Vec<Message>) -> Vec<Message> {
    let is_retry = |message: &Message| matches!(message.body, MessageBody::Retry(_));
    let Some(retry) = messages.iter().rposition(is_retry) else { return messages };
    for message in &mut messages[..retry] {
        if matches!(
            message.body,
            MessageBody::Cancel { .. }
                | MessageBody::Terminate { .. }
                | MessageBody::Compensate { .. }
                | MessageBody::Pause { .. }
                | MessageBody::Wake { .. }
        ) {
            // A resume does nothing if the run is not paused.
            message.body = MessageBody::Resume;
        }
    }
    messages
}

/// Splits the history of a run that has ended and was reopened: the part that is replayed, and the retry. Other histories
/// are returned unchanged.
pub(super) async fn split_for_retry(
    task: &RunTask,
    history: Vec<TurnRecord>,
    inbox: &[Message],
) -> Result<(Vec<TurnRecord>, Option<Box<PendingRetry>>), Exit> {
    let last = history.last().and_then(|turn| turn.events.last());
    if last.and_then(Status::of_final).is_none() {
        return Ok((history, None));
    }
    let Some((message, request, actor)) = find_retry(task, inbox).await? else { return Ok((history, None)) };
    let SplitHistory { replayed, again, next_op, children, adoptable } = request.split(history);
    let unread_ends = BTreeSet::new();
    let retry = PendingRetry { request, message, actor, next_op, again, children, adoptable, unread_ends };
    Ok((replayed, Some(Box::new(retry))))
}

/// A retry among messages: the id of its message, the request, and who sent it.
pub(in crate::worker) type FoundRetry =
    (outlast_core::MessageId, Arc<outlast_core::RetryRequest>, Option<String>);

/// The last retry among the unread messages. It may be behind the first page of them.
async fn find_retry(task: &RunTask, inbox: &[Message]) -> Result<Option<FoundRetry>, Exit> {
    let mut found = last_retry(inbox);
    let (mut is_full, mut after) = (inbox.len() >= INBOX_READ_MAX, inbox.last().map(|last| last.position));
    while let (true, Some(position)) = (is_full, after) {
        let page = read_inbox(&task.session, task.run, position).await?;
        found = last_retry(&page).or(found);
        (is_full, after) = (page.len() >= INBOX_READ_MAX, page.last().map(|last| last.position));
    }
    Ok(found)
}

pub(in crate::worker) fn last_retry(messages: &[Message]) -> Option<FoundRetry> {
    messages.iter().rev().find_map(|message| match &message.body {
        MessageBody::Retry(request) => {
            let actor = message.headers.get(ACTOR_HEADER).cloned();
            Some((message.id, Arc::new((**request).clone()), actor))
        }
        _ => None,
    })
}

impl LiveRun<'_> {
    /// Corrects messages about the ends of runs that a retry has replaced by others, and about runs that could not be
    /// started: the operation awaits another run now, and the message may concern the one before, which the end of this run
    /// had stopped. It is replaced by the end of the awaited run, or loses its effect if that run has not ended.
    pub(super) async fn correct_ends_of_replaced_runs(&mut self, facts: &mut [Fact]) -> Result<(), Exit> {
        let replaced = self.replaced_by_retry(facts);
        let session = self.task.session.clone();
        for fact in facts {
            let FactKind::Message(message) = &mut fact.kind else { continue };
            let (op, is_refusal) = match message.body {
                MessageBody::ChildEnded { op, .. } => (op, false),
                MessageBody::Refused { op, .. } => (op, true),
                _ => continue,
            };
            // Runs that the retry will start cannot have ended.
            let ended = match self.machine.replacing_run(op) {
                _ if replaced.contains(&op) => None,
                Some(run) if is_refusal && !exists(&session, run).await? => continue,
                Some(run) => end_of(&session, run).await?,
                None => continue,
            };
            // A resume does nothing if the run is not paused.
            message.body =
                ended.map_or(MessageBody::Resume, |outcome| MessageBody::ChildEnded { op, outcome });
        }
        Ok(())
    }

    /// The operations whose runs the retry that is not recorded yet will replace. Queued steps that had ended before this
    /// run are not among them: they do not run again.
    fn replaced_by_retry(&mut self, facts: &[Fact]) -> BTreeSet<OpNumber> {
        let Some(retry) = self.pending_retry.as_deref_mut() else { return BTreeSet::new() };
        let ended = facts.iter().filter_map(|fact| match &fact.kind {
            FactKind::Message(Message { body: MessageBody::ChildEnded { op, outcome }, .. }) => {
                (outcome.status() != Status::Cancelled).then_some(*op)
            }
            _ => None,
        });
        let is_queued = |op: &OpNumber| *op != retry.request.reopens && self.machine.is_queued_step(*op);
        retry.unread_ends = ended.filter(is_queued).collect();
        self.machine.replaced_by(retry)
    }

    /// The ends of children that the run awaits again, and that ended while it had ended itself: nobody has told it.
    pub(super) async fn ends_before_retry(&mut self) -> Result<Vec<Fact>, Exit> {
        let Some(retry) = self.pending_retry.as_deref() else { return Ok(Vec::new()) };
        let is_told = |op| retry.again.iter().any(|(_, event): &(_, Event)| event.op() == Some(op));
        let mut children = self.machine.awaited_children(&retry.request.restarts);
        children.retain(|(op, _)| !is_told(*op));
        self.ends_of(children).await
    }

    /// The ends of children that have ended.
    pub(super) async fn ends_of(&mut self, children: Vec<(OpNumber, RunId)>) -> Result<Vec<Fact>, Exit> {
        let session = self.task.session.clone();
        // A time in the past: the answer is what is known now.
        let past = Timestamp::from_micros(0);
        let mut facts = Vec::new();
        for (op, run) in children {
            let ended = retry_while_unavailable(&session.settings.outage, || session.world.ended(run, past));
            let outcome = match ended.await {
                Ok(Some(ended)) => outcome_for_parent(ended.outcome),
                Ok(None) => continue,
                Err(WorldError::NotFound(_)) => {
                    let message = format!("child {run} was deleted while its parent had ended");
                    Outcome::Failed(Failure::new(FailureKind::Error, message))
                }
                Err(error) => return Err(Exit::read_failed(error)),
            };
            let ended = Box::new(Delivery::ChildEnded { op, outcome });
            facts.push(Fact { at: self.position.at, kind: FactKind::RecoveredOutcome(ended) });
        }
        Ok(facts)
    }
}

/// Whether a run was started.
async fn exists(session: &Session, run: RunId) -> Result<bool, Exit> {
    match retry_while_unavailable(&session.settings.outage, || session.world.event_count(run)).await {
        Ok(_) => Ok(true),
        Err(WorldError::NotFound(_)) => Ok(false),
        Err(error) => Err(Exit::read_failed(error)),
    }
}

/// How a run has ended, as its parent learns it; `None` if it has not, or does not exist yet.
async fn end_of(session: &Session, run: RunId) -> Result<Option<Outcome>, Exit> {
    // A time in the past: the answer is what is known now.
    let past = Timestamp::from_micros(0);
    let ended = retry_while_unavailable(&session.settings.outage, || session.world.ended(run, past));
    match ended.await {
        Ok(ended) => Ok(ended.map(|ended| outcome_for_parent(ended.outcome))),
        Err(WorldError::NotFound(_)) => Ok(None),
        Err(error) => Err(Exit::read_failed(error)),
    }
}
