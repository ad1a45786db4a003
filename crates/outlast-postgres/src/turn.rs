//! Turns on their way to the database: the rows as the state machine computed them, and what they are judged by.

use outlast_core::format::FIRST_FORMAT;
use outlast_core::refusal::check_start;
use outlast_core::turn::BasedOn;
use outlast_core::{Event, FailedBuilds, ReadyAt, RowChange, SessionId, Then, Turn, Wait, WorldError, state};

use crate::columns;
use crate::fields::Rows;
use crate::row::micros;
use crate::start::{add_identity, add_names};
use crate::text::{plain, stored as stored_text};

/// Room for the events of an ordinary turn.
const EVENTS_BYTES: usize = 256;

/// What a turn is refused for, whatever the world holds.
pub(crate) fn check(turn: &Turn) -> Result<(), WorldError> {
    if let BasedOn::Start(start) = &turn.based_on {
        check_start(start)?;
    }
    state::check(turn)
}

/// The events that a turn adds; `None` when there are none. A stuck turn adds nothing of its own; if it starts the run,
/// it records that.
pub(crate) fn events(turn: &Turn) -> Option<String> {
    let mut text = String::with_capacity(EVENTS_BYTES);
    match (&turn.then, &turn.based_on) {
        (Then::Stuck(_), BasedOn::Turn(_)) => return None,
        (Then::Stuck(_), BasedOn::Start(start)) => Event::write_all(&[start.event()], &mut text),
        _ if turn.events.is_empty() => return None,
        _ => Event::write_all(&turn.events, &mut text),
    }
    Some(text)
}

/// Whether no other commit of the session may be under way: the turn adds no events, so no key fences it.
pub(crate) fn is_exclusive(turn: &Turn) -> bool {
    matches!(turn.based_on, BasedOn::Turn(_))
        && (turn.events.is_empty() || matches!(turn.then, Then::Stuck(_)))
}

/// Adds a turn to the rows of `commit.sql`.
pub(crate) fn add(rows: &mut Rows, turn: &Turn, session: SessionId, is_refused: bool) {
    let change = RowChange::of(turn, session);
    rows.begin();
    match &turn.based_on {
        BasedOn::Turn(from) => {
            rows.word("run", turn.run);
            rows.word("from", from);
        }
        BasedOn::Start(start) => {
            add_names(rows, start);
            rows.object("start", |rows| add_identity(rows, start));
        }
    }
    rows.word("id", turn.id);
    rows.count_of("seq", turn.seq);
    rows.count_of("next", change.next_event);
    rows.moment("at", Some(change.turn_at));
    rows.text("build", &turn.build);
    rows.flag("invalid", is_refused);
    if let Some(consumed) = change.consumed {
        rows.count_of("consumed", consumed);
        rows.moment("fired", turn.fired_until);
    }
    add_tags(rows, turn);
    rows.flag("writes", change.writes_row);
    if change.format > FIRST_FORMAT {
        rows.number("format", i64::from(change.format));
    }
    if may_write_row(turn, &change) || matches!(turn.based_on, BasedOn::Start(_)) {
        rows.object("row", |rows| add_change(rows, &change));
    }
}

/// Whether the turn may change the row. One that only adds to the history leaves it alone, unless it has consumed messages
/// or readers need a higher format for what it adds.
fn may_write_row(turn: &Turn, change: &RowChange<'_>) -> bool {
    change.writes_row || turn.consumed > 0 || change.format > FIRST_FORMAT
}

/// The tags of the start and of the outbox.
fn add_tags(rows: &mut Rows, turn: &Turn) {
    let started = if let BasedOn::Start(start) = &turn.based_on { Some(&start.tags) } else { None };
    let is_stuck = matches!(turn.then, Then::Stuck(_));
    let set = turn.outbox.as_ref().filter(|_| !is_stuck).map(|outbox| &outbox.tags);
    rows.tags("tags", started.into_iter().flatten().chain(set.into_iter().flatten()));
}

fn add_change(rows: &mut Rows, change: &RowChange<'_>) {
    rows.word("status", change.status);
    rows.flag("held", change.owner.is_some());
    rows.flag("preferred", change.preferred.is_some());
    rows.moment("wake_at", change.wake_at);
    if !change.waits.is_empty() {
        rows.json_text("waits", &write_waits(change.waits));
    }
    add_ready(rows, ["read_at", "read_after"], change.ready.if_read);
    add_ready(rows, ["unread_at", "unread_after"], change.ready.if_unread);
    add_ready(rows, ["ending_at", "ending_after"], change.ready.if_can_end);
    columns::add(rows, &change.columns);
    rows.flag("cancels", change.requests_cancel);
}

/// A moment as the smaller one of two: a fixed one, and one so long after the change.
fn add_ready(rows: &mut Rows, [at, after]: [&str; 2], ready: ReadyAt) {
    match ready {
        ReadyAt::Never => {}
        ReadyAt::Now => rows.number(after, 0),
        ReadyAt::NowOr(moment) => {
            rows.moment(at, Some(moment));
            rows.number(after, 0);
        }
        ReadyAt::At(moment) => rows.moment(at, Some(moment)),
        ReadyAt::After(pause) => rows.number(after, micros(pause)),
    }
}

/// Waits are plain numbers and names, so writing them cannot fail.
fn write_waits(waits: &[Wait]) -> String {
    serde_json::to_string(waits).unwrap_or_else(|_| "[]".into())
}

/// A list of failed builds as its column has it: the names as other texts that users choose.
pub(crate) fn write_builds(failed: &FailedBuilds) -> String {
    let builds: Vec<_> = failed.builds().iter().map(|build| stored_text(build)).collect();
    if builds.is_empty() { String::new() } else { serde_json::to_string(&builds).unwrap_or_default() }
}

/// A list of failed builds from its columns.
pub(crate) fn read_builds(text: &str, at: u64) -> FailedBuilds {
    if text.is_empty() {
        return FailedBuilds::default();
    }
    let builds: Vec<String> = serde_json::from_str(text).unwrap_or_default();
    let builds: Vec<_> = builds.iter().map(|build| plain(build)).collect();
    FailedBuilds::from_stored(at, &serde_json::to_string(&builds).unwrap_or_default())
}

/// A turn of the kinds that `commit_one.sql` is for: a step forward that leaves the row alone, or an end like any other.
/// Answers the status of the end.
pub(crate) fn plain_end(turn: &Turn, session: SessionId) -> Option<Option<&'static str>> {
    let change = RowChange::of(turn, session);
    let has_outbox = turn.outbox.as_ref().is_some_and(|outbox| !outbox.is_empty());
    if has_outbox
        || turn.fired_until.is_some()
        || turn.events.is_empty()
        || change.format > FIRST_FORMAT
        || matches!(turn.based_on, BasedOn::Start(_))
    {
        return None;
    }
    match turn.then {
        Then::Hold if !change.writes_row => Some(None),
        // What every end makes of the columns is all that it makes of these.
        Then::End(status) if !change.requests_cancel && *change.columns == turn.columns.before.ended() => {
            Some(Some(status.as_str()))
        }
        _ => None,
    }
}

/// Whether the row of the turn's run must be locked: it changes, or messages and timers compete.
pub(crate) fn locks_row(turn: &Turn, session: SessionId) -> bool {
    // What comes of the start of a child is sent to its parent.
    let has_children = turn.outbox.as_ref().is_some_and(|outbox| !outbox.children.is_empty());
    matches!(turn.based_on, BasedOn::Turn(_))
        && (turn.fired_until.is_some() || has_children || may_write_row(turn, &RowChange::of(turn, session)))
}
