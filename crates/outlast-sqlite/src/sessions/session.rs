//! Sessions: joining, beating, leaving, and taking over the runs of dead workers.

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
use crate::schema::row::{number, parsed, ready_times, timestamp, to_i64};
use crate::schema::sql;
use crate::sessions::heartbeat::EncodedHeartbeat;
use crate::sessions::session_locks::SessionLocks;
use crate::write::send::ReceivingRun;
use crate::write::tx::{SessionOwner, Tx};

/// Inserts a session. Repeating the call has no effect.
pub(crate) fn join(tx: &mut Tx<'_>, join: &Join) -> Result<(), Refusal> {
    let code: Vec<_> = join.code.iter().map(|code| (&*code.workflow, code.version)).collect();
    let code_text = serde_json::to_string(&code).map_err(|error| WorldError::invalid(error.to_string()))?;
    let queues: Vec<&str> = join.queues.iter().map(|queue| &**queue).collect();
    let queues = serde_json::to_string(&queues).map_err(|error| WorldError::invalid(error.to_string()))?;
    let added = tx.execute(
        sql::SESSION_INSERT,
        params![
            join.session.to_string(),
            join.host,
            join.pid,
            &*join.build,
            code_text,
            // At most half of the range, so that adding it to a timestamp does not overflow.
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
        tx.session_changed(join.session);
    }
    Ok(())
}

/// A beat whose report and heartbeat details are encoded on the caller's thread.
pub(crate) struct EncodedBeat {
    pub(crate) session: SessionId,
    pub(crate) report: String,
    pub(crate) details: Vec<EncodedHeartbeat>,
}

/// Renews a session, and saves the world's time in regular intervals.
pub(crate) fn beat(tx: &mut Tx<'_>, encoded: &EncodedBeat) -> Result<Beat, Refusal> {
    let session = encoded.session.to_string();
    let params = params![session, tx.now.as_micros(), encoded.report];
    let mut renew = tx.connection.prepare_cached(sql::SESSION_BEAT)?;
    let beat = renew
        .query_row(params, |row| Ok(Beat { held: number(row, 0)?, rules: number(row, 1)? }))
        .optional()?;
    let Some(beat) = beat else { return Err(session_gone(encoded.session).into()) };
    for details in &encoded.details {
        details.store(tx, &session)?;
    }
    if tx.locks.is_clock_save_due(tx.now) {
        tx.execute(sql::CLOCK_SAVE, [tx.now.as_micros()])?;
    }
    Ok(beat)
}

/// Ends a session. The runs that it holds become ready for other workers.
pub(crate) fn leave(tx: &mut Tx<'_>, session: &SessionId) -> Result<(), Refusal> {
    if tx.execute(sql::SESSION_DELETE, [session.to_string()])? > 0 {
        for held in held(tx.connection, *session)? {
            release_run(tx, &held, ReleaseReason::Left)?;
        }
        tx.execute(sql::HEARTBEATS_DELETE_ENDED, [])?;
        tx.after_commit.wakes_workers = true;
    }
    tx.session_changed(*session);
    tx.after_commit.ended_sessions.push((*session, None));
    Ok(())
}

/// Ends every other session whose process is dead or that has expired, and returns the number of runs that they held.
pub(crate) fn takeover(tx: &mut Tx<'_>, session: &SessionId) -> Result<u64, Refusal> {
    if tx.session_owner(*session)? == SessionOwner::Ended {
        return Err(session_gone(*session).into());
    }
    let mut runs = 0;
    for other in sessions(tx.connection)?.into_iter().filter(|other| other.id != *session) {
        let lock = tx.locks.try_lock_abandoned(other.id);
        if lock.is_none() && !tx.locks.is_overdue(&other, tx.now) {
            continue;
        }
        tx.execute(sql::SESSION_DELETE, [other.id.to_string()])?;
        runs += release_crashed_runs(tx, other.id, &other.build)?;
        tx.session_changed(other.id);
        tx.after_commit.ended_sessions.push((other.id, lock));
        tx.execute(sql::HEARTBEATS_DELETE_ENDED, [])?;
        tx.after_commit.wakes_workers = true;
    }
    Ok(runs)
}

/// Whether a takeover would end any session. It only reads.
pub(crate) fn has_dead_sessions(
    connection: &Connection,
    locks: &SessionLocks,
    session: SessionId,
    now: Timestamp,
) -> Result<bool, Refusal> {
    let sessions = sessions(connection)?;
    if !sessions.iter().any(|other| other.id == session) {
        return Err(session_gone(session).into());
    }
    locks.retain_sessions(&sessions);
    // Check every session instead of stopping at the first one: `is_overdue` records the last beat of each.
    let others = sessions.iter().filter(|other| other.id != session);
    Ok(others.filter(|other| locks.is_overdue(other, now) || locks.is_abandoned(other.id)).count() > 0)
}

/// A joined session, for other processes.
#[derive(Debug)]
pub(crate) struct SessionRow {
    pub(crate) id: SessionId,
    build: String,
    pub(crate) expires_at: Timestamp,
    pub(crate) time: Duration,
}

/// All joined sessions.
pub(crate) fn sessions(connection: &Connection) -> Result<Vec<SessionRow>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(sql::SESSIONS)?;
    let rows = statement.query_map([], |row| {
        let time = Duration::from_micros(number(row, 3)?);
        Ok(SessionRow { id: parsed(row, 0)?, build: row.get(1)?, expires_at: timestamp(row, 2)?, time })
    })?;
    rows.collect()
}

/// Releases the runs of a session whose worker crashed or expired, and returns their number.
fn release_crashed_runs(tx: &mut Tx<'_>, session: SessionId, build: &str) -> Result<u64, Refusal> {
    let held = held(tx.connection, session)?;
    let held_runs = HeldRuns::of(held.iter().map(|run| run.columns.crashes));
    for run in &held {
        release_run(tx, run, ReleaseReason::Crashed { held_runs, build })?;
    }
    Ok(held.len() as u64)
}

/// Releases a run whose session has ended: stores the row that core computes for it.
fn release_run(tx: &mut Tx<'_>, run: &HeldRow, reason: ReleaseReason<'_>) -> Result<(), Refusal> {
    let released = Released::of(&run.columns, run.next_seq, reason);
    let [if_read, if_unread, if_can_end, if_paused] = ready_times(released.ready, tx.now);
    let columns = columns::values(&released.columns);
    tx.execute(
        &sql::RUN_RELEASE,
        &*columns::append_values(
            params![
                run.run.to_string(),
                released.status.as_str(),
                run.turn.to_string(),
                to_i64(run.next_seq),
                run.turn_at.as_micros(),
                tx.now.as_micros(),
                if_read,
                if_unread,
                if_can_end,
                if_paused,
            ],
            &columns,
        ),
    )?;
    tx.count_move(Status::Running, released.status);
    Ok(())
}

/// A held run with its last turn. The turn comes from the history if the row is outdated.
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
        let in_history: Option<i64> = row.get(5)?;
        let is_row_outdated =
            in_history.is_some_and(|in_history| row.get(2).is_ok_and(|in_row: i64| in_history > in_row));
        let (turn, next_seq, turn_at) = if is_row_outdated { (4, 5, 6) } else { (1, 2, 3) };
        Ok(HeldRow {
            run: parsed(row, 0)?,
            turn: parsed(row, turn)?,
            next_seq: number(row, next_seq)?,
            turn_at: timestamp(row, turn_at)?,
            columns: columns::read(row, 7)?,
        })
    })?;
    rows.collect()
}

/// Lets every build claim a run that no session holds, including the builds that failed before.
pub(crate) fn resume(tx: &mut Tx<'_>, run: &RunId) -> Result<(), Refusal> {
    let id = run.to_string();
    let mut statement = tx.connection.prepare_cached(sql::RUN_RECEIVER)?;
    let found = statement.query_row([&id], ReceivingRun::read).optional()?;
    let Some(ReceivingRun { status, marks, ready_at, .. }) = found else { return Err(no_run(*run).into()) };
    let ready_at = resumed(*run, status, marks, ready_at, tx.now)?;
    tx.execute(sql::RUN_RESUME, params![id, ready_at.map(Timestamp::as_micros)])?;
    tx.after_commit.wakes_workers = true;
    Ok(())
}
