//! Starting runs: the row, the first turn and the key, or the run that was there before.

use outlast_core::refusal::{check_start, key_taken};
use outlast_core::{
    Event, RunId, SessionId, Start, Started, Status, Stuck, Tags, Timestamp, TurnId, WorldError,
};
use rusqlite::{OptionalExtension, params};

use crate::error::Refusal;
use crate::row::{moment, reason, stored, word};
use crate::sql;
use crate::tx::Tx;

/// A start, written out by the caller so that the writer does not have to.
pub(crate) struct NewRun {
    pub(crate) start: Start,
    events: String,
}

/// How a new run's row begins, when not as a plain start.
pub(crate) struct Birth<'a> {
    pub(crate) status: Status,
    pub(crate) owner: Option<SessionId>,
    pub(crate) preferred: Option<SessionId>,
    pub(crate) turn: TurnId,
    pub(crate) next_seq: u64,
    pub(crate) at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) waits: &'a str,
    pub(crate) ready_at: Option<Timestamp>,
    pub(crate) stuck: Option<&'a Stuck>,
    pub(crate) deadline: Option<Timestamp>,
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

/// Starts a run that nobody holds.
pub(crate) fn start(tx: &mut Tx<'_>, new: &NewRun) -> Result<Started, Refusal> {
    let start = &new.start;
    let wake_at = start.not_before.filter(|begin| *begin > tx.now);
    let born = insert(
        tx,
        start,
        &Birth {
            status: Status::Pending,
            owner: None,
            preferred: None,
            turn: start.turn,
            next_seq: 1,
            at: tx.now,
            ended_at: None,
            wake_at,
            waits: "[]",
            ready_at: wake_at.or(Some(tx.now)),
            stuck: None,
            deadline: start.deadline,
        },
    )?;
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
pub(crate) fn insert(tx: &mut Tx<'_>, start: &Start, birth: &Birth<'_>) -> Result<Born, Refusal> {
    check_start(start)?;
    if !insert_row(tx, start, birth)? {
        match existing(tx, start)? {
            Existing::Counts(born) => return Ok(born),
            Existing::Expired(run) => {
                tx.execute(sql::RUN_UNKEY, [run.to_string()])?;
                insert_row(tx, start, birth)?;
            }
        }
    }
    if !start.tags.is_empty() {
        put_tags(tx, &start.run.to_string(), &start.tags)?;
    }
    tx.note_skew(start.run)?;
    tx.count_new(birth.status);
    Ok(Born::New)
}

/// Inserts the row; `false` when there is one with its id or key.
fn insert_row(tx: &Tx<'_>, start: &Start, birth: &Birth<'_>) -> Result<bool, rusqlite::Error> {
    let (key, parent) = (start.key.as_ref(), start.parent.as_ref());
    let created = tx.execute(
        sql::RUN_INSERT,
        params![
            start.run.to_string(),
            &*start.workflow,
            start.version,
            start.format(),
            key.map(|key| &*key.text),
            key.map(|key| format!("{:032x}", key.digest)),
            birth.status.as_str(),
            birth.owner.map(|session| session.to_string()),
            birth.preferred.map(|session| session.to_string()),
            birth.turn.to_string(),
            stored(birth.next_seq),
            birth.at.as_micros(),
            tx.now.as_micros(),
            birth.ended_at.map(Timestamp::as_micros),
            birth.wake_at.map(Timestamp::as_micros),
            birth.waits,
            birth.ready_at.map(Timestamp::as_micros),
            birth.stuck.map(reason),
            birth.stuck.map(|stuck| &*stuck.message),
            birth.stuck.map(|stuck| &*stuck.build),
            parent.map(|parent| parent.run.to_string()),
            parent.map(|parent| stored(parent.op.0)),
            parent.map(|parent| parent.awaits),
            parent.map(|parent| parent.root.to_string()),
            birth.deadline.map(Timestamp::as_micros),
            &*start.queue,
            start.priority,
        ],
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
