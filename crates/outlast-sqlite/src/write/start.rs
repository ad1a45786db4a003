//! Starting runs: inserting the row, the first turn and the tags, or finding the run that exists already.

use outlast_core::refusal::{check_first_message, check_start, key_taken};
use outlast_core::{
    Event, KeyPolicy, NewMessage, RowChange, RunId, Sent, Start, Started, Tags, Timestamp, WorldError,
};
use rusqlite::{OptionalExtension, params};

use crate::connection::error::Refusal;
use crate::schema::columns;
use crate::schema::row::{parsed, ready_times, timestamp, to_i64};
use crate::schema::sql;
use crate::write::message::EncodedMessage;
use crate::write::send::{send, send_by_client};
use crate::write::tx::Tx;

/// A start, encoded on the caller's thread to relieve the writer.
pub(crate) struct EncodedStart {
    pub(crate) start: Start,
    events: String,
}

/// Whether a run was inserted.
pub(crate) enum InsertOutcome {
    Inserted,
    /// A run with this id exists.
    SameId,
    /// Another run with this key exists.
    SameKey(Started),
}

impl EncodedStart {
    pub(crate) fn encode(start: Start) -> Self {
        let mut events = String::new();
        Event::write_all(&[start.event()], &mut events);
        Self { start, events }
    }
}

/// Starts a run that no session holds. It gets the rules of its start, or lower ones if a joined session supports only
/// those.
pub(crate) fn start(tx: &mut Tx<'_>, new: &EncodedStart) -> Result<Started, Refusal> {
    match tx.lowest_rules()? {
        Some(lowest) if lowest < new.start.rules => {
            start_with_own_rules(tx, &EncodedStart::encode(Start { rules: lowest, ..new.start.clone() }))
        }
        _ => start_with_own_rules(tx, new),
    }
}

/// Starts a run, or finds the one that the key names, and sends it a message. All that can be refused after the start
/// was written is checked before.
pub(crate) fn start_and_send(
    tx: &mut Tx<'_>,
    (new, message): &(EncodedStart, EncodedMessage),
) -> Result<(Started, Sent), Refusal> {
    check_first_message(&message.message)?;
    let started = start(tx, new)?;
    let message = NewMessage { run: started.run, ..message.message.clone() };
    Ok((started, send_by_client(tx, &EncodedMessage::encode(message)?)?))
}

/// Starts a run with the rules that its start contains.
fn start_with_own_rules(tx: &mut Tx<'_>, new: &EncodedStart) -> Result<Started, Refusal> {
    let start = &new.start;
    let outcome = insert(tx, start, &RowChange::started(start, tx.now), "[]")?;
    match outcome {
        InsertOutcome::SameId => Ok(Started { run: start.run, is_new: true }),
        InsertOutcome::SameKey(started) => Ok(started),
        InsertOutcome::Inserted => {
            let (run, turn) = (start.run.to_string(), start.turn.to_string());
            tx.execute(sql::TURN_INSERT, params![run, 0, turn, tx.now.as_micros(), "", new.events])?;
            tx.after_commit.wakes_workers = true;
            Ok(Started { run: start.run, is_new: true })
        }
    }
}

/// Inserts the row of a run, unless a run with its id or key exists.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    start: &Start,
    row: &RowChange<'_>,
    waits: &str,
) -> Result<InsertOutcome, Refusal> {
    check_start(start)?;
    if !insert_row(tx, start, row, waits)? {
        match conflicting_run(tx, start)? {
            ConflictingRun::AnswersStart(outcome) => return Ok(outcome),
            ConflictingRun::KeyExpired(run) => {
                tx.execute(sql::RUN_CLEAR_KEY, [run.to_string()])?;
                insert_row(tx, start, row, waits)?;
            }
            ConflictingRun::Replaced { run, has_ended } => {
                if !has_ended {
                    send(tx, &EncodedMessage::encode(start.cancel_of_replaced(run))?)?;
                }
                tx.execute(sql::RUN_CLEAR_KEY, [run.to_string()])?;
                insert_row(tx, start, row, waits)?;
            }
        }
    }
    if !start.tags.is_empty() {
        put_tags(tx, &start.run.to_string(), &start.tags)?;
    }
    tx.record_id_skew(start.run)?;
    tx.count_new(row.status);
    Ok(InsertOutcome::Inserted)
}

/// Inserts the row; `false` if a run with its id or key exists.
fn insert_row(tx: &Tx<'_>, start: &Start, row: &RowChange<'_>, waits: &str) -> Result<bool, rusqlite::Error> {
    let (key, parent) = (start.key.as_ref(), start.parent.as_ref());
    let now = tx.now.as_micros();
    let [ready_at, ..] = ready_times(row.ready, tx.now);
    let columns = columns::values(&row.columns);
    let created = tx.execute(
        &sql::RUN_INSERT,
        &*columns::append_values(
            params![
                start.run.to_string(),
                &*start.workflow,
                row.version.unwrap_or(start.version),
                row.format,
                key.map(|key| &*key.text),
                key.map(|key| format!("{:032x}", key.digest)),
                row.status.as_str(),
                row.owner.map(|session| session.to_string()),
                row.preferred.map(|session| session.to_string()),
                row.turn.to_string(),
                to_i64(row.next_event),
                row.turn_at.as_micros(),
                now,
                row.has_ended().then_some(now),
                row.wake_at.map(Timestamp::as_micros),
                waits,
                ready_at,
                row.requests_cancel,
                parent.map(|parent| parent.run.to_string()),
                parent.map(|parent| to_i64(parent.op.0)),
                parent.map(|parent| parent.awaits),
                parent.map(|parent| parent.root.to_string()),
                &*start.queue,
                start.priority,
                row.sets_marks.bits(),
            ],
            &columns,
        ),
    )?;
    Ok(created > 0)
}

/// Sets tags of a run. Tags with other names are kept.
pub(crate) fn put_tags(tx: &Tx<'_>, run: &str, tags: &Tags) -> Result<(), rusqlite::Error> {
    tags.iter().try_for_each(|(name, value)| tx.execute(sql::TAG_PUT, [run, name, value]).map(|_| ()))
}

/// The existing run that prevents an insert.
enum ConflictingRun {
    /// The start is answered with this run.
    AnswersStart(InsertOutcome),
    /// The run has the same key, but was started before the window of the key, or has ended and held it only until then.
    KeyExpired(RunId),
    /// The run loses its key to the start, and is asked to stop.
    Replaced { run: RunId, has_ended: bool },
}

/// Finds out why a start could not be inserted: because of its id, or because of its key.
fn conflicting_run(tx: &Tx<'_>, start: &Start) -> Result<ConflictingRun, Refusal> {
    let mut by_id = tx.connection.prepare_cached(sql::RUN_EXISTS)?;
    if by_id.exists([start.run.to_string()])? {
        return Ok(ConflictingRun::AnswersStart(InsertOutcome::SameId));
    }
    let key = start.key.as_ref();
    let mut by_key = tx.connection.prepare_cached(sql::RUN_BY_KEY)?;
    let found = by_key
        .query_row([key.map(|key| &*key.text)], |row| {
            let (workflow, digest) = (row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?);
            let has_ended = row.get::<_, Option<i64>>(4)?.is_some();
            Ok((parsed(row, 0)?, workflow, digest, timestamp(row, 3)?, has_ended))
        })
        .optional()?;
    let Some((run, workflow, digest, created_at, has_ended)) = found else {
        return Err(WorldError::unavailable(format!(
            "run {} was not inserted, but no run has its id or key; try again",
            start.run
        ))
        .into());
    };
    if start.replaces() {
        return Ok(ConflictingRun::Replaced { run, has_ended });
    }
    let window = key.and_then(|key| key.window);
    if window.is_some_and(|window| created_at.plus(window) <= tx.now) {
        return Ok(ConflictingRun::KeyExpired(run));
    }
    if has_ended && key.is_some_and(|key| key.policy == KeyPolicy::WhileRunning) {
        return Ok(ConflictingRun::KeyExpired(run));
    }
    if workflow == *start.workflow && digest == key.map(|key| format!("{:032x}", key.digest)) {
        return Ok(ConflictingRun::AnswersStart(InsertOutcome::SameKey(Started { run, is_new: false })));
    }
    Err(key_taken(start, run, &workflow).into())
}
