//! A live run: held by this worker, turn by turn, until it waits, ends or is let go.
//!
//! The loop is: start what was announced, wait for something new, compute a turn, commit it. At most
//! one commit of a run is under way; what arrives meanwhile forms the next turn. A turn that asks for
//! very much is committed in [parts].

mod lost;
mod parts;
mod untold;
mod verify;

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::future::{Either, select};
use outlast_core::limits::{HISTORY_EVENTS_MAX, HISTORY_EVENTS_WARN, HISTORY_ROOM_EVENTS, INBOX_READ_MAX};
use outlast_core::turn::BasedOn;
use outlast_core::{
    Committed, Event, Headers, HeartbeatDetails, HolderColumns, Message, MessageBody, NewMessage, OpNumber,
    Outbox, Outcome, RunId, Start, Started, Stuck, StuckReason, Then, Timestamp, Turn, TurnColumns, TurnId,
    WorldError,
};

use self::parts::First;
use self::untold::Rejections;
use super::attempts::{Attempts, FailedAttempt, Tools, dropped_steps};
use super::committer::patiently;
use super::fact::{Fact, What, attempt_of};
use super::notes::Note;
use super::notice::RetryNotice;
use super::place::{Gone, Place};
use super::session::Session;
use super::suspicion::Suspicion;
use super::task::{Task, machine_from, read_history};
use crate::authoring::attempt::StopReason;
use crate::ids;
use crate::replay::{Delivery, Machine, StepToAttempt};

/// A run that a task holds.
pub(super) struct Live<'a> {
    task: &'a mut Task,
    machine: Machine,
    place: Place,
    attempts: Attempts,
    /// Steps that were announced by a worker that may have attempted them.
    doubtful: BTreeSet<OpNumber>,
    /// Facts that came while a commit was under way.
    early: Vec<Fact>,
    /// The position of the last message that became a fact.
    read: u64,
    /// The latest moment at which one of them was accepted.
    heard_at: Timestamp,
    /// Up to when pauses and timers were looked at.
    looked_at: Timestamp,
    is_stopping: bool,
    /// Outcomes of attempts, of a turn that is not committed since the run is stuck.
    untold: Vec<Event>,
    /// Outcomes of attempts that wait in the inbox, by [`attempt_of`]: they are there already when the run gets stuck
    /// again.
    in_inbox: BTreeSet<(OpNumber, u32)>,
    /// The steps that may have crashed the run's worker.
    suspicion: Suspicion,
    /// What attempts gave with their heartbeats that were lost with their worker.
    lost_details: Vec<HeartbeatDetails>,
}

/// A turn as computed, before it is committed.
pub(super) struct Draft {
    at: Timestamp,
    events: Vec<Event>,
    consumed: u64,
    fired_until: Option<Timestamp>,
    is_cancel: bool,
    /// How many operations the run had asked for before this turn.
    ops_before: u64,
    /// The failed attempts that it was told of.
    failed: Vec<FailedAttempt>,
    /// What belongs to the first part, if it is committed in parts.
    first: First,
}

impl Draft {
    fn new(at: Timestamp, consumed: u64, ops_before: u64) -> Self {
        Self {
            at,
            events: Vec::new(),
            consumed,
            fired_until: None,
            is_cancel: false,
            ops_before,
            failed: Vec::new(),
            first: First { consumed, ..First::default() },
        }
    }
}

/// What a turn came to.
enum Next {
    /// The session goes on holding the run; these facts are left.
    Hold(Vec<Fact>),
    /// The session does not hold the run any more.
    Over(End),
}

/// How a session's hold of a run ended.
pub(super) enum End {
    /// The run was released, and waits.
    Released,
    /// The run has ended, or never began.
    Ended,
}

/// The machine to keep of a run that was released, and the turn it is at.
pub(super) type Kept = Option<(TurnId, Machine)>;

impl<'a> Live<'a> {
    pub(super) fn new(task: &'a mut Task, machine: Machine, place: Place) -> Self {
        let is_stopping = task.session.stopping.is_cancelled();
        let read = place.consumed;
        let open = || machine.open_in_place(task.session.clock.now());
        let suspicion = Suspicion::of(place.columns.crashes, open);
        Self {
            task,
            machine,
            place,
            attempts: Attempts::default(),
            doubtful: BTreeSet::new(),
            early: Vec::new(),
            read,
            heard_at: Timestamp::from_micros(0),
            looked_at: Timestamp::from_micros(0),
            is_stopping,
            untold: Vec::new(),
            in_inbox: BTreeSet::new(),
            suspicion,
            lost_details: Vec::new(),
        }
    }

    /// The first turn, whose events are computed already, unless they are no good.
    pub(super) async fn first_draft(&mut self, events: Vec<Event>) -> Result<Draft, Gone> {
        let mut draft = Draft { events, ..Draft::new(self.place.at, 0, 0) };
        self.mind_length(&mut draft).map_err(Gone::Stuck)?;
        self.doubt(&draft, true).await?;
        Ok(draft)
    }

    /// Begins the run with its first turn. `answer` learns what the commit came to.
    pub(super) async fn begin(
        &mut self,
        start: Box<Start>,
        draft: Draft,
        answer: impl FnOnce(Result<Committed, WorldError>),
    ) -> Result<End, Gone> {
        let (turn, rest, then) = self.turn_of(draft, self.place.turn, BasedOn::Start(start));
        let (events, columns) = (turn.events.len() as u64, turn.held_columns());
        let commit = self.task.session.committer.commit(turn);
        let committed = commit.await;
        let is_done = matches!(committed, Ok(Committed::Done));
        if committed.as_ref().is_err_and(WorldError::is_transient) {
            // It may have been committed all the same, and then nobody here knows the run.
            self.task.session.doubt();
        }
        answer(committed);
        if !is_done {
            return Ok(End::Ended);
        }
        self.place.seq = events;
        self.place.columns = columns;
        let next = match self.commit_rest(rest).await? {
            Some(again) => again,
            None => self.follow(then).await?,
        };
        self.go_on(next).await
    }

    /// Goes on with a run that was claimed with these messages.
    pub(super) async fn resume(&mut self, inbox: Vec<Message>, is_fresh: bool) -> Result<End, Gone> {
        let may_fire = inbox.len() < INBOX_READ_MAX;
        let is_any_startable = !self.machine.startable().is_empty();
        self.doubtful = self.machine.maybe_attempted(self.task.session.clock.now());
        let mut facts = Vec::with_capacity(inbox.len());
        let page_end = inbox.last().filter(|_| !may_fire).map(|message| message.position);
        self.accept(inbox, &mut facts);
        if let Some(page_end) = page_end.filter(|_| is_any_startable) {
            facts.extend(self.known_behind(page_end).await?);
        }
        facts.extend(self.unknown_outcomes(&facts));
        self.machine.expect_outcomes(&Fact::outcomes_of(&facts));
        facts.extend(self.lost_by_cancel());
        if may_fire {
            self.look_at_the_clock(&mut facts);
        }
        let has_nothing_new = facts.is_empty() && !self.machine.has_unrecorded();
        if !is_fresh && has_nothing_new && self.machine.is_active() {
            return self.go_on(Next::Hold(facts)).await;
        }
        let next = self.turn(facts, is_fresh).await?;
        self.go_on(next).await
    }

    /// How steps ended, as the inbox tells behind a full page: that must be known before they are attempted.
    async fn known_behind(&mut self, page_end: u64) -> Result<Vec<Fact>, Gone> {
        let (mut facts, mut after) = (Vec::new(), page_end);
        loop {
            let page = read_inbox(&self.task.session, self.task.run, after).await?;
            let Some(last) = page.last() else { return Ok(facts) };
            after = last.position;
            for message in page {
                if let MessageBody::Attempted { mut events } = message.body {
                    // Another attempt may follow these; they come with their message.
                    events.retain(|event| !matches!(event, Event::StepRetried { .. }));
                    self.in_inbox.extend(events.iter().filter_map(attempt_of));
                    facts.extend(Fact::attempts_of(events, message.at));
                }
            }
        }
    }

    async fn go_on(&mut self, mut next: Next) -> Result<End, Gone> {
        loop {
            let mut facts = match next {
                Next::Hold(facts) => facts,
                Next::Over(end) => return Ok(end),
            };
            while facts.is_empty() && !self.may_let_go() && !self.machine.has_unrecorded() {
                self.start_attempts()?;
                facts = self.next_facts().await?;
            }
            next = self.turn(facts, false).await?;
        }
    }

    /// Where the run is.
    pub(super) fn place(&self) -> Place {
        self.place.clone()
    }

    /// The machine to keep of a run that was released.
    pub(super) fn into_kept(mut self) -> Kept {
        self.machine.forget_attempts();
        Some((self.place.turn, self.machine))
    }

    /// Starts what may be attempted now. A step that a lost worker attempted may have no code here: then the run
    /// is stuck for this build, as it is when the workflow asks for such a step.
    fn start_attempts(&mut self) -> Result<(), Gone> {
        // The deadline has passed and is about to be delivered: no attempt begins after it.
        let is_late = |deadline: Timestamp| deadline <= self.task.session.clock.now();
        if self.machine.rules() >= 2 && self.machine.deadline().is_some_and(is_late) {
            return Ok(());
        }
        let code = &self.task.session.settings.code;
        let mut steps = if self.is_stopping {
            self.machine.take_startable_once(code)
        } else if let Some(stuck) = self.machine.missing_step(code) {
            return Err(Gone::Stuck(stuck));
        } else {
            self.machine.take_startable()
        };
        if !self.lost_details.is_empty() {
            steps = steps.into_iter().map(|step| self.with_lost_details(step)).collect();
        }
        let session = &self.task.session;
        let settings = &session.settings;
        let ready = steps.into_iter().filter_map(|step| {
            let is_doubtful = self.doubtful.remove(&step.op);
            settings.ready(step, is_doubtful)
        });
        let (clock, codec, runtime, meter) =
            (&session.clock, &settings.codec, &session.runtime, &settings.meter);
        let (headers, ids, heartbeats) = (self.machine.headers(), &session.attempt_ids, &session.heartbeats);
        let rules = self.machine.rules();
        let outcomes = &self.task.notes.outcomes;
        let tools = Tools { clock, codec, runtime, meter, headers, ids, heartbeats, rules, outcomes };
        self.attempts.start(self.task.run, self.machine.asker(), ready.collect(), &tools);
        Ok(())
    }

    /// Whether nothing keeps a worker that stops from letting go of the run. A step that is attempted
    /// at most once must be attempted by whom announced it: nobody else could know that it was not.
    fn may_let_go(&self) -> bool {
        self.is_stopping
            && self.attempts.is_empty()
            && !self.machine.has_startable_once(&self.task.session.settings.code)
    }

    /// Waits for something new, then takes all that is there. May return without facts when a pause
    /// is over or the worker stops.
    async fn next_facts(&mut self) -> Result<Vec<Fact>, Gone> {
        let wakes = self.machine.wakes();
        let due = self.machine.next_due();
        let clock = self.task.session.clock.clone();
        let timer = async {
            match due {
                Some(due) => drop(clock.sleep_until(due).await),
                None => std::future::pending().await,
            }
        };
        let mut facts = Vec::new();
        tokio::select! {
            biased;
            () = self.task.notes.filled() => {}
            end = self.attempts.next() => facts.push(Fact::attempt(end)),
            () = timer => {}
            () = wakes.foreign() => return Err(Gone::Stuck(self.machine.foreign_wake())),
        }
        for note in self.task.notes.take() {
            self.open(note, &mut facts);
        }
        if facts.iter().any(|fact| fact.what.is_stop()) {
            // Before the attempts are polled: one that has not begun must not begin now.
            self.withhold_attempts();
        }
        while let Some(end) = self.attempts.try_next() {
            facts.push(Fact::attempt(end));
        }
        if self.machine.next_due().is_some_and(|due| due <= self.task.session.clock.now()) {
            // Before a timer fires, its owner has read the inbox.
            let inbox = read_inbox(&self.task.session, self.task.run, self.place.consumed).await?;
            let may_fire = inbox.len() < INBOX_READ_MAX;
            self.accept(inbox, &mut facts);
            if may_fire {
                self.look_at_the_clock(&mut facts);
            }
        }
        Ok(facts)
    }

    fn open(&mut self, note: Note, facts: &mut Vec<Fact>) {
        match note {
            Note::Message(message) => self.accept(vec![message], facts),
            Note::Stop => self.is_stopping = true,
            // Only a run that was released can be claimed again.
            Note::Claimed(_) => {}
        }
    }

    /// Makes messages facts, each once and in order.
    fn accept(&mut self, messages: Vec<Message>, facts: &mut Vec<Fact>) {
        for mut message in messages {
            if message.position == self.read + 1 {
                self.read = message.position;
                // A clock that was set back must not change their order.
                self.heard_at = self.heard_at.max(message.at);
                message.at = self.heard_at;
                if let MessageBody::Attempted { events } = &mut message.body {
                    self.in_inbox.extend(events.iter().filter_map(attempt_of));
                    facts.extend(Fact::attempts_of(std::mem::take(events), message.at));
                }
                facts.push(Fact::message(message));
            }
        }
    }

    fn look_at_the_clock(&mut self, facts: &mut Vec<Fact>) {
        self.looked_at = self.task.session.clock.now();
        facts.extend(self.machine.take_due(self.looked_at).into_iter().map(Fact::timer));
        let deadline = self.machine.deadline().filter(|deadline| *deadline <= self.looked_at);
        facts.extend(deadline.map(Fact::deadline));
    }

    /// Computes a turn from what is new, and commits it. What the run has asked for and its history does not have
    /// comes first, in a turn of its own: so that one can be committed in parts.
    async fn turn(&mut self, mut facts: Vec<Fact>, is_fresh: bool) -> Result<Next, Gone> {
        if self.machine.has_unrecorded() && !facts.is_empty() {
            // Rare, and large: not in the state of every run.
            match Box::pin(self.turn_once(Vec::new(), false)).await? {
                Next::Hold(early) => facts.extend(early),
                // Only messages and timers are left, which whoever holds the run next finds out by itself.
                over @ Next::Over(_) => return Ok(over),
            }
        }
        self.turn_once(facts, is_fresh).await
    }

    async fn turn_once(&mut self, facts: Vec<Fact>, is_fresh: bool) -> Result<Next, Gone> {
        let mut draft = self.draft(facts, is_fresh).map_err(Gone::Stuck)?;
        if let Err(gone) = self.doubt(&draft, false).await {
            self.keep_untold(draft.events, draft.ops_before, None);
            return Err(gone);
        }
        let is_cancel = draft.is_cancel;
        let ops_before = draft.ops_before;
        let failed = std::mem::take(&mut draft.failed);
        let (turn, rest, then) = self.turn_of(draft, ids::turn(), BasedOn::Turn(self.place.turn));
        // Tags of a replay may be all that there is to write.
        if turn.events.is_empty() && turn.outbox.is_none() && then == Then::Hold {
            return Ok(Next::Hold(Vec::new()));
        }
        // Nobody waits for the attempts of a run that has ended; a queued step ends so when it is dropped.
        let is_terminated = matches!(turn.events.last(), Some(Event::RunTerminated { .. }));
        if let Some(again) = self.commit(turn, &failed, ops_before).await? {
            return Ok(again);
        }
        if let Some(again) = self.commit_rest(rest).await? {
            return Ok(again);
        }
        if is_cancel && !is_terminated {
            self.tell_attempts_to_stop();
        }
        self.follow(then).await
    }

    /// Commits a turn, or a part of one. Answers how to go on when it was refused and is to be computed again.
    async fn commit(
        &mut self,
        turn: Turn,
        failed: &[FailedAttempt],
        ops_before: u64,
    ) -> Result<Option<Next>, Gone> {
        let place = Place::after(&turn);
        // What it was told must not be lost when it is refused; one with timers can be computed again.
        let events: Vec<_> =
            turn.events.iter().filter(|event| attempt_of(event).is_some()).cloned().collect();
        let at = turn.at;
        let on_retry = self.task.session.settings.on_retry.clone();
        let notices = if on_retry.is_some() { self.notices(&turn, failed) } else { Vec::new() };
        let dropped = dropped_steps(&turn.events);
        let rejections = Rejections::of(&turn);
        let commit = self.task.session.committer.commit(turn);
        match self.meanwhile(commit).await {
            Ok(_) => {}
            Err(WorldError::Conflict(_)) => {
                return Box::pin(self.again(events, at, ops_before)).await.map(Some);
            }
            Err(error @ WorldError::Fenced(_)) => return Err(Gone::Lost(error)),
            Err(error) => {
                self.keep_untold(events, ops_before, None);
                return Err(Gone::Stuck(refused(&error)));
            }
        }
        self.committed(place, &events, &dropped);
        self.in_inbox.clear();
        if let Some(on_retry) = on_retry {
            on_retry.tell(&notices);
        }
        rejections.log(self.task.run);
        dropped.into_iter().for_each(|op| self.attempts.withdraw(op));
        Ok(None)
    }

    /// Tells the attempts that the run was cancelled: those of shielded steps learn it only when it has ended.
    fn tell_attempts_to_stop(&self) {
        let spared = if self.machine.ended().is_some() { BTreeSet::new() } else { self.machine.shielded() };
        self.attempts.tell_to_stop_except(&spared, StopReason::Cancelled);
    }

    /// What `on_retry` is told of a turn: a queued step works for the run that asked for it.
    fn notices(&self, turn: &Turn, failed: &[FailedAttempt]) -> Vec<RetryNotice> {
        let asker = self.machine.asker().map_or(self.task.run, |(run, _)| run);
        RetryNotice::all_of(turn, asker, failed)
    }

    fn draft(&mut self, mut facts: Vec<Fact>, is_fresh: bool) -> Result<Draft, Stuck> {
        let _computing = self.task.notes.compute();
        Fact::sort(&mut facts);
        self.tell_watchdog(&facts);
        let mut facts = facts.into_iter();
        let at = self.task.session.clock.now().max(self.place.at);
        let mut draft = Draft::new(at, self.place.consumed, self.machine.ops_asked());
        self.machine.set_time(at);
        self.machine.set_doubtful(&self.doubtful);
        match self.compute(&mut draft, &mut facts, is_fresh) {
            Ok(()) => Ok(draft),
            Err(stuck) => {
                self.keep_untold(draft.events, draft.ops_before, facts);
                Err(stuck)
            }
        }
    }

    fn compute(
        &mut self,
        draft: &mut Draft,
        facts: &mut impl Iterator<Item = Fact>,
        is_fresh: bool,
    ) -> Result<(), Stuck> {
        if is_fresh {
            self.machine.begin(&mut draft.events)?;
        }
        self.machine.record_rest(&mut draft.events)?;
        for fact in facts {
            match &fact.what {
                What::Message(message) => {
                    draft.consumed = draft.consumed.max(message.position);
                    let body = &message.body;
                    draft.is_cancel |=
                        matches!(body, MessageBody::Cancel { .. } | MessageBody::Terminate { .. });
                }
                What::Timer(_) => draft.fired_until = Some(fact.at),
                What::Deadline => {
                    draft.fired_until = Some(fact.at);
                    draft.is_cancel = true;
                }
                What::Attempt(end) => {
                    if let Some(stuck) = end.stuck(&self.machine) {
                        return Err(stuck);
                    }
                    draft.failed.extend(end.failed());
                }
                What::Again(_) => {}
            }
            if fact.what.is_stop() {
                self.withhold_attempts();
            }
            let before = draft.events.len();
            if let Some(delivery) = fact.what.into_delivery(&self.machine) {
                self.machine.deliver(delivery, &mut draft.events)?;
            }
            if draft.events.len() > before {
                (draft.first.consumed, draft.first.fired_until) = (draft.consumed, draft.fired_until);
            }
        }
        self.mind_length(draft)?;
        match self.machine.cannot_attempt(&self.task.session.settings.code) {
            Some(stuck) => Err(stuck),
            None => Ok(()),
        }
    }

    /// Stops a run whose history is too long: first it is told, and has room to clean up.
    fn mind_length(&mut self, draft: &mut Draft) -> Result<(), Stuck> {
        let length = |draft: &Draft| self.place.seq + draft.events.len() as u64;
        let events = length(draft);
        if self.place.seq < HISTORY_EVENTS_WARN && events >= HISTORY_EVENTS_WARN {
            let limit = HISTORY_EVENTS_MAX;
            tracing::warn!(run = %self.task.run, events, limit, "a history grows long; let children do parts of the work");
        }
        if events < HISTORY_EVENTS_MAX || self.machine.ended().is_some() {
            return Ok(());
        }
        if !self.machine.is_cancelled() {
            let reason = format!(
                "its history has {events} events, the limit is {HISTORY_EVENTS_MAX}; \
                 let children do parts of the work"
            );
            draft.is_cancel = true;
            self.withhold_attempts();
            let cancel = Delivery::Cancel { message: None, reason, at: draft.at };
            return self.machine.deliver(cancel, &mut draft.events);
        }
        if events >= HISTORY_EVENTS_MAX + HISTORY_ROOM_EVENTS {
            self.machine.outgrow(&mut draft.events);
        }
        Ok(())
    }

    /// What the turn does to other runs; whoever awaits the run's end is told of it.
    fn outbox(&mut self, events: &[Event]) -> Option<Box<Outbox>> {
        let outbox = self.machine.take_outbox(ids::message);
        let outcome = events.last().and_then(Outcome::of_final);
        match (self.machine.awaiting(), outcome) {
            (Some((run, op)), Some(outcome)) => {
                let mut outbox = outbox.unwrap_or_default();
                outbox.messages.push(NewMessage {
                    id: ids::message(),
                    run,
                    body: MessageBody::ChildEnded { op, outcome },
                    headers: Headers::new(),
                });
                Some(outbox)
            }
            _ => outbox,
        }
    }

    /// The turn that commits a draft, or its first part and the others; and what becomes of the run after it.
    fn turn_of(&mut self, draft: Draft, id: TurnId, from: BasedOn) -> (Turn, Vec<Turn>, Then) {
        let then = if let Some(status) = self.machine.ended() {
            self.task.session.set_ending(self.task.run);
            Then::End(status)
        } else if !self.machine.is_active() {
            Then::Wait { wake_at: self.machine.next_due(), waits: self.machine.waits() }
        } else if self.may_let_go() {
            Then::Release
        } else {
            Then::Hold
        };
        let first = First { settled_messages: self.machine.settled_messages(), ..draft.first };
        let outbox = self.outbox(&draft.events);
        let crashes = self.suspicion.crashes_after(self.place.columns.crashes, &draft.events);
        let before = &self.place.columns;
        let deadline = before.deadline.filter(|_| !draft.is_cancel);
        let after = HolderColumns { crashes, deadline, ..self.machine.shown(before) };
        let turn = Turn {
            run: self.task.run,
            id,
            based_on: from,
            seq: self.place.seq,
            at: draft.at,
            build: self.task.session.settings.build.clone(),
            events: draft.events,
            consumed: draft.consumed,
            fired_until: draft.fired_until,
            columns: TurnColumns::changed(self.place.columns.clone(), after),
            outbox,
            then: then.clone(),
        };
        let (turn, rest) = parts::split(turn, first, self.task.session.settings.part_events);
        (turn, rest, then)
    }

    /// Awaits a commit, while attempts go on.
    async fn meanwhile(
        &mut self,
        commit: impl Future<Output = Result<Committed, WorldError>>,
    ) -> Result<Committed, WorldError> {
        let mut commit = pin!(commit);
        while !self.attempts.is_empty() {
            match select(commit.as_mut(), pin!(self.attempts.next())).await {
                Either::Left((answer, _)) => return answer,
                Either::Right((end, _)) => self.early.push(Fact::attempt(end)),
            }
        }
        commit.await
    }

    /// What follows a commit.
    async fn follow(&mut self, then: Then) -> Result<Next, Gone> {
        Ok(match then {
            Then::Hold => Next::Hold(std::mem::take(&mut self.early)),
            Then::End(status) => {
                self.task.session.settings.meter.ended(status);
                self.let_attempts_land();
                self.task.session.heartbeats.ended(self.task.run);
                Next::Over(End::Ended)
            }
            _ => {
                self.let_attempts_land();
                Next::Over(End::Released)
            }
        })
    }

    /// Attempts that nobody waits for may land, but do not keep the run.
    fn let_attempts_land(&mut self) {
        if !self.attempts.is_empty()
            && let Some(orphans) = std::mem::take(&mut self.attempts).into_orphans()
        {
            self.task.session.runtime.spawn(orphans);
        }
    }

    /// After a refused commit: forgets the future, replays, and reads the inbox again.
    async fn again(&mut self, events: Vec<Event>, at: Timestamp, ops_before: u64) -> Result<Next, Gone> {
        self.machine = match self.replayed(None, false).await {
            Ok(machine) => machine,
            Err(gone) => {
                self.keep_untold(events, ops_before, None);
                return Err(gone);
            }
        };
        let inbox = read_inbox(&self.task.session, self.task.run, self.place.consumed).await?;
        let may_fire = inbox.len() < INBOX_READ_MAX;
        let mut facts = std::mem::take(&mut self.early);
        facts.extend(Fact::attempts_of(events, at));
        // All that is unread is read again, each message with the time at which it was accepted.
        (self.read, self.heard_at) = (self.place.consumed, Timestamp::from_micros(0));
        self.accept(inbox, &mut facts);
        self.machine.expect_outcomes(&Fact::outcomes_of(&facts));
        if may_fire {
            self.look_at_the_clock(&mut facts);
        }
        Ok(Next::Hold(facts))
    }
}

/// The messages that a run has not consumed.
async fn read_inbox(session: &Session, run: RunId, consumed: u64) -> Result<Vec<Message>, Gone> {
    patiently(&session.settings.outage, || session.world.inbox(run, consumed)).await.map_err(Gone::of)
}

/// Why a run is stuck whose turn the world does not take, and would not take another time.
fn refused(error: &WorldError) -> Stuck {
    let message = format!("the world refuses what the run decided: {error}");
    Stuck { reason: StuckReason::Refused, message, build: String::new() }
}

/// The answer to a start, from what its commit came to.
pub(super) fn start_answer(
    started: Started,
    committed: Result<Committed, WorldError>,
) -> Result<Started, WorldError> {
    committed.map(|committed| match committed {
        Committed::Done => started,
        Committed::Existed(existing) => existing,
    })
}
