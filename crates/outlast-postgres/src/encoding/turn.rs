//! Turns as parameters of `commit.sql`: the new row of the run, as the state machine of outlast-core computed it, and
//! the fields by which the database decides whether it accepts the turn.

use outlast_core::format::FIRST_FORMAT;
use outlast_core::refusal::check_start;
use outlast_core::turn::BasedOn;
use outlast_core::{
    Event, FailedBuilds, Marks, ReadyAt, RowChange, SessionId, Then, Turn, Wait, WorldError, state,
};

use crate::encoding::json_rows::JsonRows;
use crate::encoding::row::micros;
use crate::encoding::text::{escape_nul, unescape_nul};
use crate::schema::holder_columns;
use crate::write::start::{add_identity, add_run_and_key};

/// The initial capacity for the events of a turn, in bytes.
const EVENTS_CAPACITY: usize = 256;

/// Checks of a turn that do not depend on the database.
pub(crate) fn check(turn: &Turn) -> Result<(), WorldError> {
    if let BasedOn::Start(start) = &turn.based_on {
        check_start(start)?;
    }
    state::check(turn)
}

/// The events that a turn adds to the history; `None` if there are none. A stuck turn adds no events of its own, except
/// the start of its run.
pub(crate) fn events_json(turn: &Turn) -> Option<String> {
    let mut text = String::with_capacity(EVENTS_CAPACITY);
    match (&turn.then, &turn.based_on) {
        (Then::Stuck(_), BasedOn::Turn(_)) => return None,
        (Then::Stuck(_), BasedOn::Start(start)) => Event::write_all(&[start.event()], &mut text),
        _ if turn.events.is_empty() => return None,
        _ => Event::write_all(&turn.events, &mut text),
    }
    Some(text)
}

/// Adds a turn to the rows of `commit.sql`.
pub(crate) fn add_turn(rows: &mut JsonRows, turn: &Turn, session: SessionId, is_refused: bool) {
    let change = RowChange::of(turn, session);
    rows.begin_row();
    match &turn.based_on {
        BasedOn::Turn(previous) => {
            rows.word("run", turn.run);
            rows.word("from", previous);
        }
        BasedOn::Start(start) => {
            add_run_and_key(rows, start);
            rows.nested_object("start", |rows| add_identity(rows, start));
        }
    }
    rows.word("id", turn.id);
    rows.unsigned("seq", turn.seq);
    rows.unsigned("next", change.next_event);
    rows.timestamp("at", Some(change.turn_at));
    rows.text("build", &turn.build);
    rows.flag("invalid", is_refused);
    if let Some(consumed) = change.consumed {
        rows.unsigned("consumed", consumed);
        rows.timestamp("fired", turn.fired_until);
    }
    add_tags(rows, turn);
    rows.flag("writes", change.writes_row);
    if change.format > FIRST_FORMAT {
        rows.number("format", i64::from(change.format));
    }
    if may_write_row(turn, &change) || matches!(turn.based_on, BasedOn::Start(_)) {
        rows.nested_object("row", |rows| add_row_change(rows, &change));
    }
}

/// Whether the turn may change the run's row. A turn that only adds to the history does not, unless it has consumed
/// messages or its events need a higher format.
fn may_write_row(turn: &Turn, change: &RowChange<'_>) -> bool {
    change.writes_row || turn.consumed > 0 || change.format > FIRST_FORMAT
}

/// Adds the tags of the start and of the outbox.
fn add_tags(rows: &mut JsonRows, turn: &Turn) {
    let start_tags = if let BasedOn::Start(start) = &turn.based_on { Some(&start.tags) } else { None };
    let is_stuck = matches!(turn.then, Then::Stuck(_));
    let outbox_tags = turn.outbox.as_ref().filter(|_| !is_stuck).map(|outbox| &outbox.tags);
    rows.tags("tags", start_tags.into_iter().flatten().chain(outbox_tags.into_iter().flatten()));
}

/// Adds the change of the run's row as fields of its JSON object. Fields with the value of a new run are left out.
fn add_row_change(rows: &mut JsonRows, change: &RowChange<'_>) {
    rows.word("status", change.status);
    rows.flag("held", change.owner.is_some());
    rows.flag("preferred", change.preferred.is_some());
    rows.timestamp("wake_at", change.wake_at);
    if !change.waits.is_empty() {
        rows.plain_text("waits", &write_waits(change.waits));
    }
    add_ready_at(rows, ["read_at", "read_after"], change.ready.if_read);
    add_ready_at(rows, ["unread_at", "unread_after"], change.ready.if_unread);
    add_ready_at(rows, ["ending_at", "ending_after"], change.ready.if_can_end);
    if let ReadyAt::At(deadline) = change.ready.if_paused {
        rows.timestamp("paused_at", Some(deadline));
    }
    if let Some(version) = change.version {
        rows.number("version", i64::from(version));
    }
    holder_columns::add(rows, &change.columns);
    rows.flag("cancels", change.requests_cancel);
    add_marks(rows, "clears_marks", change.clears_marks);
    add_marks(rows, "sets_marks", change.sets_marks);
}

fn add_marks(rows: &mut JsonRows, name: &str, marks: Marks) {
    if !marks.is_empty() {
        rows.number(name, i64::from(marks.bits()));
    }
}

/// Adds when a run is ready, as the earlier of two times: a fixed one (`at`), and one relative to the commit (`after`).
fn add_ready_at(rows: &mut JsonRows, [at, after]: [&str; 2], ready: ReadyAt) {
    match ready {
        ReadyAt::Never => {}
        ReadyAt::Now => rows.number(after, 0),
        ReadyAt::NowOr(timestamp) => {
            rows.timestamp(at, Some(timestamp));
            rows.number(after, 0);
        }
        ReadyAt::At(timestamp) => rows.timestamp(at, Some(timestamp)),
        ReadyAt::After(pause) => rows.number(after, micros(pause)),
    }
}

/// Waits as JSON. They consist of numbers and names, so writing them cannot fail.
fn write_waits(waits: &[Wait]) -> String {
    serde_json::to_string(waits).unwrap_or_else(|_| "[]".into())
}

/// A list of failed builds as its column stores it; NUL in the names is escaped, as in other texts that users choose.
pub(crate) fn write_builds(failed: &FailedBuilds) -> String {
    let builds: Vec<_> = failed.builds().iter().map(|build| escape_nul(build)).collect();
    if builds.is_empty() { String::new() } else { serde_json::to_string(&builds).unwrap_or_default() }
}

/// Reads a list of failed builds from its columns.
pub(crate) fn read_builds(text: &str, at: u64) -> FailedBuilds {
    if text.is_empty() {
        return FailedBuilds::default();
    }
    let builds: Vec<String> = serde_json::from_str(text).unwrap_or_default();
    let builds: Vec<_> = builds.iter().map(|build| unescape_nul(build)).collect();
    FailedBuilds::from_stored(at, &serde_json::to_string(&builds).unwrap_or_default())
}

/// A turn that `commit_one.sql` can commit: it either adds events and leaves the run's row unchanged, or ends the run
/// without further changes.
pub(crate) struct SimpleTurn {
    /// The final status of the run; `None` if the turn does not end it.
    pub(crate) end_status: Option<&'static str>,
}

/// The turn as a simple one; `None` if it is not simple.
pub(crate) fn simple_turn(turn: &Turn, session: SessionId) -> Option<SimpleTurn> {
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
        Then::Hold if !change.writes_row => Some(SimpleTurn { end_status: None }),
        // The turn changes the holder's columns only as every end does, and sets no mark.
        Then::End(status)
            if !change.requests_cancel
                && *change.columns == turn.columns.before.ended()
                && change.columns.marks == turn.columns.before.marks =>
        {
            Some(SimpleTurn { end_status: Some(status.as_str()) })
        }
        _ => None,
    }
}

/// Whether the row of the turn's run must be locked: because it changes, or because the turn fires a timer, which must
/// be ordered with messages to the run.
pub(crate) fn locks_row(turn: &Turn, session: SessionId) -> bool {
    // The answer to the start of a child, or to a token that the turn takes, is a message to the turn's own run.
    let may_be_answered =
        turn.outbox.as_ref().is_some_and(|outbox| !outbox.children.is_empty() || !outbox.tokens.is_empty());
    matches!(turn.based_on, BasedOn::Turn(_))
        && (turn.fired_until.is_some()
            || may_be_answered
            || may_write_row(turn, &RowChange::of(turn, session)))
}
