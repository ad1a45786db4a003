//! The observer: records what the inner world has accepted. It uses the world's answers alone, so that it notices when
//! the world contradicts itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::turn::BasedOn;
use outlast_core::{
    Committed, Event, Headers, KeyPolicy, MessageBody, MessageId, NewMessage, OpNumber, RenewedWait, RunId,
    SessionId, Start, Started, Then, Timestamp, Turn, TurnId, TurnRecord, WorldError,
};

use super::coverage::{Coverage, Situation};

/// The observations.
#[derive(Debug, Default)]
pub(super) struct Observer {
    pub(super) runs: BTreeMap<RunId, ObservedRun>,
    /// The first run of each key.
    pub(super) keys: BTreeMap<String, RunId>,
    /// The sessions that have ended.
    pub(super) ended_sessions: BTreeSet<SessionId>,
    /// When a worker learned that its turn was committed.
    pub(super) commit_answered_at: BTreeMap<(TurnId, String), Duration>,
    pub(super) statistics: Statistics,
}

/// Counters of what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Turns that were committed.
    pub turns: u64,
    /// Events in all histories.
    pub events: u64,
    /// Turns that were refused because their session did not hold the run.
    pub fenced: u64,
    /// Turns that were refused because a message came first.
    pub conflicts: u64,
    /// Turns that were committed before and repeated.
    pub repeats: u64,
    /// Sessions that were taken over.
    pub takeovers: u64,
    /// Processes that were killed.
    pub crashes: u64,
    /// Processes that were frozen.
    pub freezes: u64,
    /// Runs.
    pub runs: u64,
    /// Attempts at steps.
    pub attempts: u64,
    /// Attempts that were repeated.
    pub attempts_again: u64,
    /// Calls to the world.
    pub calls: u64,
    /// The situations that were reached.
    pub coverage: Coverage,
}

impl Statistics {
    /// Adds the counters of another simulation.
    pub fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.events += other.events;
        self.fenced += other.fenced;
        self.conflicts += other.conflicts;
        self.repeats += other.repeats;
        self.takeovers += other.takeovers;
        self.crashes += other.crashes;
        self.freezes += other.freezes;
        self.runs += other.runs;
        self.attempts += other.attempts;
        self.attempts_again += other.attempts_again;
        self.calls += other.calls;
        self.coverage.add(&other.coverage);
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, turns, events, attempts, attempts_again, calls, .. } = self;
        let Self { crashes, freezes, takeovers, fenced, conflicts, repeats, .. } = self;
        write!(
            f,
            "{runs} runs, {turns} turns, {events} events, {attempts} attempts ({attempts_again} repeated), "
        )?;
        write!(
            f,
            "{crashes} crashes, {freezes} freezes, {takeovers} takeovers, {calls} calls; turns refused: "
        )?;
        write!(f, "{fenced} fenced, {conflicts} conflicts; {repeats} repeated")
    }
}

/// The observations of one run.
#[derive(Debug, Default)]
pub(super) struct ObservedRun {
    pub(super) holder: Option<SessionId>,
    /// How often a session has got it.
    pub(super) holds: u64,
    pub(super) turn: Option<TurnId>,
    pub(super) turns: Vec<TurnRecord>,
    pub(super) ended: bool,
    /// Messages of clients, by position.
    pub(super) messages: BTreeMap<u64, AcceptedMessage>,
    pub(super) consumed: u64,
    /// The messages that it had consumed before its last turn.
    pub(super) consumed_before: u64,
    /// The build that left it stuck, if it has not advanced since.
    pub(super) stuck_by: Option<Arc<str>>,
}

/// A message that was accepted.
#[derive(Debug)]
pub(super) struct AcceptedMessage {
    pub(super) id: MessageId,
    pub(super) at: Timestamp,
    pub(super) body: MessageBody,
    pub(super) headers: Headers,
}

impl ObservedRun {
    /// The number of its next event.
    pub(super) fn seq(&self) -> u64 {
        self.turns.last().map_or(0, |last| last.seq + last.events.len() as u64)
    }
}

impl Observer {
    /// Records a start. Returns the violated rule, if any.
    pub(super) fn started(
        &mut self,
        start: &Start,
        answer: &Result<Started, WorldError>,
        first: Option<TurnRecord>,
    ) -> Option<String> {
        let Ok(started) = answer else { return None };
        if let Some(key) = start.key.as_ref().filter(|key| key.policy == KeyPolicy::Kept) {
            let named = *self.keys.entry(key.text.clone()).or_insert(started.run);
            if named != started.run {
                return Some(format!("key `{}` returned run {named}, and now {}", key.text, started.run));
            }
        }
        if let Some(first) = first {
            self.began(started.run, vec![first]);
        }
        None
    }

    /// Records the first turns of a run that is new: one, or those that a fork has copied.
    pub(super) fn began(&mut self, run: RunId, turns: Vec<TurnRecord>) {
        self.runs.entry(run).or_insert_with(|| ObservedRun {
            turn: turns.last().map(|last| last.id),
            turns,
            ..ObservedRun::default()
        });
    }

    /// Records that a run that had ended is open again.
    pub(super) fn reopened(&mut self, message: &NewMessage, position: u64, at: Timestamp) -> Option<String> {
        let observed = self.runs.entry(message.run).or_default();
        if !std::mem::take(&mut observed.ended) {
            return Some(format!("run {} was reopened, and had not ended", message.run));
        }
        observed.holder = None;
        self.sent(message, position, at)
    }

    /// Records that a session got a run.
    pub(super) fn claimed(&mut self, run: RunId, session: SessionId) -> Option<String> {
        let holder = self.runs.entry(run).or_default().holder;
        let is_held = holder.is_some_and(|holder| !self.ended_sessions.contains(&holder));
        let observed = self.runs.entry(run).or_default();
        observed.holder = Some(session);
        observed.holds += 1;
        is_held.then(|| format!("run {run} was given to {session} while {holder:?} held it"))
    }

    pub(super) fn sent(&mut self, message: &NewMessage, position: u64, at: Timestamp) -> Option<String> {
        let observed = self.runs.entry(message.run).or_default();
        let sent = || AcceptedMessage {
            id: message.id,
            at,
            body: message.body.clone(),
            headers: message.headers.clone(),
        };
        let known = observed.messages.entry(position).or_insert_with(sent);
        let is_other = known.id != message.id;
        is_other.then(|| format!("two messages have position {position} of run {}", message.run))
    }

    /// Whether a message was accepted before.
    pub(super) fn has_message(&self, message: &NewMessage) -> bool {
        let observed = self.runs.get(&message.run);
        observed.is_some_and(|observed| observed.messages.values().any(|sent| sent.id == message.id))
    }

    /// Records the answer to a commit. Returns the violated rule, if any.
    pub(super) fn committed(
        &mut self,
        session: SessionId,
        turn: &Turn,
        answer: &Result<Committed, WorldError>,
        now: Timestamp,
    ) -> Option<String> {
        match answer {
            Ok(Committed::Done) => {}
            Err(WorldError::Fenced(_)) => {
                self.statistics.fenced += 1;
                return None;
            }
            Err(WorldError::Conflict(_)) => {
                self.statistics.conflicts += 1;
                return None;
            }
            Err(WorldError::Invalid(reason)) => return Some(format!("an invalid turn: {reason}")),
            _ => return None,
        }
        let is_gone = self.ended_sessions.contains(&session);
        let observed = self.runs.entry(turn.run).or_default();
        if observed
            .turns
            .iter()
            .any(|known| known.id == turn.id && matches!(turn.based_on, BasedOn::Start(_)))
            || observed.turn == Some(turn.id) && observed.holds > 0
        {
            self.statistics.repeats += 1;
            return None;
        }
        self.statistics.turns += 1;
        let violation = check_turn(observed, session, is_gone, turn, now);
        if matches!(&observed.stuck_by, Some(build) if *build != turn.build && !turn.events.is_empty()) {
            self.statistics.coverage.record(Situation::ContinuedByOtherBuild);
        }
        apply_turn(observed, session, turn);
        violation
    }

    /// Sets the sessions that exist; all others have ended.
    pub(super) fn set_live_sessions(
        &mut self,
        known: impl Iterator<Item = SessionId>,
        now: &BTreeSet<SessionId>,
    ) {
        self.ended_sessions.extend(known.filter(|session| !now.contains(session)));
        for observed in self.runs.values_mut() {
            observed.holder = observed.holder.filter(|holder| now.contains(holder));
        }
    }

    /// How often a session has got the run.
    pub(super) fn holds(&self, run: RunId) -> u64 {
        self.runs.get(&run).map_or(0, |observed| observed.holds)
    }
}

/// The rule that an accepted turn violates, if any.
fn check_turn(
    observed: &ObservedRun,
    session: SessionId,
    is_gone: bool,
    turn: &Turn,
    now: Timestamp,
) -> Option<String> {
    let run = turn.run;
    if is_gone {
        return Some(format!("session {session} has ended, but committed a turn of run {run}"));
    }
    if observed.ended {
        return Some(format!("run {run} had ended, but got another turn"));
    }
    if let BasedOn::Turn(from) = &turn.based_on {
        if observed.holder != Some(session) {
            return Some(format!("session {session} committed run {run}, which {:?} holds", observed.holder));
        }
        if observed.turn != Some(*from) {
            return Some(format!(
                "a turn of run {run} was computed from {from}, its last was {:?}",
                observed.turn
            ));
        }
        let is_stuck = matches!(turn.then, Then::Stuck(_));
        if turn.seq != observed.seq() {
            return Some(format!("a turn of run {run} begins at {}, not {}", turn.seq, observed.seq()));
        }
        if !is_stuck && turn.consumed < observed.consumed {
            return Some(format!(
                "run {run} had consumed {} messages, but the turn says fewer",
                observed.consumed
            ));
        }
    }
    let before = observed.turns.last().map_or(turn.at, |last| last.at);
    if turn.at < before {
        return Some(format!("the time of a turn of run {run} is before that of the last one"));
    }
    if turn.at > now && turn.at > before {
        return Some(format!("the time of a turn of run {run} is in the future: {} > {now}", turn.at));
    }
    skipped_message(observed, turn)
}

/// An unread message that arrived before the due time of a timer that the turn fires.
fn skipped_message(observed: &ObservedRun, turn: &Turn) -> Option<String> {
    let (_, unread) = observed.messages.range(turn.consumed + 1..).next()?;
    let fired = turn.events.iter().filter_map(|event| match event {
        Event::TimerFired { op } => Some(*op),
        _ => None,
    });
    let due = |wanted: OpNumber| {
        let events = observed.turns.iter().flat_map(|turn| &turn.events);
        let renewed =
            |renews: &[RenewedWait]| renews.iter().find(|wait| wait.op == wanted).map(|wait| wait.until);
        let due = events.filter_map(|event| match event {
            Event::TimerStarted { op, fire_at } if *op == wanted => Some(*fire_at),
            Event::HookOpened { op, timeout_at, .. } if *op == wanted => *timeout_at,
            Event::ChildStarted(child) if child.op == wanted => child.timeout_at,
            Event::RunRetried(retried) => renewed(&retried.renews),
            Event::RunForked(forked) => renewed(&forked.renews),
            _ => None,
        });
        due.last()
    };
    let (run, id, at) = (turn.run, unread.id, unread.at);
    fired
        .filter_map(due)
        .find(|due| *due >= at)
        .map(|due| format!("run {run} was sent {id} at {at}, but fired a timer of {due} without reading it"))
}

fn apply_turn(observed: &mut ObservedRun, session: SessionId, turn: &Turn) {
    observed.turn = Some(turn.id);
    if matches!(turn.based_on, BasedOn::Start(_)) {
        observed.holds += 1;
        observed.turns.clear();
    }
    observed.holder = matches!(turn.then, Then::Hold).then_some(session);
    if matches!(turn.then, Then::Stuck(_)) {
        observed.stuck_by = Some(turn.build.clone());
        if let BasedOn::Start(start) = &turn.based_on {
            observed.turns.push(TurnRecord { build: turn.build.clone(), ..start.first_turn(turn.at) });
        }
        return;
    }
    if !turn.events.is_empty() {
        observed.stuck_by = None;
    }
    observed.consumed_before = observed.consumed;
    observed.consumed = turn.consumed;
    observed.ended = matches!(turn.then, Then::End(_));
    if !turn.events.is_empty() {
        observed.turns.push(turn.record());
    }
}
