//! One turn of a live run: computed from facts, then committed.
//!
//! A turn that requests very many operations is committed in [parts].

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::future::{Either, select};
use outlast_core::limits::{HISTORY_EVENTS_MAX, HISTORY_EVENTS_WARN, HISTORY_ROOM_EVENTS, INBOX_READ_MAX};
use outlast_core::turn::BasedOn;
use outlast_core::{
    Committed, Event, FailedCompensations, Headers, HolderColumns, MessageBody, NewMessage, Outbox, Outcome,
    Stuck, StuckReason, Then, Timestamp, Turn, TurnColumns, TurnId, WorldError,
};

use super::exit::Exit;
use super::fact::{Fact, FactKind};
use super::live_run::{LiveRun, read_inbox};
use super::parts::{self, FirstPart};
use super::turn_metrics::TurnMetrics;
use crate::authoring::attempt::StopReason;
use crate::clock::monotonic;
use crate::ids;
use crate::replay::Delivery;
use crate::telemetry::trace;
use crate::worker::attempts::attempt_end::FailedAttempt;
use crate::worker::committer::PendingCommit;

/// The number of events of most turns: an outcome, and a request or the end of the run.
pub(super) const EVENTS_OF_MOST_TURNS: usize = 2;

/// A computed turn, before it is committed.
pub(in crate::worker) struct Draft {
    pub(super) at: Timestamp,
    pub(super) events: Vec<Event>,
    consumed: u64,
    fired_until: Option<Timestamp>,
    is_cancel: bool,
    /// Whether a wake may have ended the pause of a step.
    pub(super) wakes_step: bool,
    /// The number of operations that the run had requested before this turn.
    pub(super) ops_before: u64,
    /// The failed attempts that it was computed from.
    failed: Vec<FailedAttempt>,
    /// What the first part contains, if the turn is committed in parts.
    first_part: FirstPart,
}

/// The turn of a draft, and what its commit needs to know about it.
pub(super) struct BuiltTurn {
    /// The turn, or its first part.
    pub(super) turn: Turn,
    /// The other parts.
    pub(super) rest: Vec<Turn>,
    /// What happens to the run after the last part.
    pub(super) then: Then,
    pub(super) is_cancel: bool,
    pub(super) failed: Vec<FailedAttempt>,
    pub(super) ops_before: u64,
}

impl Draft {
    fn new(events: Vec<Event>, at: Timestamp, consumed: u64, ops_before: u64) -> Self {
        Self {
            at,
            events,
            consumed,
            fired_until: None,
            is_cancel: false,
            wakes_step: false,
            ops_before,
            failed: Vec::new(),
            first_part: FirstPart { consumed, ..FirstPart::default() },
        }
    }
}

impl LiveRun<'_> {
    /// The draft of the first turn, whose events are computed already. Fails if this build cannot commit it.
    pub(in crate::worker) async fn first_draft(&mut self, events: Vec<Event>) -> Result<Box<Draft>, Exit> {
        let mut draft = Box::new(Draft::new(events, self.position.at, 0, 0));
        self.limit_history(&mut draft).map_err(Exit::Stuck)?;
        self.check_by_replay(&draft, true).await?;
        Ok(draft)
    }

    /// Computes a turn from new facts, and commits it. Returns the facts for the next turn. Requests of the run that
    /// are not in the history yet are committed first, in a turn of their own, so that this turn can be committed in
    /// parts.
    pub(super) async fn turn(&mut self, mut facts: Vec<Fact>, is_fresh: bool) -> Result<Vec<Fact>, Exit> {
        if self.machine.has_unrecorded() && !facts.is_empty() {
            // Boxed because it is rare and large, and would enlarge the state of every run. If this turn releases the
            // run, the facts are dropped: they are messages and timers, which the next holder reads again.
            facts.extend(Box::pin(self.compute_and_commit(Vec::new(), false)).await?);
            // A replay in the meantime does not know them.
            self.machine.expect_outcomes(&Fact::outcomes_of(&facts));
        }
        self.compute_and_commit(facts, is_fresh).await
    }

    /// Computes one turn from facts, and commits it. Returns the facts for the next turn.
    async fn compute_and_commit(&mut self, mut facts: Vec<Fact>, is_fresh: bool) -> Result<Vec<Fact>, Exit> {
        if self.pending_retry.is_some() || self.machine.has_replaced_runs() {
            // Boxed because it is rare, and would enlarge the state of every run.
            Box::pin(self.correct_ends_of_replaced_runs(&mut facts)).await?;
        }
        let draft = Box::new(self.draft(facts, is_fresh).map_err(Exit::Stuck)?);
        if let Err(exit) = self.check_by_replay(&draft, false).await {
            self.keep_unrecorded(draft.events, draft.ops_before, None);
            return Err(exit);
        }
        let Some(mut submitted) = self.submit_draft(*draft) else { return Ok(Vec::new()) };
        if let Some(facts) = self.finish_commit(&mut submitted.first).await? {
            return Ok(facts);
        }
        if let Some(facts) = self.commit_rest(&mut submitted.rest).await? {
            return Ok(facts);
        }
        if let Some(skipped) = submitted.skipped.take() {
            // Boxed because it is rare, and would enlarge the state of every run.
            Box::pin(skipped.delete(&*self.task.session.world, self.task.run)).await;
        }
        if submitted.stops_attempts {
            self.ask_attempts_to_stop();
        }
        let then = submitted.then;
        if then == Then::Hold && self.machine.take_adopted() {
            // Boxed because it is rare, and would enlarge the state of every run.
            return Box::pin(self.after_adoption()).await;
        }
        self.after_commit(then)
    }

    /// Counts a committed turn.
    pub(super) fn count_turn(&self, counted: Option<Box<TurnMetrics>>) {
        if let Some(counted) = counted {
            counted.count(&self.task.session.settings.metrics, self.machine.run_state().workflow());
        }
    }

    /// Asks the attempts to stop, because the run was cancelled. Attempts at shielded steps are spared until the run
    /// has ended.
    fn ask_attempts_to_stop(&self) {
        let spared = if self.machine.ended().is_some() { BTreeSet::new() } else { self.machine.shielded() };
        self.attempts.ask_to_stop_except(&spared, StopReason::Cancelled);
    }

    /// Computes a turn from facts. It is not committed yet. If the run is stuck, keeps the outcomes of attempts among
    /// the facts, so that they can be stored.
    fn draft(&mut self, mut facts: Vec<Fact>, is_fresh: bool) -> Result<Draft, Stuck> {
        let began = monotonic();
        let _computing = self.task.mailbox.begin_computing(began);
        self.ended_compensations.clear();
        Fact::sort(&mut facts);
        self.publish_outcomes(&facts);
        let mut facts = facts.into_iter();
        let at = self.task.session.clock.now().max(self.position.at);
        let events = Vec::with_capacity(EVENTS_OF_MOST_TURNS);
        let mut draft = Draft::new(events, at, self.position.consumed, self.machine.requested_ops());
        self.machine.set_time(at);
        self.machine.set_first_event(self.position.seq);
        self.machine.set_maybe_attempted(&self.maybe_attempted);
        let computed = self.compute(&mut draft, &mut facts, is_fresh);
        self.task.session.settings.metrics.turn_time.time(monotonic().saturating_sub(began));
        match computed {
            Ok(()) => Ok(draft),
            Err(stuck) => {
                self.keep_unrecorded(draft.events, draft.ops_before, facts);
                Err(stuck)
            }
        }
    }

    /// Delivers all facts to the machine, and checks the resulting turn.
    fn compute(
        &mut self,
        draft: &mut Draft,
        facts: &mut impl Iterator<Item = Fact>,
        is_fresh: bool,
    ) -> Result<(), Stuck> {
        if is_fresh {
            self.machine.begin(&mut draft.events)?;
        }
        if let Some(end) = self.requested_end.take() {
            self.machine.end_compensating(end.failure, end.actor, &mut draft.events);
        }
        self.machine.fork(&mut draft.events)?;
        if let Some(retry) = &self.pending_retry {
            self.machine.retry(retry, &mut draft.events)?;
        }
        self.machine.record_unrecorded_requests(&mut draft.events)?;
        for fact in facts {
            self.deliver(draft, fact)?;
        }
        self.limit_history(draft)?;
        self.compensate(draft)?;
        match self.machine.cannot_attempt(&*self.task.session.settings.code) {
            Some(stuck) => Err(stuck),
            None => Ok(()),
        }
    }

    /// Delivers one fact to the machine.
    fn deliver(&mut self, draft: &mut Draft, fact: Fact) -> Result<(), Stuck> {
        let is_read = matches!(fact.kind, FactKind::Message(_) | FactKind::Timer(_) | FactKind::Deadline);
        if is_read && self.machine.ended().is_some() {
            // What comes after the end stays unread: a retry delivers it.
            return Ok(());
        }
        match &fact.kind {
            FactKind::Message(message) => {
                draft.consumed = draft.consumed.max(message.position);
                draft.wakes_step |= matches!(message.body, MessageBody::Wake { op: Some(op) } if self.machine.is_open_step(op));
                let body = &message.body;
                draft.is_cancel |= matches!(
                    body,
                    MessageBody::Cancel { .. }
                        | MessageBody::Terminate { .. }
                        | MessageBody::Compensate { .. }
                );
            }
            FactKind::Timer(_) => {
                draft.fired_until = Some(fact.at);
                self.task.session.settings.metrics.timer_lag.time(draft.at.since(fact.at));
            }
            FactKind::Deadline => {
                draft.fired_until = Some(fact.at);
                draft.is_cancel = true;
            }
            FactKind::Attempt(end) => {
                if let Some(stuck) = end.stuck(&self.machine) {
                    return Err(stuck);
                }
                draft.failed.extend(end.failed());
            }
            FactKind::RecoveredOutcome(_) => {}
        }
        if fact.kind.is_stop() {
            self.prevent_attempts();
        }
        let ended = fact.kind.ended_operation();
        self.ended_compensations.extend(ended.filter(|op| self.machine.is_compensation(*op)));
        let events_before = draft.events.len();
        if let Some(delivery) = fact.kind.into_delivery(&self.machine) {
            self.machine.deliver(delivery, &mut draft.events)?;
        }
        if draft.events.len() > events_before {
            (draft.first_part.consumed, draft.first_part.fired_until) = (draft.consumed, draft.fired_until);
        }
        Ok(())
    }

    /// Limits the length of the history: at the limit the run is cancelled, so that it can clean up; if it grows
    /// further, it fails.
    fn limit_history(&mut self, draft: &mut Draft) -> Result<(), Stuck> {
        let before = self.position.seq - self.position.columns.replay_from;
        // Events before the last cut do not count.
        let events = match draft.events.iter().rposition(Event::is_cut) {
            Some(cut) => (draft.events.len() - cut) as u64,
            None => before + draft.events.len() as u64,
        };
        if before < HISTORY_EVENTS_WARN && events >= HISTORY_EVENTS_WARN {
            let limit = HISTORY_EVENTS_MAX;
            tracing::warn!(
                run = %self.task.run, events, limit,
                "the history of a run is long; move parts of the work into children, or continue with `ctx.continue_as`"
            );
        }
        if events < HISTORY_EVENTS_MAX || self.machine.ended().is_some() {
            return Ok(());
        }
        if !self.machine.is_cancelled() {
            let reason = format!(
                "its history has {events} events, the limit is {HISTORY_EVENTS_MAX}; \
                 let children do parts of the work, or continue with `ctx.continue_as`"
            );
            draft.is_cancel = true;
            self.prevent_attempts();
            let cancel = Delivery::Cancel { message: None, reason, actor: None, at: draft.at };
            return self.machine.deliver(cancel, &mut draft.events);
        }
        if events >= HISTORY_EVENTS_MAX + HISTORY_ROOM_EVENTS {
            self.machine.fail_at_history_limit(&mut draft.events);
        }
        Ok(())
    }

    /// The effects of a turn on other runs. If it ends the run, they include the message to the parent that awaits it.
    fn outbox(&mut self, events: &[Event]) -> Option<Box<Outbox>> {
        let mut outbox = self.machine.take_outbox(ids::message);
        if let Some(outcome) = events.last().and_then(Outcome::of_final).map(outcome_for_parent) {
            // A cancel of the parent comes before the outcome, so that the parent cannot complete in between.
            self.machine.add_end_effects(&outcome, &mut outbox, ids::message);
            if let Some((run, op)) = self.machine.awaiting() {
                let (id, headers) = (ids::message(), Headers::new());
                let body = MessageBody::ChildEnded { op, outcome };
                outbox.get_or_insert_default().messages.push(NewMessage { id, run, body, headers });
            }
        }
        outbox.map(trace::with_current_context)
    }

    /// Builds the turn that commits a draft.
    pub(super) fn build_turn(&mut self, draft: Draft, id: TurnId, based_on: BasedOn) -> BuiltTurn {
        let then = if let Some(status) = self.machine.ended() {
            self.task.session.set_ending(self.task.run);
            Then::End(status)
        } else if !self.must_hold() {
            Then::Wait { wake_at: self.machine.next_due(), waits: self.machine.waits() }
        } else if self.may_release() {
            Then::Release
        } else {
            Then::Hold
        };
        let first_part = FirstPart { settled_messages: self.machine.settled_messages(), ..draft.first_part };
        let outbox = self.outbox(&draft.events);
        let crashes = self.crash_suspects.crashes_after(self.position.columns.crashes, &draft.events);
        let before = &self.position.columns;
        let deadline = before.deadline.filter(|_| !draft.is_cancel && !self.machine.is_ending());
        let has_cut = draft.events.iter().any(Event::is_cut);
        let replay_from = if has_cut { self.position.seq } else { before.replay_from };
        let after = HolderColumns { crashes, deadline, replay_from, ..self.machine.shown(before) };
        let turn = Turn {
            run: self.task.run,
            id,
            based_on,
            seq: self.position.seq,
            at: draft.at,
            build: self.task.session.settings.build.clone(),
            events: draft.events,
            consumed: draft.consumed,
            fired_until: draft.fired_until,
            columns: TurnColumns::changed(self.position.columns.clone(), after),
            outbox,
            then: then.clone(),
        };
        let (turn, rest) = parts::split(turn, first_part, self.task.session.settings.part_events);
        let Draft { is_cancel, failed, ops_before, .. } = draft;
        BuiltTurn { turn, rest, then, is_cancel, failed, ops_before }
    }

    /// Awaits a commit, and polls the attempts in the meantime.
    pub(super) async fn await_commit(&mut self, commit: &mut PendingCommit) -> Result<Committed, WorldError> {
        let mut commit = pin!(commit.answer());
        while !self.attempts.is_empty() {
            let end = match select(commit.as_mut(), pin!(self.attempts.next())).await {
                Either::Left((answer, _)) => return answer,
                Either::Right((end, _)) => end,
            };
            self.accept_end_later(end);
        }
        commit.await
    }

    /// Delivers the ends of adopted children that have ended, or lets the run wait for them.
    async fn after_adoption(&mut self) -> Result<Vec<Fact>, Exit> {
        let mut facts = std::mem::take(&mut self.arrived_during_commit);
        facts.extend(self.ends_of(self.machine.adopted_children()).await?);
        if facts.is_empty() && !self.must_hold() {
            return self.compute_and_commit(facts, false).await;
        }
        Ok(facts)
    }

    /// Continues or exits after a turn was committed.
    pub(super) fn after_commit(&mut self, then: Then) -> Result<Vec<Fact>, Exit> {
        match then {
            Then::Hold => Ok(std::mem::take(&mut self.arrived_during_commit)),
            Then::End(status) => {
                self.task.session.settings.meter.ended(status);
                self.detach_attempts();
                self.task.session.heartbeats.run_ended(self.task.run);
                Err(Exit::Ended)
            }
            _ => {
                self.detach_attempts();
                Err(Exit::Released)
            }
        }
    }

    /// Moves the running attempts, which the run does not await, to a task of their own.
    fn detach_attempts(&mut self) {
        if !self.attempts.is_empty()
            && let Some(detached) = std::mem::take(&mut self.attempts).detach()
        {
            self.task.session.runtime.spawn(detached);
        }
    }

    /// Replays the run and reads its inbox again, after the world has refused a turn because the run has changed, or
    /// after a pause. Returns the facts for a new turn; `outcomes` are those of the refused turn.
    pub(super) async fn facts_after_replay(
        &mut self,
        outcomes: Vec<Event>,
        at: Timestamp,
        ops_before: u64,
    ) -> Result<Vec<Fact>, Exit> {
        *self.machine = match self.replayed(None, false).await {
            Ok(machine) => machine,
            Err(exit) => {
                self.keep_unrecorded(outcomes, ops_before, None);
                return Err(exit);
            }
        };
        let inbox = read_inbox(&self.task.session, self.task.run, self.position.consumed).await?;
        let is_inbox_complete = inbox.len() < INBOX_READ_MAX;
        let mut facts = std::mem::take(&mut self.arrived_during_commit);
        facts.extend(Fact::recovered_outcomes(outcomes, at));
        // All unread messages become facts again, each with the time at which it was accepted.
        self.recorded_outcomes.clear();
        self.read_position = self.position.consumed;
        self.accept_messages(inbox, &mut facts);
        self.machine.expect_outcomes(&Fact::outcomes_of(&facts));
        if is_inbox_complete {
            self.add_due_timers(&mut facts);
        }
        Ok(facts)
    }
}

/// The outcome for a parent. It may be held by an older build, which cannot read the list of failed compensations; the
/// message names them. The operation that failed is none of the parent's.
pub(super) fn outcome_for_parent(mut outcome: Outcome) -> Outcome {
    if let Outcome::Failed(failure) | Outcome::Cancelled(failure) = &mut outcome {
        failure.op = None;
        failure.failed_compensations = FailedCompensations::default();
    }
    outcome
}

/// Why a run is stuck whose turn the world refuses, and would refuse again.
pub(super) fn refused(error: &WorldError) -> Stuck {
    let message = format!("the world refuses the run's turn: {error}");
    Stuck::new(StuckReason::Refused, message)
}
