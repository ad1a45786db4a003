//! The witness: what the world inside was seen to accept. It knows nothing but the answers, so that it can
//! say when the world contradicts itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::turn::BasedOn;
use outlast_core::{
    Committed, Event, Headers, MessageBody, MessageId, NewMessage, OpNumber, RunId, SessionId, Start,
    Started, Then, Timestamp, Turn, TurnId, TurnRecord, WorldError,
};

use super::coverage::{Coverage, Situation};

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Witness {
    pub(super) runs: BTreeMap<RunId, Seen>,
    /// The run that each key named first.
    pub(super) keys: BTreeMap<String, RunId>,
    /// The sessions that are gone.
    pub(super) gone: BTreeSet<SessionId>,
    /// When the worker learned that a turn of its was committed.
    pub(super) answered: BTreeMap<(TurnId, String), Duration>,
    pub(super) tally: Tally,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Turns that were committed.
    pub turns: u64,
    /// Events in all histories.
    pub events: u64,
    /// Turns that were refused because they came from a session that did not hold the run.
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
    /// Attempts that were made once more.
    pub attempts_again: u64,
    /// Calls to the world.
    pub calls: u64,
    /// The situations that it came to.
    pub coverage: Coverage,
}

impl Tally {
    /// Adds what happened in another simulation.
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

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, turns, events, attempts, attempts_again, calls, .. } = self;
        let Self { crashes, freezes, takeovers, fenced, conflicts, repeats, .. } = self;
        write!(
            f,
            "{runs} runs, {turns} turns, {events} events, {attempts} attempts ({attempts_again} again), "
        )?;
        write!(
            f,
            "{crashes} crashes, {freezes} freezes, {takeovers} takeovers, {calls} calls; turns refused: "
        )?;
        write!(f, "{fenced} fenced, {conflicts} conflicts; {repeats} repeated")
    }
}

/// What was seen of one run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) holder: Option<SessionId>,
    /// How often it was given to a session.
    pub(super) holds: u64,
    pub(super) turn: Option<TurnId>,
    pub(super) turns: Vec<TurnRecord>,
    pub(super) ended: bool,
    /// Messages of clients, by position.
    pub(super) messages: BTreeMap<u64, Sent>,
    pub(super) consumed: u64,
    /// What it had consumed before the turn in which it ended.
    pub(super) consumed_before: u64,
    /// The build that left it stuck, if it has not progressed since.
    stuck_by: Option<Arc<str>>,
}

/// A message that was accepted.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) id: MessageId,
    pub(super) at: Timestamp,
    pub(super) body: MessageBody,
    pub(super) headers: Headers,
}

impl Seen {
    fn seq(&self) -> u64 {
        self.turns.iter().map(|turn| turn.events.len() as u64).sum()
    }
}

impl Witness {
    /// A run was started. Answers what is wrong with that.
    pub(super) fn started(
        &mut self,
        start: &Start,
        answer: &Result<Started, WorldError>,
        first: Option<TurnRecord>,
    ) -> Option<String> {
        let Ok(started) = answer else { return None };
        if let Some(key) = &start.key {
            let named = *self.keys.entry(key.text.clone()).or_insert(started.run);
            if named != started.run {
                return Some(format!("key `{}` named run {named}, and now {}", key.text, started.run));
            }
        }
        if let Some(first) = first {
            self.began(started.run, first);
        }
        None
    }

    /// A run has its first turn, if it was not known before.
    pub(super) fn began(&mut self, run: RunId, first: TurnRecord) {
        self.runs.entry(run).or_insert_with(|| Seen {
            turn: Some(first.id),
            turns: vec![first],
            ..Seen::default()
        });
    }

    /// A session got a run.
    pub(super) fn claimed(&mut self, run: RunId, session: SessionId) -> Option<String> {
        let holder = self.runs.entry(run).or_default().holder;
        let is_held = holder.is_some_and(|holder| !self.gone.contains(&holder));
        let seen = self.runs.entry(run).or_default();
        seen.holder = Some(session);
        seen.holds += 1;
        is_held.then(|| format!("run {run} was given to {session} while {holder:?} held it"))
    }

    pub(super) fn sent(&mut self, message: &NewMessage, position: u64, at: Timestamp) -> Option<String> {
        let seen = self.runs.entry(message.run).or_default();
        let sent =
            || Sent { id: message.id, at, body: message.body.clone(), headers: message.headers.clone() };
        let known = seen.messages.entry(position).or_insert_with(sent);
        let is_other = known.id != message.id;
        is_other.then(|| format!("two messages have position {position} of run {}", message.run))
    }

    /// Whether a message was accepted before.
    pub(super) fn knows(&self, message: &NewMessage) -> bool {
        let seen = self.runs.get(&message.run);
        seen.is_some_and(|seen| seen.messages.values().any(|sent| sent.id == message.id))
    }

    /// A turn was answered. Answers what is wrong with that.
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
                self.tally.fenced += 1;
                return None;
            }
            Err(WorldError::Conflict(_)) => {
                self.tally.conflicts += 1;
                return None;
            }
            Err(WorldError::Invalid(reason)) => return Some(format!("an invalid turn: {reason}")),
            _ => return None,
        }
        let is_gone = self.gone.contains(&session);
        let seen = self.runs.entry(turn.run).or_default();
        if seen.turns.iter().any(|known| known.id == turn.id && matches!(turn.based_on, BasedOn::Start(_)))
            || seen.turn == Some(turn.id) && seen.holds > 0
        {
            self.tally.repeats += 1;
            return None;
        }
        self.tally.turns += 1;
        let wrong = judge(seen, session, is_gone, turn, now);
        if matches!(&seen.stuck_by, Some(build) if *build != turn.build && !turn.events.is_empty()) {
            self.tally.coverage.saw(Situation::ContinuedByOtherBuild);
        }
        apply(seen, session, turn);
        wrong
    }

    /// These sessions are all that there are.
    pub(super) fn sessions_are(&mut self, known: impl Iterator<Item = SessionId>, now: &BTreeSet<SessionId>) {
        self.gone.extend(known.filter(|session| !now.contains(session)));
        for seen in self.runs.values_mut() {
            seen.holder = seen.holder.filter(|holder| now.contains(holder));
        }
    }

    /// Whether the session may hold the run as far as was seen.
    pub(super) fn holds(&self, run: RunId) -> u64 {
        self.runs.get(&run).map_or(0, |seen| seen.holds)
    }
}

/// What is wrong with a turn that the world accepted.
fn judge(seen: &Seen, session: SessionId, is_gone: bool, turn: &Turn, now: Timestamp) -> Option<String> {
    let run = turn.run;
    if is_gone {
        return Some(format!("session {session} is gone, and committed a turn of run {run}"));
    }
    if seen.ended {
        return Some(format!("run {run} had ended, and got another turn"));
    }
    if let BasedOn::Turn(from) = &turn.based_on {
        if seen.holder != Some(session) {
            return Some(format!("session {session} committed run {run}, which {:?} holds", seen.holder));
        }
        if seen.turn != Some(*from) {
            return Some(format!(
                "a turn of run {run} was computed from {from}, its last was {:?}",
                seen.turn
            ));
        }
        let is_stuck = matches!(turn.then, Then::Stuck(_));
        if turn.seq != seen.seq() {
            return Some(format!("a turn of run {run} begins at {}, not {}", turn.seq, seen.seq()));
        }
        if !is_stuck && turn.consumed < seen.consumed {
            return Some(format!("run {run} forgot that it had consumed {} messages", seen.consumed));
        }
    }
    let before = seen.turns.last().map_or(turn.at, |last| last.at);
    if turn.at < before {
        return Some(format!("the time of a turn of run {run} is before that of the last one"));
    }
    if turn.at > now && turn.at > before {
        return Some(format!("the time of a turn of run {run} is in the future: {} > {now}", turn.at));
    }
    passed_over(seen, turn)
}

/// A message that came in time, and lost against a timer that the turn fires.
fn passed_over(seen: &Seen, turn: &Turn) -> Option<String> {
    let (_, unread) = seen.messages.range(turn.consumed + 1..).next()?;
    let fired = turn.events.iter().filter_map(|event| match event {
        Event::TimerFired { op } => Some(*op),
        _ => None,
    });
    let due = |wanted: OpNumber| {
        let mut events = seen.turns.iter().flat_map(|turn| &turn.events);
        events.find_map(|event| match event {
            Event::TimerStarted { op, fire_at } if *op == wanted => Some(*fire_at),
            Event::HookOpened { op, timeout_at, .. } if *op == wanted => *timeout_at,
            Event::ChildStarted(child) if child.op == wanted => child.timeout_at,
            _ => None,
        })
    };
    let (run, id, at) = (turn.run, unread.id, unread.at);
    fired
        .filter_map(due)
        .find(|due| *due >= at)
        .map(|due| format!("run {run} was sent {id} at {at}, and fired a timer of {due} without reading it"))
}

fn apply(seen: &mut Seen, session: SessionId, turn: &Turn) {
    seen.turn = Some(turn.id);
    if matches!(turn.based_on, BasedOn::Start(_)) {
        seen.holds += 1;
        seen.turns.clear();
    }
    seen.holder = matches!(turn.then, Then::Hold).then_some(session);
    if matches!(turn.then, Then::Stuck(_)) {
        seen.stuck_by = Some(turn.build.clone());
        if let BasedOn::Start(start) = &turn.based_on {
            seen.turns.push(TurnRecord { build: turn.build.clone(), ..start.first_turn(turn.at) });
        }
        return;
    }
    if !turn.events.is_empty() {
        seen.stuck_by = None;
    }
    seen.consumed_before = seen.consumed;
    seen.consumed = turn.consumed;
    seen.ended = matches!(turn.then, Then::End(_));
    if !turn.events.is_empty() {
        seen.turns.push(turn.record());
    }
}
