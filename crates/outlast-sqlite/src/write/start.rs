//! Starting runs: the row, the first turn and the key, or the run that was there before.

use outlast_core::refusal::{check_start, key_taken};
use outlast_core::{Event, RowChange, RunId, Start, Started, Tags, Timestamp, WorldError};
use rusqlite::{OptionalExtension, params};

use crate::connection::error::Refusal;
use crate::schema::columns;
use crate::schema::row::{moment, ready_times, stored, word};
use crate::schema::sql;
use crate::write::tx::Tx;

/// A start, written out by the caller so that the writer does not have to.
pub(crate) struct NewRun {
    pub(crate) start: Start,
    events: String,
}

/// What became of the row.
pub(crate) enum Born {
    New,
    /// The run was there already, by its id.
    Same,
    /// Another run was there already, by its key.
    Other(Started),
}

impl NewRun {
    pub(crate) fn encode(start: Start) -> Self {
        let mut events = String::new();
        Event::write_all(&[start.event()], &mut events);
        Self { start, events }
    }
}

/// Starts a run that nobody holds. It gets the lowest rules that every joined session knows.
pub(crate) fn start(tx: &mut Tx<'_>, new: &NewRun) -> Result<Started, Refusal> {
    match tx.lowest_rules()? {
        Some(lowest) if lowest < new.start.rules => {
            start_as_is(tx, &NewRun::encode(Start { rules: lowest, ..new.start.clone() }))
        }
        _ => start_as_is(tx, new),
    }
}

fn start_as_is(tx: &mut Tx<'_>, new: &NewRun) -> Result<Started, Refusal> {
    let start = &new.start;
    let born = insert(tx, start, &RowChange::started(start, tx.now), "[]")?;
    match born {
        Born::Same => Ok(Started { run: start.run, is_new: true }),
        Born::Other(started) => Ok(started),
        Born::New => {
            let (run, turn) = (start.run.to_string(), start.turn.to_string());
            tx.execute(sql::TURN_INSERT, params![run, 0, turn, tx.now.as_micros(), "", new.events])?;
            tx.after.rings = true;
            Ok(Started { run: start.run, is_new: true })
        }
    }
}

/// Inserts the row of a run, unless its id or key is taken.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    start: &Start,
    row: &RowChange<'_>,
    waits: &str,
) -> Result<Born, Refusal> {
    check_start(start)?;
    if !insert_row(tx, start, row, waits)? {
        match existing(tx, start)? {
            Existing::Counts(born) => return Ok(born),
            Existing::Expired(run) => {
                tx.execute(sql::RUN_UNKEY, [run.to_string()])?;
                insert_row(tx, start, row, waits)?;
            }
        }
    }
    if !start.tags.is_empty() {
        put_tags(tx, &start.run.to_string(), &start.tags)?;
    }
    tx.note_skew(start.run)?;
    tx.count_new(row.status);
    Ok(Born::New)
}

/// Inserts the row; `false` when there is one with its id or key.
fn insert_row(tx: &Tx<'_>, start: &Start, row: &RowChange<'_>, waits: &str) -> Result<bool, rusqlite::Error> {
    let (key, parent) = (start.key.as_ref(), start.parent.as_ref());
    let now = tx.now.as_micros();
    let [ready_at, ..] = ready_times(row.ready, tx.now);
    let columns = columns::values(&row.columns);
    let created = tx.execute(
        &sql::RUN_INSERT,
        &*columns::with_values(
            params![
                start.run.to_string(),
                &*start.workflow,
                start.version,
                row.format,
                key.map(|key| &*key.text),
                key.map(|key| format!("{:032x}", key.digest)),
                row.status.as_str(),
                row.owner.map(|session| session.to_string()),
                row.preferred.map(|session| session.to_string()),
                row.turn.to_string(),
                stored(row.next_event),
                row.turn_at.as_micros(),
                now,
                row.has_ended().then_some(now),
                row.wake_at.map(Timestamp::as_micros),
                waits,
                ready_at,
                row.requests_cancel,
                parent.map(|parent| parent.run.to_string()),
                parent.map(|parent| stored(parent.op.0)),
                parent.map(|parent| parent.awaits),
                parent.map(|parent| parent.root.to_string()),
                &*start.queue,
                start.priority,
            ],
            &columns,
        ),
    )?;
    Ok(created > 0)
}

/// Sets tags of a run; those of other names stay.
pub(crate) fn put_tags(tx: &Tx<'_>, run: &str, tags: &Tags) -> Result<(), rusqlite::Error> {
    tags.iter().try_for_each(|(name, value)| tx.execute(sql::TAG_PUT, [run, name, value]).map(|_| ()))
}

/// What stands in the way of a row.
enum Existing {
    /// A run that the start is answered with.
    Counts(Born),
    /// A run whose key was taken too long ago for this start.
    Expired(RunId),
}

fn existing(tx: &Tx<'_>, start: &Start) -> Result<Existing, Refusal> {
    let mut by_id = tx.connection.prepare_cached(sql::RUN_EXISTS)?;
    if by_id.exists([start.run.to_string()])? {
        return Ok(Existing::Counts(Born::Same));
    }
    let key = start.key.as_ref();
    let mut by_key = tx.connection.prepare_cached(sql::RUN_BY_KEY)?;
    let found = by_key
        .query_row([key.map(|key| &*key.text)], |row| {
            let (workflow, digest) = (row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?);
            Ok((word(row, 0)?, workflow, digest, moment(row, 3)?))
        })
        .optional()?;
    let Some((run, workflow, digest, created_at)) = found else {
        return Err(WorldError::Unavailable(format!("run {} was neither new nor there", start.run)).into());
    };
    let window = key.and_then(|key| key.window);
    if window.is_some_and(|window| created_at.plus(window) <= tx.now) {
        return Ok(Existing::Expired(run));
    }
    if workflow == *start.workflow && digest == key.map(|key| format!("{:032x}", key.digest)) {
        return Ok(Existing::Counts(Born::Other(Started { run, is_new: false })));
    }
    Err(key_taken(start, run, &workflow).into())
}
