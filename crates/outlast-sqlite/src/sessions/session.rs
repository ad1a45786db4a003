//! Sessions: joining, beating, leaving, and taking over from the dead.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::refusal::{no_run, session_gone};
use outlast_core::state::resumed;
use outlast_core::takeover::HeldRuns;
use outlast_core::{
    Beat, HeldRun, HolderColumns, Join, ReleaseReason, Released, RunId, SessionId, Status, Timestamp, TurnId,
    VERSION, WorldError,
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::connection::error::Refusal;
use crate::schema::columns;
use crate::schema::migrate::SCHEMA;
use crate::schema::row::{moment, number, ready_times, stored, word};
use crate::schema::sql;
use crate::sessions::heartbeat::NewDetails;
use crate::sessions::session_locks::Locks;
use crate::write::send::Addressee;
use crate::write::tx::{Standing, Tx};

/// Opens a session.
pub(crate) fn join(tx: &mut Tx<'_>, join: &Join) -> Result<(), Refusal> {
    let code: Vec<_> = join.code.iter().map(|code| (&*code.workflow, code.version)).collect();
    let code_text = serde_json::to_string(&code).map_err(|error| WorldError::Invalid(error.to_string()))?;
    let queues: Vec<&str> = join.queues.iter().map(|queue| &**queue).collect();
    let queues = serde_json::to_string(&queues).map_err(|error| WorldError::Invalid(error.to_string()))?;
    let added = tx.execute(
        sql::SESSION_INSERT,
        params![
            join.session.to_string(),
            join.host,
            join.pid,
            &*join.build,
            code_text,
            // Half of all time, so that adding it to a moment stays within time.
            i64::try_from(join.time.as_micros()).unwrap_or(i64::MAX).min(i64::MAX / 2),
            tx.now.as_micros(),
            tx.now.plus(join.time).as_micros(),
            queues,
            join.readable_rules(),
            join.format,
            SCHEMA,
            format!("{VERSION}, schema {SCHEMA}"),
        ],
    )?;
    if added > 0 {
        tx.changed_standing(join.session);
    }
    Ok(())
}

/// A beat, with the worker's report and the details of its attempts written out.
pub(crate) struct Beating {
    pub(crate) session: SessionId,
    pub(crate) report: String,
    pub(crate) details: Vec<NewDetails>,
}

/// Renews a session, and notes from time to time how late it is.
pub(crate) fn beat(tx: &mut Tx<'_>, beating: &Beating) -> Result<Beat, Refusal> {
    let session = beating.session.to_string();
    let params = params![session, tx.now.as_micros(), beating.report];
    let mut renew = tx.connection.prepare_cached(sql::SESSION_BEAT)?;
    let beat = renew
        .query_row(params, |row| Ok(Beat { held: number(row, 0)?, rules: number(row, 1)? }))
        .optional()?;
    let Some(beat) = beat else { return Err(session_gone(beating.session).into()) };
    for details in &beating.details {
        details.keep(tx, &session)?;
    }
    if tx.locks.is_time_to_note(tx.now) {
        tx.execute(sql::CLOCK_NOTE, [tx.now.as_micros()])?;
    }
    Ok(beat)
}

/// Ends a session; what it holds is ready for others.
pub(crate) fn leave(tx: &mut Tx<'_>, session: &SessionId) -> Result<(), Refusal> {
    if tx.execute(sql::SESSION_DELETE, [session.to_string()])? > 0 {
        for held in held(tx.connection, *session)? {
            free(tx, &held, ReleaseReason::Left)?;
        }
        tx.execute(sql::HEARTBEATS_ENDED, [])?;
        tx.after.rings = true;
    }
    tx.changed_standing(*session);
    tx.after.left.push((*session, None));
    Ok(())
}

/// Ends every other session whose worker is gone or whose time is over, and answers how many runs
/// that made ready.
pub(crate) fn takeover(tx: &mut Tx<'_>, session: &SessionId) -> Result<u64, Refusal> {
    if tx.standing(*session)? == Standing::Gone {
        return Err(session_gone(*session).into());
    }
    let mut runs = 0;
    for other in all(tx.connection)?.into_iter().filter(|other| other.id != *session) {
        let lock = tx.locks.take_abandoned(other.id);
        if lock.is_none() && !tx.locks.is_overdue(&other, tx.now) {
            continue;
        }
        tx.execute(sql::SESSION_DELETE, [other.id.to_string()])?;
        runs += take_runs(tx, other.id, &other.build)?;
        tx.changed_standing(other.id);
        tx.after.left.push((other.id, lock));
        tx.execute(sql::HEARTBEATS_ENDED, [])?;
        tx.after.rings = true;
    }
    Ok(runs)
}

/// Whether a takeover has anything to do, asked without a write.
pub(crate) fn has_dead(
    connection: &Connection,
    locks: &Locks,
    session: SessionId,
    now: Timestamp,
) -> Result<bool, Refusal> {
    let sessions = all(connection)?;
    if !sessions.iter().any(|other| other.id == session) {
        return Err(session_gone(session).into());
    }
    locks.forget_all_but(&sessions);
    // Each is looked at, so that its silence counts from now on.
    let others = sessions.iter().filter(|other| other.id != session);
    Ok(others.filter(|other| locks.is_overdue(other, now) || locks.is_abandoned(other.id)).count() > 0)
}

/// A joined session, as others see it.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) id: SessionId,
    build: String,
    pub(crate) expires_at: Timestamp,
    pub(crate) time: Duration,
}

/// All joined sessions.
pub(crate) fn all(connection: &Connection) -> Result<Vec<Joined>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(sql::SESSION_ALL)?;
    let rows = statement.query_map([], |row| {
        let time = Duration::from_micros(number(row, 3)?);
        Ok(Joined { id: word(row, 0)?, build: row.get(1)?, expires_at: moment(row, 2)?, time })
    })?;
    rows.collect()
}

fn take_runs(tx: &mut Tx<'_>, session: SessionId, build: &str) -> Result<u64, Refusal> {
    let held = held(tx.connection, session)?;
    let held_runs = HeldRuns::of(held.iter().map(|run| run.columns.crashes));
    for run in &held {
        free(tx, run, ReleaseReason::Crashed { held_runs, build })?;
    }
    Ok(held.len() as u64)
}

/// Lets a run go whose session has ended.
fn free(tx: &mut Tx<'_>, run: &HeldRow, why: ReleaseReason<'_>) -> Result<(), Refusal> {
    let freed = Released::of(&run.columns, run.next_seq, why);
    let [if_read, if_unread, if_can_end] = ready_times(freed.ready, tx.now);
    let columns = columns::values(&freed.columns);
    tx.execute(
        &sql::RUN_FREE,
        &*columns::with_values(
            params![
                run.run.to_string(),
                freed.status.as_str(),
                run.turn.to_string(),
                stored(run.next_seq),
                run.turn_at.as_micros(),
                tx.now.as_micros(),
                if_read,
                if_unread,
                if_can_end,
            ],
            &columns,
        ),
    )?;
    tx.count_move(Status::Running, freed.status);
    Ok(())
}

/// A held run with its last turn, which the history knows when the row does not.
pub(crate) struct HeldRow {
    run: RunId,
    turn: TurnId,
    next_seq: u64,
    turn_at: Timestamp,
    columns: Arc<HolderColumns>,
}

impl HeldRow {
    pub(crate) fn into_held(self, session: SessionId) -> HeldRun {
        let Self { run, turn, next_seq, columns, .. } = self;
        HeldRun { run, turn, seq: next_seq, session, columns }
    }
}

/// The runs that a session holds, in order of their ids.
pub(crate) fn held(connection: &Connection, session: SessionId) -> Result<Vec<HeldRow>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(&sql::HELD_LIST)?;
    let rows = statement.query_map([session.to_string()], |row| {
        let ahead: Option<i64> = row.get(5)?;
        let is_ahead = ahead.is_some_and(|ahead| row.get(2).is_ok_and(|next_seq: i64| ahead > next_seq));
        let (turn, next_seq, turn_at) = if is_ahead { (4, 5, 6) } else { (1, 2, 3) };
        Ok(HeldRow {
            run: word(row, 0)?,
            turn: word(row, turn)?,
            next_seq: number(row, next_seq)?,
            turn_at: moment(row, turn_at)?,
            columns: columns::read(row, 7)?,
        })
    })?;
    rows.collect()
}

/// Opens a run that nobody holds to every build.
pub(crate) fn resume(tx: &mut Tx<'_>, run: &RunId) -> Result<(), Refusal> {
    let id = run.to_string();
    let mut statement = tx.connection.prepare_cached(sql::RUN_RECEIVER)?;
    let found = statement.query_row([&id], Addressee::read).optional()?;
    let Some(Addressee { status, ready_at, .. }) = found else { return Err(no_run(*run).into()) };
    let ready_at = resumed(*run, status, ready_at, tx.now)?;
    tx.execute(sql::RUN_RESUME, params![id, ready_at.map(Timestamp::as_micros)])?;
    tx.after.rings = true;
    Ok(())
}
