//! Turns on their way to the world, column by column.

use outlast_core::turn::From;
use outlast_core::{Event, Outcome, Start, Then, Timestamp, Turn, Wait, WorldError};

use crate::message::Values1;
use crate::row::{reason, stored};
use crate::skew::millis_of;
use crate::start::FORMAT_STORED;
use crate::text::stored as stored_text;

/// Room for the events of an ordinary turn.
const EVENTS_BYTES: usize = 256;

/// Turns, column by column.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Whether no other commit of the session may be under way; see `commit.sql`.
    exclusive: bool,
    locked: Vec<String>,
    runs: Vec<String>,
    ids: Vec<String>,
    froms: Vec<Option<String>>,
    seqs: Vec<i64>,
    next_seqs: Vec<i64>,
    ats: Vec<i64>,
    builds: Vec<String>,
    events: Vec<Option<String>>,
    consumed: Vec<i64>,
    fired_until: Vec<Option<i64>>,
    thens: Vec<&'static str>,
    writes: Vec<bool>,
    clears_deadline: Vec<bool>,
    invalid: Vec<bool>,
    wake_at: Vec<Option<i64>>,
    waits: Vec<Option<String>>,
    stuck_reasons: Vec<Option<String>>,
    stuck_messages: Vec<Option<String>>,
    stuck_builds: Vec<Option<String>>,
    births: Births,
}

/// What runs that turns start are like; empty when there are none.
#[derive(Debug, Default)]
pub(crate) struct Births {
    /// The times in the ids of the runs that are started, and of no others.
    born: Vec<i64>,
    workflows: Vec<Option<String>>,
    versions: Vec<Option<i64>>,
    queues: Vec<Option<String>>,
    priorities: Vec<Option<i16>>,
    parents: Vec<Option<String>>,
    parent_ops: Vec<Option<i64>>,
    parent_awaits: Vec<Option<bool>>,
    roots: Vec<Option<String>>,
    deadlines: Vec<Option<i64>>,
}

impl Turns {
    /// Adds a turn; answers how many bytes its events have.
    pub(crate) fn add(&mut self, turn: &Turn, refused: Option<&WorldError>) -> usize {
        let mut text = String::with_capacity(EVENTS_BYTES);
        let added = match (&turn.then, &turn.from) {
            // A stuck turn adds nothing of its own; if it starts the run, that is all it records.
            (Then::Stuck(_), From::Turn(_)) => 0,
            (Then::Stuck(_), From::Start(start)) => write_events(&[start.event()], &mut text),
            _ => write_events(&turn.events, &mut text),
        };
        let bytes = text.len();
        let run = turn.run.to_string();
        let has_events = added > 0;
        let is_next = matches!(turn.from, From::Turn(_));
        let writes =
            !matches!(turn.then, Then::Hold) || turn.clears_crashes || turn.clears_deadline || !has_events;
        if is_next {
            self.exclusive |= !has_events;
            if writes || turn.consumed > 0 || turn.fired_until.is_some() {
                self.locked.push(run.clone());
            }
        }
        self.runs.push(run);
        self.ids.push(turn.id.to_string());
        self.seqs.push(stored(turn.seq));
        self.next_seqs.push(stored(turn.seq + added));
        self.ats.push(turn.at.as_micros());
        self.builds.push(stored_text(&turn.build).into_owned());
        self.events.push(has_events.then_some(text));
        self.consumed.push(stored(turn.consumed));
        self.fired_until.push(turn.fired_until.map(Timestamp::as_micros));
        self.writes.push(writes);
        self.clears_deadline.push(turn.clears_deadline);
        self.invalid.push(refused.is_some());
        self.add_then(&turn.then);
        self.add_from(turn);
        bytes
    }

    fn add_then(&mut self, then: &Then) {
        self.thens.push(match then {
            Then::Hold => "hold",
            Then::Wait { .. } => "wait",
            Then::Release => "release",
            Then::End(status) => status.as_str(),
            Then::Stuck(_) => "stuck",
        });
        let (wake_at, waits) = match then {
            Then::Wait { wake_at, waits } => (wake_at.map(Timestamp::as_micros), Some(write_waits(waits))),
            _ => (None, None),
        };
        self.wake_at.push(wake_at);
        self.waits.push(waits);
        let stuck = if let Then::Stuck(stuck) = then { Some(stuck) } else { None };
        self.stuck_reasons.push(stuck.map(reason));
        self.stuck_messages.push(stuck.map(|stuck| stored_text(&stuck.message).into_owned()));
        self.stuck_builds.push(stuck.map(|stuck| stored_text(&stuck.build).into_owned()));
    }

    fn add_from(&mut self, turn: &Turn) {
        match &turn.from {
            From::Turn(from) => self.froms.push(Some(from.to_string())),
            From::Start(start) => {
                self.froms.push(None);
                let before = self.runs.len() - 1;
                self.births.add(start, before);
            }
        }
    }

    /// Whether this is one turn of the kinds that `commit_one.sql` is for.
    pub(crate) fn is_plain(&self) -> bool {
        let ([Some(_)], [Some(_)]) = (&self.froms[..], &self.events[..]) else { return false };
        let is_step = self.thens[0] == "hold" && !self.writes[0];
        let is_end = matches!(self.thens[0], "completed" | "failed" | "cancelled");
        (is_step || is_end) && !self.invalid[0] && self.fired_until[0].is_none()
    }

    /// The parameters of `commit_one.sql`, behind the session and the time.
    pub(crate) fn values_of_one(&self) -> [Values1<'_>; 10] {
        [
            &self.runs[0],
            &self.ids[0],
            &self.froms[0],
            &self.seqs[0],
            &self.next_seqs[0],
            &self.ats[0],
            &self.builds[0],
            &self.events[0],
            &self.consumed[0],
            &self.thens[0],
        ]
    }

    /// The parameters of `commit_each.sql` that are the turns' own, behind the session and the time.
    pub(crate) fn values_of_each(&self) -> [Values1<'_>; 20] {
        [
            &self.exclusive,
            &self.runs,
            &self.ids,
            &self.froms,
            &self.seqs,
            &self.next_seqs,
            &self.ats,
            &self.builds,
            &self.events,
            &self.consumed,
            &self.fired_until,
            &self.thens,
            &self.clears_deadline,
            &self.invalid,
            &self.wake_at,
            &self.waits,
            &self.stuck_reasons,
            &self.stuck_messages,
            &self.stuck_builds,
            &FORMAT_STORED,
        ]
    }

    /// The parameters of `commit.sql`, behind the session and the time.
    pub(crate) fn values(&self) -> [Values1<'_>; 32] {
        let births = &self.births;
        [
            &self.exclusive,
            &self.locked,
            &self.runs,
            &self.ids,
            &self.froms,
            &self.seqs,
            &self.next_seqs,
            &self.ats,
            &self.builds,
            &self.events,
            &self.consumed,
            &self.fired_until,
            &self.thens,
            &self.writes,
            &self.clears_deadline,
            &self.invalid,
            &self.wake_at,
            &self.waits,
            &self.stuck_reasons,
            &self.stuck_messages,
            &self.stuck_builds,
            &FORMAT_STORED,
            &births.born,
            &births.workflows,
            &births.versions,
            &births.queues,
            &births.priorities,
            &births.parents,
            &births.parent_ops,
            &births.parent_awaits,
            &births.roots,
            &births.deadlines,
        ]
    }
}

impl Births {
    /// Adds a start at this place; those before it that start nothing are filled.
    fn add(&mut self, start: &Start, place: usize) {
        let parent = start.parent.as_ref();
        self.born.push(millis_of(start.run));
        put(&mut self.workflows, place, Some(stored_text(&start.workflow).into_owned()));
        put(&mut self.versions, place, Some(i64::from(start.version)));
        put(&mut self.queues, place, Some(stored_text(&start.queue).into_owned()));
        put(&mut self.priorities, place, Some(i16::from(start.priority)));
        put(&mut self.parents, place, parent.map(|parent| parent.run.to_string()));
        put(&mut self.parent_ops, place, parent.map(|parent| parent.op.0 as i64));
        put(&mut self.parent_awaits, place, parent.map(|parent| parent.awaits));
        put(&mut self.roots, place, parent.map(|parent| parent.root.to_string()));
        put(&mut self.deadlines, place, start.deadline.map(Timestamp::as_micros));
    }
}

fn put<T>(column: &mut Vec<Option<T>>, place: usize, value: Option<T>) {
    column.resize_with(place, || None);
    column.push(value);
}

/// What a turn is refused for, whatever the world holds.
pub(crate) fn check(turn: &Turn) -> Result<(), WorldError> {
    if let From::Start(start) = &turn.from {
        outlast_core::refusal::check_start(start)?;
        check_begin(turn, start)?;
    }
    let status = turn.events.last().and_then(Outcome::of_final).map(|outcome| outcome.status());
    match &turn.then {
        Then::End(ends) if status != Some(*ends) => {
            Err(invalid(turn, &format!("it ends as {ends} and its last event does not say so")))
        }
        _ => Ok(()),
    }
}

fn check_begin(turn: &Turn, start: &Start) -> Result<(), WorldError> {
    if start.run != turn.run {
        return Err(invalid(turn, &format!("it starts run {}", start.run)));
    }
    if turn.seq != 0 || turn.consumed != 0 {
        return Err(invalid(turn, "a first turn begins with event 0 and has consumed nothing"));
    }
    let begins = matches!(turn.events.first(), Some(Event::RunStarted(_)));
    match turn.then {
        Then::Stuck(_) => Ok(()),
        _ if begins => Ok(()),
        _ => Err(invalid(turn, "a first turn begins with `run_started`")),
    }
}

/// A turn that the session may not commit.
pub(crate) fn fenced(turn: &Turn, why: &str) -> WorldError {
    WorldError::Fenced(format!("turn {} of run {} is refused: {why}; forget the run", turn.id, turn.run))
}

/// A turn that nobody may commit.
pub(crate) fn invalid(turn: &Turn, why: &str) -> WorldError {
    WorldError::Invalid(format!("turn {} of run {} makes no sense: {why}", turn.id, turn.run))
}

/// Whether a turn changes more than its own run, or takes a key: it is committed alone.
pub(crate) fn reaches_beyond(turn: &Turn) -> bool {
    let starts_with_name = match &turn.from {
        From::Turn(_) => false,
        From::Start(start) => start.key.is_some() || !start.tags.is_empty(),
    };
    let is_stuck = matches!(turn.then, Then::Stuck(_));
    starts_with_name || !is_stuck && turn.beyond.as_ref().is_some_and(|beyond| !beyond.is_empty())
}

fn write_events(events: &[Event], text: &mut String) -> u64 {
    Event::write_all(events, text);
    events.len() as u64
}

/// Waits are plain numbers and names, so writing them cannot fail.
fn write_waits(waits: &[Wait]) -> String {
    serde_json::to_string(waits).unwrap_or_else(|_| "[]".into())
}
