//! A live run with its machine: held by this worker, turn by turn, until it waits, ends, is lost or is stuck.
//!
//! The loop is: start the attempts that the last commit announced, wait for new facts, compute a turn from them, commit
//! it (`turn.rs`). At most one commit of a run is in progress; facts that arrive during a commit belong to the next
//! turn.

use std::collections::BTreeSet;

use outlast_core::limits::INBOX_READ_MAX;
use outlast_core::state::is_paused_by;
use outlast_core::{
    Committed, Event, HeartbeatDetails, Message, MessageBody, OpNumber, RunId, Timestamp, WorldError,
};

use super::crash_suspects::CrashSuspects;
use super::exit::{Exit, ReleasedMachine};
use super::fact::{Fact, attempt_of};
use super::mailbox::MailboxItem;
use super::pending_retry::without_earlier_requests;
use super::position::RunPosition;
use super::submitted_turn::SubmittedDraft;
use super::task::RunTask;
use crate::replay::{Machine, PendingRetry};
use crate::worker::attempts::{AttemptEnvironment, Attempts};
use crate::worker::committer::retry_while_unavailable;
use crate::worker::end_without_code::RequestedEnd;
use crate::worker::session::Session;

/// A live run with its machine.
pub(in crate::worker) struct LiveRun<'a> {
    pub(super) task: &'a mut RunTask,
    /// In a box, because it is moved several times between the parts of the run's task.
    pub(super) machine: Box<Machine>,
    pub(super) position: RunPosition,
    pub(super) attempts: Attempts,
    /// Steps that a lost worker may have attempted.
    pub(super) maybe_attempted: BTreeSet<OpNumber>,
    /// Facts that arrived while a commit was in progress.
    pub(super) arrived_during_commit: Vec<Fact>,
    /// The position of the last message that became a fact.
    pub(super) read_position: u64,
    /// Whether the last of these messages that decides it has paused the run.
    pub(super) has_unread_pause: bool,
    /// Whether one of these messages has asked the run to stop.
    has_unread_stop: bool,
    /// The time up to which timers and retry pauses were checked.
    pub(super) timers_checked_at: Timestamp,
    pub(super) is_stopping: bool,
    /// Outcomes of attempts from a turn that is not committed, because the run is stuck.
    pub(super) unrecorded_outcomes: Vec<Event>,
    /// The attempts, as by [`attempt_of`], whose outcomes are in the inbox: they need not be stored again if the run is
    /// stuck again.
    pub(super) outcomes_in_inbox: BTreeSet<(OpNumber, u32)>,
    /// Outcomes that attempts have recorded in the inbox, and that are not facts yet.
    pub(super) recorded_outcomes: Vec<Message>,
    /// The steps that may have crashed the run's worker.
    pub(super) crash_suspects: CrashSuspects,
    /// The heartbeat details of attempts that were lost with their worker.
    pub(super) lost_details: Vec<HeartbeatDetails>,
    /// The retry of the run, until a turn has recorded it.
    pub(super) pending_retry: Option<Box<PendingRetry>>,
    /// The failure with which the run ends after its compensations, if it was asked to end without its code.
    pub(super) requested_end: Option<Box<RequestedEnd>>,
    /// The compensations that end with the turn that is being computed.
    pub(super) ended_compensations: Vec<OpNumber>,
}

impl<'a> LiveRun<'a> {
    pub(in crate::worker) fn new(
        task: &'a mut RunTask,
        machine: Box<Machine>,
        position: RunPosition,
    ) -> Self {
        let is_stopping = task.session.stopping.is_cancelled();
        let drops = task.session.settings.drops.clone();
        let read_position = position.consumed;
        let open_steps = || machine.open_in_place(task.session.clock.now());
        let crash_suspects = CrashSuspects::of(position.columns.crashes, open_steps);
        Self {
            task,
            machine,
            position,
            attempts: Attempts::new(drops),
            maybe_attempted: BTreeSet::new(),
            arrived_during_commit: Vec::new(),
            read_position,
            has_unread_pause: false,
            has_unread_stop: false,
            timers_checked_at: Timestamp::from_micros(0),
            is_stopping,
            unrecorded_outcomes: Vec::new(),
            outcomes_in_inbox: BTreeSet::new(),
            recorded_outcomes: Vec::new(),
            crash_suspects,
            lost_details: Vec::new(),
            pending_retry: None,
            requested_end: None,
            ended_compensations: Vec::new(),
        }
    }

    pub(super) fn task(&self) -> &RunTask {
        self.task
    }

    pub(super) fn position(&self) -> RunPosition {
        self.position.clone()
    }

    /// Waits for the commit of the start, and works on the run until it exits. `on_committed` receives the result of
    /// the first commit.
    pub(in crate::worker) async fn begin(
        &mut self,
        start: Box<SubmittedDraft>,
        on_committed: impl FnOnce(Result<Committed, WorldError>),
    ) -> Exit {
        let facts = self.finish_start(start, on_committed).await;
        self.run_until_exit(facts).await
    }

    /// Waits for the commit of the start. Returns the facts for the turn after the first one.
    async fn finish_start(
        &mut self,
        mut start: Box<SubmittedDraft>,
        on_committed: impl FnOnce(Result<Committed, WorldError>),
    ) -> Result<Vec<Fact>, Exit> {
        let committed = start.first.commit.answer().await;
        let is_done = matches!(committed, Ok(Committed::Done));
        if committed.as_ref().is_err_and(WorldError::is_transient) {
            // The world may have committed it before the response was lost; then no task here knows the run.
            self.task.session.request_hand_back();
        }
        on_committed(committed);
        if !is_done {
            return Err(Exit::Ended);
        }
        self.count_turn(start.first.counted.take());
        start.first.write_log(&self.task.session.settings);
        self.position = start.first.position.clone();
        match self.commit_rest(&mut start.rest).await? {
            Some(facts) => Ok(facts),
            None => self.after_commit(start.then),
        }
    }

    /// Continues a run that was claimed with these messages, until it exits.
    pub(in crate::worker) async fn resume(&mut self, inbox: Vec<Message>, is_fresh: bool) -> Exit {
        let facts = self.first_facts(inbox).await;
        let facts = match facts {
            // Boxed because it is rare and large, and would enlarge the state of every run.
            Ok(facts) if self.is_paused() => Box::pin(self.wait_while_paused(facts)).await,
            Ok(facts) => {
                let has_nothing_new = facts.is_empty() && !self.has_unrecorded();
                if !is_fresh && has_nothing_new && self.machine.is_active() && !self.has_compensating_to_do()
                {
                    Ok(facts)
                } else {
                    self.turn(facts, is_fresh).await
                }
            }
            Err(exit) => Err(exit),
        };
        self.run_until_exit(facts).await
    }

    /// The facts of the first turn after a claim.
    async fn first_facts(&mut self, inbox: Vec<Message>) -> Result<Vec<Fact>, Exit> {
        let is_inbox_complete = inbox.len() < INBOX_READ_MAX;
        let is_any_startable = !self.machine.startable().is_empty() || self.machine.must_settle();
        let is_fork = self.machine.has_pending_fork();
        if !is_fork {
            self.maybe_attempted = self.machine.maybe_attempted(self.task.session.clock.now());
        }
        let mut facts = Vec::with_capacity(inbox.len());
        let page_end = inbox.last().filter(|_| !is_inbox_complete).map(|message| message.position);
        self.accept_messages(inbox, &mut facts);
        if let Some(page_end) = page_end.filter(|_| is_any_startable) {
            facts.extend(self.outcomes_past_page(page_end).await?);
        }
        // A retry that is forced attempts steps again that are attempted at most once. Nobody has attempted those of a
        // fork.
        if !is_fork && self.pending_retry.as_ref().is_none_or(|retry| !retry.request.is_forced) {
            facts.extend(self.unknown_outcomes(&facts));
        }
        if self.machine.take_adopted() {
            // Boxed because it is rare, and would enlarge the state of every run.
            facts.extend(Box::pin(self.ends_of(self.machine.adopted_children())).await?);
        }
        if self.pending_retry.is_some() {
            // Boxed because it is rare, and would enlarge the state of every run.
            facts.extend(Box::pin(self.ends_before_retry()).await?);
        }
        self.machine.expect_outcomes(&Fact::outcomes_of(&facts));
        facts.extend(self.lost_when_cancelled(&facts));
        if is_inbox_complete {
            self.add_due_timers(&mut facts);
        }
        Ok(facts)
    }

    /// Reads the outcomes of steps from the inbox after a full page: they must be known before the steps are attempted.
    async fn outcomes_past_page(&mut self, page_end: u64) -> Result<Vec<Fact>, Exit> {
        let (mut facts, mut after) = (Vec::new(), page_end);
        loop {
            let page = read_inbox(&self.task.session, self.task.run, after).await?;
            let Some(last) = page.last() else { return Ok(facts) };
            after = last.position;
            for message in page {
                if let MessageBody::Attempted { mut events } = message.body {
                    // A retry does not end its step. It becomes a fact when its message is read in order.
                    events.retain(|event| !matches!(event, Event::StepRetried { .. }));
                    self.outcomes_in_inbox.extend(events.iter().filter_map(attempt_of));
                    facts.extend(Fact::recovered_outcomes(events, message.at));
                }
            }
        }
    }

    /// Works on the run until it exits. `facts` are those for the next turn.
    async fn run_until_exit(&mut self, facts: Result<Vec<Fact>, Exit>) -> Exit {
        let mut facts = facts;
        loop {
            facts = match facts {
                Ok(facts) => self.next_turn(facts).await,
                Err(exit) => return exit,
            };
        }
    }

    /// Waits for facts if there are none, and computes and commits a turn. Returns the facts for the turn after it.
    async fn next_turn(&mut self, mut facts: Vec<Fact>) -> Result<Vec<Fact>, Exit> {
        while facts.is_empty()
            && !self.may_release()
            && !self.has_unrecorded()
            && !self.has_compensating_to_do()
            && !self.is_paused()
        {
            self.start_attempts()?;
            facts = self.next_facts().await?;
        }
        if self.is_paused() {
            // Boxed because it is rare and large, and would enlarge the state of every run.
            return Box::pin(self.wait_while_paused(facts)).await;
        }
        self.turn(facts, false).await
    }

    /// Whether the next turn must record something before anything is delivered: a retry of the run, or requests that
    /// a replay has made.
    fn has_unrecorded(&self) -> bool {
        self.pending_retry.is_some() || self.machine.has_pending_fork() || self.machine.has_unrecorded()
    }

    /// The machine of a released run, for the cache.
    pub(super) fn into_released(mut self) -> ReleasedMachine {
        self.machine.forget_attempts();
        ReleasedMachine { turn: self.position.turn, machine: self.machine }
    }

    /// Starts the attempts that are due; of a paused run and of a worker that stops only those at steps that are
    /// attempted at most once. If a lost worker attempted a step whose code this worker does not have, the
    /// run is stuck for this build, as it is when the workflow requests such a step.
    pub(super) fn start_attempts(&mut self) -> Result<(), Exit> {
        // The deadline has passed and is about to be delivered: no attempt begins after it.
        let is_over = |deadline: Timestamp| deadline <= self.task.session.clock.now();
        if self.machine.rules() >= 2 && self.machine.deadline().is_some_and(is_over) {
            return Ok(());
        }
        let code = &*self.task.session.settings.code;
        let mut steps = if self.is_stopping || self.is_paused() {
            self.machine.take_startable_once(code)
        } else if let Some(stuck) = self.machine.missing_step(code) {
            return Err(Exit::Stuck(stuck));
        } else {
            self.machine.take_startable()
        };
        if !self.lost_details.is_empty() {
            steps = steps.into_iter().map(|step| self.with_lost_details(step)).collect();
        }
        if steps.is_empty() {
            return Ok(());
        }
        let session = &self.task.session;
        let settings = &session.settings;
        let prepared = steps.into_iter().filter_map(|step| {
            let is_maybe_attempted = self.maybe_attempted.remove(&step.op);
            settings.prepare(step, is_maybe_attempted)
        });
        let environment = AttemptEnvironment {
            services: &session.attempt_services,
            runtime: &session.runtime,
            meter: &settings.meter,
            metrics: &settings.metrics,
            headers: self.machine.headers(),
            requester: &self.machine.requester(),
            ids: &session.attempt_ids,
            world: &session.world,
            rules: self.machine.rules(),
            outcomes: &self.task.mailbox.outcomes,
        };
        self.attempts.start(self.task.run, self.machine.requested_by(), prepared.collect(), &environment);
        Ok(())
    }

    /// Whether a worker that stops may release the run. A step that is attempted at most once must be attempted by the
    /// worker that announced it: another worker could not know whether it was attempted.
    pub(super) fn may_release(&self) -> bool {
        self.is_stopping
            && self.attempts.is_empty()
            && !self.machine.has_startable_once(&*self.task.session.settings.code)
    }

    /// When the next timer, timeout or retry, the deadline, or the next try of the run is due.
    fn next_due(&self) -> Option<Timestamp> {
        if self.attempts.is_empty() {
            self.machine.next_due()
        } else {
            self.machine.next_due_during_attempts()
        }
    }

    /// Waits for something new, then takes everything that has arrived. May return no facts, when a retry pause is over
    /// or the worker stops.
    async fn next_facts(&mut self) -> Result<Vec<Fact>, Exit> {
        let wakes = self.machine.wakes();
        let due = self.next_due();
        let clock = &self.task.session.clock;
        let timer = async {
            match due {
                Some(due) => drop(clock.sleep_until(due).await),
                None => std::future::pending().await,
            }
        };
        let mut facts = Vec::new();
        let has_recorded = !self.recorded_outcomes.is_empty();
        tokio::select! {
            biased;
            () = std::future::ready(()), if has_recorded => {}
            () = self.task.mailbox.wait_for_items() => {}
            end = self.attempts.next() => self.accept_end(end, &mut facts),
            () = timer => {}
            () = wakes.foreign() => return Err(Exit::Stuck(self.machine.foreign_wake())),
        }
        for item in self.task.mailbox.take() {
            self.accept_item(item, &mut facts);
        }
        if facts.iter().any(|fact| fact.kind.is_stop()) {
            // Before the attempts are polled: one that has not begun must not begin now.
            self.prevent_attempts();
        }
        while let Some(end) = self.attempts.try_next() {
            self.accept_end(end, &mut facts);
        }
        if !self.recorded_outcomes.is_empty() {
            // Boxed because few steps are transactional, and it would enlarge the state of every run.
            Box::pin(self.accept_recorded(&mut facts)).await?;
        }
        let due = self.next_due();
        if due.is_some_and(|due| due <= self.task.session.clock.now()) {
            // A message that was accepted before the timer was due must be delivered before it. Boxed because it would
            // enlarge the state of every run.
            let inbox =
                Box::pin(read_inbox(&self.task.session, self.task.run, self.position.consumed)).await?;
            let is_inbox_complete = inbox.len() < INBOX_READ_MAX;
            self.accept_messages(inbox, &mut facts);
            if is_inbox_complete {
                self.add_due_timers(&mut facts);
            }
        }
        Ok(facts)
    }

    /// Handles an item of the mailbox.
    pub(super) fn accept_item(&mut self, item: MailboxItem, facts: &mut Vec<Fact>) {
        match item {
            MailboxItem::Message(message) => self.accept_messages(vec![message], facts),
            MailboxItem::Stop => self.is_stopping = true,
            // Only a run that was released can be claimed again.
            MailboxItem::Claimed(_) => {}
        }
    }

    /// Turns messages into facts, each once and in order.
    pub(super) fn accept_messages(&mut self, messages: Vec<Message>, facts: &mut Vec<Fact>) {
        for mut message in messages {
            if message.position == self.read_position + 1 {
                self.read_position = message.position;
                self.note_pause(&message.body);
                if let MessageBody::Attempted { events } = &mut message.body {
                    self.outcomes_in_inbox.extend(events.iter().filter_map(attempt_of));
                    facts.extend(Fact::recovered_outcomes(std::mem::take(events), message.at));
                }
                facts.push(Fact::message(message));
            }
        }
    }

    /// Notes whether a message pauses the run. Once it was asked to stop it cannot be paused.
    fn note_pause(&mut self, body: &MessageBody) {
        self.has_unread_stop |= matches!(
            body,
            MessageBody::Cancel { .. } | MessageBody::Terminate { .. } | MessageBody::Compensate { .. }
        );
        let is_paused = is_paused_by(body).unwrap_or(self.has_unread_pause);
        self.has_unread_pause = is_paused && !self.has_unread_stop;
    }

    /// Adds the timers and timeouts that are due, and the deadline if it has passed.
    pub(super) fn add_due_timers(&mut self, facts: &mut Vec<Fact>) {
        if self.pending_retry.is_some() || self.machine.has_pending_fork() {
            // The retry, or the fork, decides when they are due.
            return;
        }
        self.timers_checked_at = self.task.session.clock.now();
        facts.extend(self.machine.take_due(self.timers_checked_at).into_iter().map(Fact::timer));
        let deadline = self.machine.deadline().filter(|deadline| *deadline <= self.timers_checked_at);
        facts.extend(deadline.map(Fact::deadline));
    }
}

/// Reads a page of the messages that a run has not consumed, and waits while the world is not available.
pub(super) async fn read_inbox(session: &Session, run: RunId, consumed: u64) -> Result<Vec<Message>, Exit> {
    let outage = &session.settings.outage;
    let read = retry_while_unavailable(outage, || session.world.inbox(run, consumed)).await;
    read.map(without_earlier_requests).map_err(Exit::read_failed)
}
