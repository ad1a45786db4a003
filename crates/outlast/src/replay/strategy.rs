//! Failure strategies and the step after the end: what a run does when its workflow fails, and when it has ended.
//!
//! A run that is retried records `run_retrying`. From then on it is like a run that compensates ([`compensation`]): its
//! future is gone, everything that it began is asked to stop and awaited, and its compensations run. Then, when the
//! recorded time has come, its next generation begins with the same input. Until then payloads are kept for it, and a
//! cancel or the deadline ends it instead.
//!
//! [`compensation`]: super::compensation

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::cut::KeptEvent;
use outlast_core::{
    EndPlan, EndingRun, Event, EventPlace, Failure, FailureStrategy, Marks, MessageBody, MessageId,
    NewMessage, OpNumber, Outbox, Outcome, Payload, ReplayHistory, RunRetrying, Status, Stuck, Timestamp,
    Wait,
};

use super::compensation::PendingEnd;
use super::hooks::{HookKey, carried_payload};
use super::machine::Machine;
use super::operation_table::{OpKind, OperationTable};
use super::state::RunState;
use crate::error::{Error, NextInput};

/// The next try of a workflow that failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NextTryAt {
    /// The number of the failed try, from 1.
    pub(super) attempt: u32,
    /// When the next one begins.
    pub(super) retry_at: Timestamp,
}

impl Machine {
    /// Whether the run begins again when everything of its last generation is over.
    pub(crate) fn is_retrying(&self) -> bool {
        self.pending_retry().is_some()
    }

    /// Whether the run ends for certain: it compensates, and does not begin again.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_compensating() && !self.is_retrying()
    }

    pub(super) fn pending_retry(&self) -> Option<NextTryAt> {
        self.compensating.as_ref().and_then(|pending| pending.retry)
    }

    /// Begins to retry a run whose workflow returned an error, if its strategy says so. Otherwise returns the error.
    pub(super) fn retry_after_return(
        &mut self,
        error: Error,
        requested: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let is_replay = self.state.table.lock().history.is_some();
        if is_replay || self.status_of_error() != Status::Failed {
            return Err(error);
        }
        let FailureStrategy::Retry(policy) = self.strategy() else { return Err(error) };
        let (failure, attempt) = (error.into_failure(), self.state.failed_tries() + 1);
        let mut table = self.state.table.lock();
        // A replay does not come here, so the random numbers of the run stay as they are.
        let random = table.random;
        let chance = table.chance();
        table.random = random;
        drop(table);
        let Some(pause) = policy.pause_after(attempt, &failure, chance) else {
            return Err(Error::of_failure(failure));
        };
        let retry_at = self.state.now().plus(pause);
        self.drop_returned_future();
        let mut table = self.state.table.lock();
        let left = table.drop_hooks();
        table.take_decisions_before_compensating(requested);
        let kept = table.hooks.kept_places();
        drop(table);
        drop(left);
        let retrying = RunRetrying { failure: failure.clone(), attempt, retry_at, kept };
        requested.push(Event::RunRetrying(Box::new(retrying)));
        self.begin_retrying(failure, NextTryAt { attempt, retry_at });
        Ok(())
    }

    /// Begins to wait for everything that the failed generation has begun.
    pub(super) fn begin_retrying(&mut self, failure: Failure, retry: NextTryAt) {
        let compensates = self.state.table.lock().has_unsettled_compensations();
        let (ends_as, is_done, retry) = (Status::Failed, false, Some(retry));
        self.begin_ending(PendingEnd { ends_as, failure, is_done, compensates, retry });
    }

    /// A cancel or the deadline: the run ends when everything of it is over.
    pub(super) fn cancel_retry(&mut self, reason: &str) {
        let mut table = self.state.table.lock();
        table.cancelled_at = table.cancelled_at.or(Some(table.next_op));
        drop(table);
        if let Some(pending) = &mut self.compensating {
            (pending.ends_as, pending.retry) = (Status::Cancelled, None);
            pending.failure = Failure::cancelled(reason);
        }
    }

    /// When the next try begins, if the run waits for nothing else.
    pub(super) fn retry_due(&self) -> Option<Timestamp> {
        let retry = self.pending_retry().filter(|_| self.ended.is_none())?;
        let table = self.state.table.lock();
        (table.is_over() && !table.has_next_compensation()).then_some(retry.retry_at)
    }

    /// The wait for the next try, as the row shows it.
    pub(super) fn retry_wait(&self) -> Option<Wait> {
        let until = self.retry_due()?;
        let op = self.state.table.lock().next_op;
        Some(Wait::Retry { op, name: self.state.workflow().to_owned(), until })
    }

    /// Begins the next try: the next generation, with the same input.
    pub(super) fn begin_next_try(&mut self, retry: NextTryAt, events: &mut Vec<Event>) -> Result<(), Stuck> {
        let next = NextInput { input: self.state.retried_input(), is_pinned: true };
        let failed = self.compensating.take();
        if let Err(stuck) = self.next_generation(next, retry.attempt, events) {
            self.compensating = failed;
            return Err(stuck);
        }
        self.poll_until_pending(events)?;
        self.apply_follow_ups(events)
    }

    /// Restores a run that is retried.
    pub(super) fn restore_retrying(&mut self, retrying: &RunRetrying, payloads: &ArrivedEvents) {
        let kept = retrying.kept.iter().filter_map(|place| payloads.get(place).cloned());
        let kept = kept.filter_map(carried_payload).collect();
        self.state.table.lock().hooks.carry(kept);
        let RunRetrying { failure, attempt, retry_at, .. } = retrying.clone();
        self.begin_retrying(failure, NextTryAt { attempt, retry_at });
    }

    /// Restores a payload that arrived while the run was waiting for its next try.
    pub(super) fn restore_arrival(&mut self, event: &Event) {
        let Event::HookReceived { name, message, payload, headers, at, judgement, to } = event else {
            return;
        };
        if self.is_retrying() {
            let (key, arrival) = (HookKey::of(name, to), (*message, headers.clone(), *at, to.clone()));
            let _ = self.state.table.lock().receive(&key, arrival, payload.clone(), judgement);
        }
    }

    /// The plan for the end of the run: the one that its start recorded, otherwise that of the worker's code.
    fn end_plan(&self) -> Option<Cow<'_, EndPlan>> {
        match self.state.ending() {
            Some(recorded) => Some(Cow::Borrowed(recorded)),
            None => self.code.end_plan(self.state.workflow(), self.state.version()).map(Cow::Owned),
        }
    }

    /// What happens when the run fails.
    fn strategy(&self) -> FailureStrategy {
        let planned = self.end_plan().and_then(|plan| plan.on_failure);
        planned.unwrap_or_else(|| self.code.default_strategy(self.state.workflow()))
    }

    /// The marks of a run that has ended, as far as its strategy decides them.
    pub(super) fn marks_of_strategy(&self) -> Marks {
        let is_kept = self.ended == Some(Status::Failed) && self.strategy() == FailureStrategy::Quarantine;
        if is_kept { Marks::QUARANTINED } else { Marks::NONE }
    }

    /// Adds to the outbox of the last turn what the end of the run causes: the step after it, and the cancel of the run
    /// that awaits it.
    pub(crate) fn add_end_effects(
        &self,
        outcome: &Outcome,
        outbox: &mut Option<Box<Outbox>>,
        mut id: impl FnMut() -> MessageId,
    ) {
        if let (Outcome::Failed(failure), Some((parent, _))) = (outcome, self.awaiting())
            && self.strategy() == FailureStrategy::Cascade
        {
            let body = cascade(&self.state, failure);
            let message = NewMessage { id: id(), run: parent, body, headers: Default::default() };
            outbox.get_or_insert_default().messages.push(message);
        }
        let Some(on_end) = self.end_plan().and_then(|plan| plan.into_owned().on_end) else { return };
        let started = self.state.next_start(Payload::null(), None);
        let table = self.state.table.lock();
        outbox.get_or_insert_default().children.push(on_end.start(&EndingRun {
            run: self.state.run(),
            started: &started,
            tags: &started.tags,
            next_op: OpNumber(table.next_op),
            status: outcome.status(),
            at: table.now,
        }));
    }
}

/// The cancel of a run that is about to begin again. It ends no operations: those of the last try were asked to stop when
/// that try failed.
pub(super) fn cancel_of_retry(message: Option<MessageId>, reason: String, actor: Option<Arc<str>>) -> Event {
    let (pauses, ends, maybe_attempted) = (Vec::new(), Vec::new(), Vec::new());
    Event::CancelRequested { message, reason, actor, pauses, ends, maybe_attempted }
}

/// The cancel of the run that awaits a run which has failed.
fn cascade(state: &RunState, failure: &Failure) -> MessageBody {
    let reason = format!("its child {} (`{}`) failed: {}", state.run(), state.workflow(), failure.message);
    MessageBody::Cancel { reason }
}

impl OperationTable {
    /// Drops the hooks that the future leaves behind, so that payloads which the workflow did not receive are kept.
    fn drop_hooks(&mut self) -> Vec<super::operation_table::Op> {
        let is_hook = |kind: &OpKind| matches!(kind, OpKind::Hook { .. });
        let hooks: Vec<_> =
            self.ops.iter().filter(|(_, slot)| is_hook(&slot.kind)).map(|(op, _)| op).collect();
        hooks.into_iter().filter_map(|op| self.drop_operation(op)).collect()
    }

    fn has_next_compensation(&self) -> bool {
        self.compensations.as_ref().is_some_and(|ledger| ledger.compensations.next().is_some())
    }
}

impl RunState {
    /// What the start of the run decided about its end.
    fn ending(&self) -> Option<&EndPlan> {
        self.ending.as_deref()
    }

    /// The input of the generation, as it is stored.
    fn retried_input(&self) -> Payload {
        self.input.clone()
    }

    /// How often the same input has failed before.
    fn failed_tries(&self) -> u32 {
        self.failed_tries
    }
}

/// The payloads of a history, by their places.
pub(super) type ArrivedEvents = BTreeMap<EventPlace, KeptEvent>;

/// The payloads that a run which is retried may have kept. Empty for other runs.
pub(super) fn arrived_events(history: &ReplayHistory) -> ArrivedEvents {
    let mut arrived = ArrivedEvents::new();
    if !history.events().any(|event| matches!(event, Event::RunRetrying(_))) {
        return arrived;
    }
    let carried = history.kept.iter().chain(history.resumes.iter().flat_map(|resume| &resume.kept));
    arrived.extend(carried.map(|kept| (kept.place, kept.clone())));
    for turn in &history.turns {
        for (event, number) in turn.events.iter().zip(turn.seq..) {
            if matches!(event, Event::HookReceived { .. }) {
                let place = EventPlace { turn: turn.seq, event: number };
                arrived.insert(place, KeptEvent { place, at: turn.at, event: event.clone() });
            }
        }
    }
    arrived
}
