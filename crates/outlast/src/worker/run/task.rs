//! The task of one live run: loads the run, works on it, and handles its exit.

use std::sync::Arc;

use outlast_core::cut::missing_turns;
use outlast_core::event::TurnRecord;
use outlast_core::turn::LastTurn;
use outlast_core::{
    Busy, Claimed, ClaimedHistory, Committed, Event, Headers, HolderColumns, Message, MessageBody,
    NewMessage, Outbox, RunId, Start, Started, Status, Stuck, StuckReason, Then, Timestamp, Turn, WorldError,
};
use tokio::sync::oneshot;

use super::exit::{Exit, HaltedRun, ReleasedMachine, unreadable};
use super::live_run::LiveRun;
use super::mailbox::{Mailbox, PendingStart};
use super::pending_retry::{split_for_retry, without_earlier_requests};
use super::position::RunPosition;
use super::turn::EVENTS_OF_MOST_TURNS;
use super::turn_metrics::run_time;
use crate::clock::monotonic;
use crate::ids;
use crate::replay::{Machine, PendingRetry};
use crate::telemetry::trace;
use crate::worker::committer::retry_while_unavailable;
use crate::worker::end_without_code::{EndDecision, RequestedEnd};
use crate::worker::session::Session;
use crate::worker::session::missing_histories::ClaimedRun;
use crate::worker::{end_without_code, read_all};

/// The task that works on one live run.
#[derive(Debug)]
pub(in crate::worker) struct RunTask {
    pub(in crate::worker) session: Arc<Session>,
    pub(in crate::worker) run: RunId,
    pub(in crate::worker) mailbox: Arc<Mailbox>,
    /// Keeps a virtual clock from advancing while the task works.
    pub(in crate::worker) _busy: Busy,
}

impl Drop for RunTask {
    /// Removes the run from the live runs, however the task ends: also by a panic, or because it is aborted.
    fn drop(&mut self) {
        self.session.remove_entry(self.run, &self.mailbox);
    }
}

/// What is left to do for a claimed run after the requests to end it without its code.
enum EndResult {
    /// Nothing.
    Ended,
    /// It compensates, and then ends with this failure.
    Compensates(Box<RequestedEnd>),
    /// It continues.
    Continues,
}

type StartAnswer = oneshot::Sender<Result<Started, WorldError>>;

impl RunTask {
    /// Works on a run from its start: the start and the first turn are one commit.
    pub(in crate::worker) async fn run_start(mut self, start: Arc<Start>, answer: StartAnswer) {
        let at = self.session.clock.now();
        self.mailbox.set_pending_start(PendingStart { start: start.clone(), answer });
        let first_turn = self.compute_first_turn(&start, at);
        // If it is gone, the watchdog has marked the run as stuck.
        let Some(pending) = self.mailbox.take_pending_start() else { return };
        drop(start);
        let PendingStart { start, answer } = *pending;
        let start = Box::new(Arc::unwrap_or_clone(start));
        let released = match first_turn {
            Ok((machine, events)) => self.begin(machine, events, at, start, answer).await,
            Err(_) => self.start_without_turn(start, answer).await,
        };
        if let Some(claimed) = self.finish(released) {
            // Boxed because it is rare and large, and would enlarge the state of every run.
            Box::pin(self.run_claimed(*claimed)).await;
        }
    }

    /// Works on a claimed run.
    pub(in crate::worker) async fn run_claimed(mut self, claimed: ClaimedRun) {
        let mut next = Some(Box::new(claimed));
        while let Some(claimed) = next {
            let released = self.hold_claimed(*claimed).await;
            next = self.finish(released);
        }
    }

    /// Removes the run from the live runs and caches its future, if it was released. Returns the next claim if the run
    /// was claimed again in the meantime.
    fn finish(&mut self, mut released: Option<ReleasedMachine>) -> Option<Box<ClaimedRun>> {
        let (session, run) = (self.session.clone(), self.run);
        session.heartbeats.run_released(run);
        let mut evicted = None;
        let mut cache = || {
            evicted = released
                .take()
                .and_then(|ReleasedMachine { turn, machine }| session.cache.lock().put(run, turn, machine));
        };
        let next = session.remove_unless_claimed_again(run, &self.mailbox, &mut cache);
        if next.is_some() {
            // The next claim takes the future from the cache.
            cache();
        }
        drop(evicted);
        next
    }

    /// Computes the first turn of a run that starts here.
    fn compute_first_turn(&self, start: &Start, at: Timestamp) -> Result<(Box<Machine>, Vec<Event>), Stuck> {
        let _computing = self.mailbox.begin_computing(monotonic());
        let event = start.event();
        let settings = &self.session.settings;
        let mut machine = match &event {
            Event::RunStarted(started) => {
                Box::new(Machine::new(self.run, started, settings.code.clone(), &settings.codec, at)?)
            }
            _ => return Err(no_start_event(self.run)),
        };
        machine.drop_in_background(settings.drops.clone());
        let mut events = Vec::with_capacity(EVENTS_OF_MOST_TURNS);
        events.push(event);
        machine.begin(&mut events)?;
        match machine.cannot_attempt(&*settings.code) {
            Some(stuck) => Err(stuck),
            None => Ok((machine, events)),
        }
    }

    /// Commits the start with the first turn, and works on the run.
    async fn begin(
        &mut self,
        machine: Box<Machine>,
        events: Vec<Event>,
        at: Timestamp,
        start: Box<Start>,
        answer: StartAnswer,
    ) -> Option<ReleasedMachine> {
        let started = Started { run: self.run, is_new: true };
        let columns = Arc::new(HolderColumns::of_start(&start));
        let position = RunPosition { turn: start.turn, at, seq: 0, consumed: 0, columns };
        let span = trace::segment_span(&machine, true, &[]);
        let mut live = LiveRun::new(self, machine, position);
        let Ok(draft) = live.first_draft(events).await else {
            drop(live);
            return self.start_without_turn(start, answer).await;
        };
        // In the span, because the start may send to other runs.
        let submitted = span.in_scope(|| live.submit_start(start, *draft));
        let exit = live.begin(submitted, |committed| {
            // The caller may be gone; the run is started anyway.
            let _ = answer.send(start_answer(started, committed));
        });
        let exit = trace::in_span(span, exit).await;
        let closed = close(live, exit).await;
        self.halt_if_needed(closed).await
    }

    /// Starts the run without its first turn, because this build cannot commit that turn. The worker that claims the
    /// run finds out why.
    async fn start_without_turn(&self, start: Box<Start>, answer: StartAnswer) -> Option<ReleasedMachine> {
        let started = self.session.world.start(vec![*start]).await;
        let _ = answer.send(started.and_then(|mut answers| answers.remove(0)));
        None
    }

    /// Works on a claimed run until it exits.
    async fn hold_claimed(&mut self, mut claimed: ClaimedRun) -> Option<ReleasedMachine> {
        let claimed_at = self.session.clock.now();
        let requested_end = match self.end_without_code(&mut claimed).await {
            EndResult::Ended => return None,
            EndResult::Compensates(end) => Some(end),
            EndResult::Continues => None,
        };
        // The mailbox may still have the outcomes of a turn before the run was released.
        self.mailbox.outcomes.set_delivered(Vec::new());
        let position = RunPosition::of_claimed(&claimed.claimed);
        let is_fresh = claimed.claimed.is_fresh;
        let inbox = without_earlier_requests(std::mem::take(&mut claimed.claimed.inbox));
        let details = std::mem::take(&mut claimed.claimed.details);
        let closed = match self.load_machine(claimed, &inbox, requested_end.is_some()).await {
            Ok((machine, pending_retry)) => {
                self.record_claim_delay(&machine, &inbox, claimed_at, is_fresh.then_some(position.at));
                // A fork is always replayed, even if it has copied nothing but the start.
                let is_fresh = is_fresh && !machine.has_pending_fork();
                let span = trace::segment_span(&machine, is_fresh, &inbox);
                let mut live = LiveRun::new(self, machine, position);
                live.set_lost_details(details);
                live.pending_retry = pending_retry;
                live.requested_end = requested_end;
                let exit = trace::in_span(span, live.resume(inbox, is_fresh)).await;
                close(live, exit).await
            }
            Err(Exit::Stuck(stuck)) => {
                Err(Box::new(HaltedRun { position, stuck: Some(stuck), unrecorded_outcomes: Vec::new() }))
            }
            Err(exit) => {
                log_if_lost(self, &exit);
                Ok(None)
            }
        };
        self.halt_if_needed(closed).await
    }

    /// Records how long a claimed run was ready before its claim: since its start, its first unread message, or the
    /// time of its next timer. A run that was taken over from a lost worker has none of these.
    fn record_claim_delay(
        &self,
        machine: &Machine,
        inbox: &[Message],
        claimed_at: Timestamp,
        started_at: Option<Timestamp>,
    ) {
        let message_at = inbox.first().map(|message| message.at);
        let due_at = machine.next_due().filter(|due| *due <= claimed_at);
        if let Some(ready_at) = [started_at, message_at, due_at].into_iter().flatten().min() {
            let queue = self.session.settings.metrics.queues.of(machine.run_state().queue());
            queue.metric.claim_delay.time(claimed_at.since(ready_at));
        }
    }

    /// Returns the machine of a claimed run: from the cache, or by a replay of its history. With a retry that is not
    /// recorded yet, the machine is in the state at the cut point.
    /// A run that ends without its code is restored from its history.
    async fn load_machine(
        &self,
        mut claimed_run: ClaimedRun,
        inbox: &[Message],
        is_ending_without_code: bool,
    ) -> Result<(Box<Machine>, Option<Box<PendingRetry>>), Exit> {
        let meter = &self.session.settings.meter;
        let claimed = &claimed_run.claimed;
        if let ClaimedHistory::Unreadable(reason) = &claimed.history {
            return Err(Exit::Stuck(unreadable(reason)));
        }
        if let Some(machine) = self.session.cache.lock().take(claimed.run, claimed.turn) {
            meter.cache_hits.add(1);
            return Ok((machine, None));
        }
        if !claimed.is_fresh {
            meter.cache_misses.add(1);
        }
        claimed_run.wait_for_history().await;
        let Claimed { run, is_fresh, history, columns, .. } = claimed_run.claimed;
        let history = match history {
            ClaimedHistory::Whole(history) => history,
            ClaimedHistory::LeftOut => {
                let read = read_history(&self.session, run, columns.replay_from).await;
                read.map_err(Exit::read_failed)?
            }
            ClaimedHistory::Unreadable(reason) => return Err(Exit::Stuck(unreadable(&reason))),
        };
        let history = add_missing_turns(&self.session, run, history).await.map_err(Exit::read_failed)?;
        if is_ending_without_code {
            let settings = &self.session.settings;
            let machine = Machine::restore(run, history, settings.code.clone(), &settings.codec);
            return machine.map(|machine| (Box::new(machine), None)).map_err(Exit::Stuck);
        }
        let (history, pending_retry) = split_for_retry(self, history, inbox).await?;
        Ok((Box::new(machine_from(self, history, is_fresh, "claim")?), pending_retry))
    }

    /// Ends the run if it shall end and the end needs no code of its workflow: for example, because it was terminated.
    /// If it must compensate first, nothing is committed here.
    async fn end_without_code(&mut self, claimed_run: &mut ClaimedRun) -> EndResult {
        let now = self.session.clock.now();
        if end_without_code::may_end(&claimed_run.claimed, now) {
            claimed_run.wait_for_history().await;
        }
        let claimed = &claimed_run.claimed;
        let (world, settings) = (&*self.session.world, &self.session.settings);
        let decision =
            retry_while_unavailable(&settings.outage, || end_without_code::decide_end(world, claimed, now))
                .await;
        let ending = match decision {
            Ok(EndDecision::End(ending)) => ending,
            Ok(EndDecision::Compensate(end)) => return EndResult::Compensates(end),
            Ok(EndDecision::Continue) => return EndResult::Continues,
            Err(error) => {
                settings.run_logs.lost(self.run, &error);
                return EndResult::Ended;
            }
        };
        drop(self.session.cache.lock().take(claimed.run, claimed.turn));
        // From here on, callers that wait for the end ask the world.
        self.session.set_ending(self.run);
        let turn = ending.turn(claimed, settings.build.clone(), now);
        let status = match turn.then {
            Then::End(status) => status,
            _ => Status::Cancelled,
        };
        match self.session.committer.commit(turn).await {
            Ok(_) => {
                let Claimed { workflow, run, .. } = &claimed_run.claimed;
                settings.metrics.run_ended(workflow, status, run_time(*run, now));
                // No step of an ended run is open, so the stored heartbeat details are deleted with the next beat.
                self.session.heartbeats.add_claimed(&claimed_run.claimed.details, |_| false);
            }
            Err(error) => {
                tracing::info!(run = %self.run, %error, "cannot commit the end of a run; another worker ends it");
            }
        }
        EndResult::Ended
    }

    /// Marks the run as stuck if it is, or releases it if it is paused. Returns the machine of a released run.
    async fn halt_if_needed(
        &mut self,
        closed: Result<Option<ReleasedMachine>, Box<HaltedRun>>,
    ) -> Option<ReleasedMachine> {
        match closed {
            Ok(released) => released,
            Err(halted) => {
                Box::pin(self.halt(*halted)).await;
                None
            }
        }
    }

    /// Stores the outcomes of the run's attempts, and marks the run as stuck or releases it.
    async fn halt(&mut self, halted: HaltedRun) {
        let HaltedRun { position, stuck, unrecorded_outcomes } = halted;
        let Some(stuck) = stuck else {
            return self.release_paused(position, unrecorded_outcomes).await;
        };
        self.session.settings.run_logs.stuck(self.run, &stuck);
        self.session.settings.metrics.stuck.of(stuck_label(stuck.reason)).metric.add(1);
        let position = self.store_outcomes(position, unrecorded_outcomes).await;
        let stuck = stuck.in_build(&*self.session.settings.build);
        let turn = self.empty_turn(position, Then::Stuck(stuck));
        if let Err(error) = self.session.committer.commit(turn).await {
            tracing::warn!(run = %self.run, %error, "cannot mark a run as stuck");
        }
    }

    /// Releases a paused run. The outcomes of its attempts are stored in the same commit.
    async fn release_paused(&self, position: RunPosition, outcomes: Vec<Event>) {
        let outbox = self.outcomes_outbox(outcomes);
        let turn = Turn { outbox, ..self.empty_turn(position, Then::Release) };
        if let Err(error) = self.session.committer.commit(turn).await {
            tracing::info!(run = %self.run, %error, "cannot release a paused run; it is released later");
            self.session.request_hand_back();
        }
    }

    /// The message to the run itself with outcomes of attempts; `None` if there are none.
    fn outcomes_outbox(&self, events: Vec<Event>) -> Option<Box<Outbox>> {
        if events.is_empty() {
            return None;
        }
        let body = MessageBody::Attempted { events };
        let message = NewMessage { id: ids::message(), run: self.run, body, headers: Headers::new() };
        Some(Box::new(Outbox { messages: vec![message], ..Outbox::default() }))
    }

    /// Stores outcomes of attempts in the run's own inbox, so that the attempts are not repeated when the run resumes.
    /// Returns the position of the run after that.
    async fn store_outcomes(&self, position: RunPosition, outcomes: Vec<Event>) -> RunPosition {
        let Some(outbox) = self.outcomes_outbox(outcomes) else { return position };
        let turn = Turn { outbox: Some(outbox), ..self.empty_turn(position.clone(), Then::Hold) };
        let id = turn.id;
        match self.session.committer.commit(turn).await {
            Ok(_) => RunPosition { turn: id, ..position },
            Err(error) => {
                let run = self.run;
                tracing::warn!(%run, %error, "cannot store the outcomes of attempts of a stuck run; they are repeated");
                position
            }
        }
    }

    /// Returns a turn without events.
    fn empty_turn(&self, position: RunPosition, then: Then) -> Turn {
        let at = self.session.clock.now().max(position.at);
        let RunPosition { turn, seq, consumed, columns, .. } = position;
        let last = LastTurn { run: self.run, turn, seq, consumed, columns };
        Turn { then, ..Turn::following(&last, ids::turn(), at, self.session.settings.build.clone()) }
    }
}

/// Takes what is left of a run that has exited: the machine if it was released, or what to store if it is stuck or
/// paused.
async fn close(mut live: LiveRun<'_>, exit: Exit) -> Result<Option<ReleasedMachine>, Box<HaltedRun>> {
    if !matches!(exit, Exit::Released) {
        live.machine.drop_here();
    }
    match exit {
        Exit::Released => Ok(Some(live.into_released())),
        Exit::Ended => Ok(None),
        Exit::Lost(_) => {
            log_if_lost(live.task(), &exit);
            Ok(None)
        }
        Exit::Stuck(stuck) => {
            // Boxed because it is rare and large, and would enlarge the state of every run.
            Box::pin(live.finish_attempts()).await;
            let position = live.position();
            let stuck = Some(stuck);
            Err(Box::new(HaltedRun { position, stuck, unrecorded_outcomes: live.into_unrecorded_outcomes() }))
        }
        Exit::Paused => {
            let (position, stuck) = (live.position(), None);
            Err(Box::new(HaltedRun { position, stuck, unrecorded_outcomes: live.into_unrecorded_outcomes() }))
        }
    }
}

fn log_if_lost(task: &RunTask, exit: &Exit) {
    if let Exit::Lost(error) = exit {
        task.session.settings.run_logs.lost(task.run, error);
    }
}

/// The value of the label `reason`.
pub(in crate::worker) fn stuck_label(reason: StuckReason) -> &'static str {
    match reason {
        StuckReason::Diverged => "diverged",
        StuckReason::Panicked => "panicked",
        StuckReason::ForeignAwait => "foreign_await",
        StuckReason::CalledDirectly => "called_directly",
        StuckReason::ContextOutside => "context_outside",
        StuckReason::StepNotRegistered => "step_not_registered",
        StuckReason::Poison => "poison",
        StuckReason::Unreadable => "unreadable",
        StuckReason::Undecodable => "undecodable",
        StuckReason::Refused => "refused",
        StuckReason::Hung => "hung",
        StuckReason::IgnoresCancel => "ignores_cancel",
        _ => "other",
    }
}

/// The answer to a start, from the result of its commit.
fn start_answer(started: Started, committed: Result<Committed, WorldError>) -> Result<Started, WorldError> {
    committed.map(|committed| match committed {
        Committed::Done => started,
        Committed::Existed(existing) => existing,
    })
}

/// Why a run is stuck whose history has no start.
fn no_start_event(run: RunId) -> Stuck {
    let message = format!("the history of run {run} does not begin with `run_started`");
    Stuck::new(StuckReason::Unreadable, message)
}

/// Reads the history of a run from an event on, and waits while the world is not available.
pub(super) async fn read_history(
    session: &Session,
    run: RunId,
    from: u64,
) -> Result<Vec<TurnRecord>, WorldError> {
    let outage = &session.settings.outage;
    retry_while_unavailable(outage, || read_all::read_history(&*session.world, run, from)).await
}

/// Adds turns that a replay needs and that the history does not contain.
pub(super) async fn add_missing_turns(
    session: &Session,
    run: RunId,
    history: Vec<TurnRecord>,
) -> Result<Vec<TurnRecord>, WorldError> {
    if missing_turns(&history).is_empty() {
        return Ok(history);
    }
    let outage = &session.settings.outage;
    retry_while_unavailable(outage, || read_all::add_missing_turns(&*session.world, run, history.clone()))
        .await
}

/// Creates the machine of a run from its history. The machine of a run without a turn (`is_fresh`) is not polled.
pub(super) fn machine_from(
    task: &RunTask,
    history: Vec<TurnRecord>,
    is_fresh: bool,
    reason: &str,
) -> Result<Machine, Exit> {
    let (run, settings) = (task.run, &task.session.settings);
    let (code, codec) = (settings.code.clone(), &settings.codec);
    let _computing = task.mailbox.begin_computing(monotonic());
    if !is_fresh || is_fork(&history) {
        settings.meter.replays.add(1);
        settings.metrics.replays.of(reason).metric.add(1);
        settings.metrics.replay_events.count(history.iter().map(|turn| turn.events.len() as u64).sum());
        // The start of a run that no worker took has no build.
        let last = history.iter().rev().find(|turn| !turn.build.is_empty());
        let is_other_build = last.is_some_and(|turn| turn.build != settings.build);
        let mut machine = Machine::replay(run, history, code, codec).map_err(Exit::Stuck)?;
        machine.drop_in_background(settings.drops.clone());
        if is_other_build {
            machine.rewrite_tags();
        }
        return Ok(machine);
    }
    let first = history.into_iter().next().ok_or_else(|| Exit::Stuck(no_start_event(run)))?;
    match first.events.into_iter().next() {
        Some(Event::RunStarted(started)) => {
            let mut machine = Machine::new(run, &started, code, codec, first.at).map_err(Exit::Stuck)?;
            machine.drop_in_background(settings.drops.clone());
            Ok(machine)
        }
        _ => Err(Exit::Stuck(no_start_event(run))),
    }
}

/// Whether a history begins with copied events.
fn is_fork(history: &[TurnRecord]) -> bool {
    let first = history.first().and_then(|turn| turn.events.first());
    matches!(first, Some(Event::RunStarted(started)) if started.forked.is_some())
}
