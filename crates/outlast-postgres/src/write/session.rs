//! Sessions: join, beat, leave, and takeover of dead ones.
//!
//! A session ends in two steps. First it is marked as ended: this waits for its commits that are being executed, and
//! refuses later ones. Then its runs are released, a part at a time, and its row is deleted. If a process stops in
//! between, the next takeover does the rest.

use std::time::Duration;

use outlast_core::limits::{FAILED_BUILD_RETRY, FAILED_BUILDS_MAX, POISON_CRASHES, SUSPECT_CRASHES};
use outlast_core::refusal::{no_run, not_resumable, session_gone};
use outlast_core::takeover::{CRASH_CLASS_MAX, poison_message};
use outlast_core::{
    Beat, HeartbeatDetails, HeldRun, Join, Report, RunId, SessionId, Status, VERSION, WorldError,
};

use crate::clock::TimeSource;
use crate::connection::database::{Database, Parameter};
use crate::encoding::json_rows::JsonRows;
use crate::encoding::message::{StoredPayload, json_text};
use crate::encoding::row::{InvalidRow, get, maybe_parsed, micros, number, parsed, timestamp};
use crate::encoding::text::escape_nul;
use crate::error::corrupt_error;
use crate::schema::holder_columns;

/// How long a session's lock may be free before the session is taken over. Meanwhile its process may connect again.
pub(crate) const LOCK_FREE_TIME: Duration = Duration::from_secs(1);

/// The highest crash class, as a parameter of statements.
const CRASH_CLASS_LIMIT: i32 = CRASH_CLASS_MAX as i32;

/// The number of runs of an ended session that one statement releases.
const RELEASE_RUNS_MAX: i32 = 500;

/// Opens a session.
pub(crate) async fn join(
    database: &Database,
    time: &TimeSource,
    join: &Join,
    has_lock: bool,
) -> Result<(), WorldError> {
    let code: Vec<_> = join.code.iter().map(|code| (&*code.workflow, code.version)).collect();
    let queues: Vec<&str> = join.queues.iter().map(|queue| &**queue).collect();
    let rows = database
        .call(
            &database.sql.join,
            &[
                &time.statement_time(),
                &join.session.to_string(),
                &escape_nul(&join.host).into_owned(),
                &i64::from(join.pid),
                &escape_nul(&join.build).into_owned(),
                &json_text(&code)?,
                &json_text(&queues)?,
                // At most half of the range, so that adding it to a timestamp does not overflow.
                &micros(join.time).min(i64::MAX / 2),
                &has_lock,
                &(join.readable_rules() as i32),
                &(join.format as i32),
                &(database.sql.interface as i32),
                &format!("{VERSION}, interface {}", database.sql.interface),
            ],
        )
        .await?;
    if let Some(row) = rows.first() {
        time.observe(timestamp(row, 0).map_err(|why| corrupt_error(&database.place, &why))?);
    }
    Ok(())
}

/// Renews a session. Stores its worker's report and the heartbeat details of its attempts.
pub(crate) async fn beat(
    database: &Database,
    time: &TimeSource,
    session: SessionId,
    report: &Report,
    details: &[HeartbeatDetails],
) -> Result<Beat, WorldError> {
    let (mut fields, mut bodies, mut raws) = (JsonRows::default(), Vec::new(), Vec::new());
    for HeartbeatDetails { run, op, attempt, details } in details {
        fields.begin_row();
        fields.word("run", run);
        fields.unsigned("op", op.0);
        fields.number("attempt", i64::from(*attempt));
        let payload = details.as_ref().map(StoredPayload::of);
        if let Some(codec) = payload.as_ref().and_then(|payload| payload.codec.as_ref()) {
            fields.plain_text("codec", codec);
        }
        let (body, raw) = payload.map_or((None, None), |payload| (payload.body, payload.raw));
        bodies.push(body);
        raws.push(raw);
    }
    let values: [Parameter<'_>; 6] =
        [&time.statement_time(), &session.to_string(), &report.to_json(), &fields.array(), &bodies, &raws];
    let rows = database.call(&database.sql.beat, &values).await?;
    let Some(row) = rows.first() else { return Err(session_gone(session)) };
    let read = || {
        time.observe(timestamp(row, 1)?);
        Ok(Beat { held: number(row, 0)?, rules: get::<i32>(row, 2)?.unsigned_abs() })
    };
    read().map_err(|why: InvalidRow| corrupt_error(&database.place, &why))
}

/// The runs that a session holds.
pub(crate) async fn held(database: &Database, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
    let rows = database.call(&database.sql.held, &[&session.to_string()]).await?;
    if rows.is_empty() {
        return Err(session_gone(session));
    }
    let mut held = Vec::with_capacity(rows.len());
    for row in &rows {
        let read = || -> Result<Option<HeldRun>, InvalidRow> {
            let Some(run) = maybe_parsed(row, 0)? else { return Ok(None) };
            let (turn, seq, columns) = (parsed(row, 1)?, number(row, 2)?, holder_columns::read(row, 3)?);
            Ok(Some(HeldRun { run, turn, seq, session, columns }))
        };
        held.extend(read().map_err(|why| corrupt_error(&database.place, &why))?);
    }
    Ok(held)
}

/// Ends a session. Its runs become ready for others.
pub(crate) async fn leave(
    database: &Database,
    time: &TimeSource,
    session: SessionId,
) -> Result<(), WorldError> {
    let id = session.to_string();
    database.call(&database.sql.leave, &[&time.statement_time(), &id, &CRASH_CLASS_LIMIT]).await?;
    // Release the runs even if the session has already ended: an earlier call may have been interrupted.
    release_runs(database, time, &id).await.map(|_| ())
}

/// Releases the runs of a session that has ended, and deletes its row. Runs that another transaction has locked are
/// left for the next takeover. Returns how many runs were released.
async fn release_runs(database: &Database, time: &TimeSource, session: &str) -> Result<u64, WorldError> {
    let limits = serde_json::json!({
        "poison_crashes": POISON_CRASHES,
        "suspect_crashes": SUSPECT_CRASHES,
        "crash_class_max": CRASH_CLASS_MAX,
        "failed_builds": FAILED_BUILDS_MAX,
        "retry": micros(FAILED_BUILD_RETRY),
        "message": poison_message(),
    });
    let limits = limits.to_string();
    let mut runs = 0;
    loop {
        let values: [Parameter<'_>; 4] = [&time.statement_time(), &session, &RELEASE_RUNS_MAX, &limits];
        let rows = database.call(&database.sql.free, &values).await?;
        let read = || {
            let Some(row) = rows.first() else { return Ok((0, false)) };
            Ok((number::<u64>(row, 0)?, get::<bool>(row, 1)?))
        };
        let (released, has_more) = read().map_err(|why: InvalidRow| corrupt_error(&database.place, &why))?;
        runs += released;
        if !has_more {
            database.call(&database.sql.remove_session, &[&session]).await?;
            return Ok(runs);
        }
        if released == 0 {
            return Ok(runs);
        }
    }
}

/// The result of a takeover.
pub(crate) struct TakeoverResult {
    /// The number of runs that were released.
    pub(crate) runs: u64,
    /// The number of sessions that were ended.
    pub(crate) sessions: u64,
    /// The number of sessions whose lock is free. They will be taken over unless they take it again in time.
    pub(crate) unlocked: u64,
}

/// Ends every other session whose worker is dead or that has expired.
pub(crate) async fn takeover(
    database: &Database,
    time: &TimeSource,
    session: SessionId,
) -> Result<TakeoverResult, WorldError> {
    // A virtual clock does not move while a lock is free, so there is no waiting.
    let lock_free_time = if time.is_virtual() { 0 } else { micros(LOCK_FREE_TIME) };
    let values: [Parameter<'_>; 4] =
        [&time.statement_time(), &session.to_string(), &lock_free_time, &CRASH_CLASS_LIMIT];
    let rows = database.call(&database.sql.takeover, &values).await?;
    let mut result = None;
    let mut ended_sessions = Vec::new();
    for row in &rows {
        let mut read = || -> Result<(), InvalidRow> {
            // A row names a session that has ended and still holds runs. The one without a session has the time and the
            // numbers; it is missing if the calling session is gone.
            if let Some(session) = get::<Option<&str>>(row, 0)? {
                ended_sessions.push(session.to_owned());
                return Ok(());
            }
            time.observe(timestamp(row, 1)?);
            result = Some(TakeoverResult { runs: 0, sessions: number(row, 2)?, unlocked: number(row, 3)? });
            Ok(())
        };
        read().map_err(|why| corrupt_error(&database.place, &why))?;
    }
    let Some(mut result) = result else { return Err(session_gone(session)) };
    for session in ended_sessions {
        result.runs += release_runs(database, time, &session).await?;
    }
    Ok(result)
}

/// Makes a run that no session holds ready for every build.
pub(crate) async fn resume(database: &Database, time: &TimeSource, run: RunId) -> Result<(), WorldError> {
    let rows = database.call(&database.sql.resume, &[&time.statement_time(), &run.to_string()]).await?;
    let read = || {
        let Some(row) = rows.first() else { return Ok((None, false)) };
        Ok((maybe_parsed::<Status>(row, 0)?, get::<Option<bool>>(row, 1)?.unwrap_or(false)))
    };
    match read().map_err(|why: InvalidRow| corrupt_error(&database.place, &why))? {
        (None, _) => Err(no_run(run)),
        (Some(_), true) => Ok(()),
        (Some(status), false) => Err(not_resumable(run, status)),
    }
}
