//! Sessions: joining, beating, leaving, and taking over from the dead.
//!
//! A session ends in two steps. First it is marked as ended, which waits for its commits under way and refuses those that
//! come later. Then its runs are freed, a part at a time, and its row is deleted. Whoever stops in between leaves
//! the rest to the next one that looks.

use std::time::Duration;

use outlast_core::limits::{FAILED_BUILD_RETRY, FAILED_BUILDS_MAX, POISON_CRASHES, SUSPECT_CRASHES};
use outlast_core::refusal::{no_run, not_resumable, session_gone};
use outlast_core::takeover::{CRASH_CLASS_MAX, poison_message};
use outlast_core::{
    Beat, HeartbeatDetails, HeldRun, Join, Report, RunId, SessionId, Status, VERSION, WorldError,
};

use crate::clock::Time;
use crate::columns;
use crate::error::corrupt;
use crate::fields::Rows;
use crate::message::{StoredPayload, Values1, json_text};
use crate::row::{Damaged, get, maybe_word, micros, moment, number, word};
use crate::store::Store;
use crate::text::stored;

/// How long a session's lock may be free before it is taken over: its connection may be made anew.
pub(crate) const LOCK_FREE_TIME: Duration = Duration::from_secs(1);

/// The highest crash class, as a parameter.
const CLASS_MAX: i32 = CRASH_CLASS_MAX as i32;

/// How many runs of an ended session one statement frees.
const FREE_RUNS_MAX: i32 = 500;

/// Opens a session.
pub(crate) async fn join(store: &Store, time: &Time, join: &Join, has_lock: bool) -> Result<(), WorldError> {
    let code: Vec<_> = join.code.iter().map(|code| (&*code.workflow, code.version)).collect();
    let queues: Vec<&str> = join.queues.iter().map(|queue| &**queue).collect();
    let rows = store
        .call(
            &store.sql.join,
            &[
                &time.at(),
                &join.session.to_string(),
                &stored(&join.host).into_owned(),
                &i64::from(join.pid),
                &stored(&join.build).into_owned(),
                &json_text(&code)?,
                &json_text(&queues)?,
                // Half of all time, so that adding it to a moment stays within time.
                &micros(join.time).min(i64::MAX / 2),
                &has_lock,
                &(join.readable_rules() as i32),
                &(join.format as i32),
                &(store.sql.interface as i32),
                &format!("{VERSION}, interface {}", store.sql.interface),
            ],
        )
        .await?;
    if let Some(row) = rows.first() {
        time.learn(moment(row, 0).map_err(|why| corrupt(&store.place, &why))?);
    }
    Ok(())
}

/// Renews a session, with what its worker says of itself and of its attempts.
pub(crate) async fn beat(
    store: &Store,
    time: &Time,
    session: SessionId,
    report: &Report,
    details: &[HeartbeatDetails],
) -> Result<Beat, WorldError> {
    let (mut fields, mut bodies, mut raws) = (Rows::default(), Vec::new(), Vec::new());
    for HeartbeatDetails { run, op, attempt, details } in details {
        fields.begin();
        fields.word("run", run);
        fields.count_of("op", op.0);
        fields.number("attempt", i64::from(*attempt));
        let payload = details.as_ref().map(StoredPayload::of);
        if let Some(codec) = payload.as_ref().and_then(|payload| payload.codec.as_ref()) {
            fields.json_text("codec", codec);
        }
        let (body, raw) = payload.map_or((None, None), |payload| (payload.body, payload.raw));
        bodies.push(body);
        raws.push(raw);
    }
    let values: [Values1<'_>; 6] =
        [&time.at(), &session.to_string(), &report.to_json(), &fields.json(), &bodies, &raws];
    let rows = store.call(&store.sql.beat, &values).await?;
    let Some(row) = rows.first() else { return Err(session_gone(session)) };
    let read = || {
        time.learn(moment(row, 1)?);
        Ok(Beat { held: number(row, 0)?, rules: get::<i32>(row, 2)?.unsigned_abs() })
    };
    read().map_err(|why: Damaged| corrupt(&store.place, &why))
}

/// The runs that a session holds.
pub(crate) async fn held(store: &Store, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
    let rows = store.call(&store.sql.held, &[&session.to_string()]).await?;
    if rows.is_empty() {
        return Err(session_gone(session));
    }
    let mut held = Vec::with_capacity(rows.len());
    for row in &rows {
        let read = || -> Result<Option<HeldRun>, Damaged> {
            let Some(run) = maybe_word(row, 0)? else { return Ok(None) };
            let (turn, seq, columns) = (word(row, 1)?, number(row, 2)?, columns::read(row, 3)?);
            Ok(Some(HeldRun { run, turn, seq, session, columns }))
        };
        held.extend(read().map_err(|why| corrupt(&store.place, &why))?);
    }
    Ok(held)
}

/// Ends a session; what it holds is ready for others.
pub(crate) async fn leave(store: &Store, time: &Time, session: SessionId) -> Result<(), WorldError> {
    let id = session.to_string();
    store.call(&store.sql.leave, &[&time.at(), &id, &CLASS_MAX]).await?;
    // Also when it had left before: whoever asked may have been cut off.
    free(store, time, &id).await.map(|_| ())
}

/// Frees the runs of a session that has ended, and deletes it. Runs that somebody else has locked are left for the next
/// takeover. Answers how many were freed.
async fn free(store: &Store, time: &Time, session: &str) -> Result<u64, WorldError> {
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
        let values: [Values1<'_>; 4] = [&time.at(), &session, &FREE_RUNS_MAX, &limits];
        let rows = store.call(&store.sql.free, &values).await?;
        let read = || {
            let Some(row) = rows.first() else { return Ok((0, false)) };
            Ok((number::<u64>(row, 0)?, get::<bool>(row, 1)?))
        };
        let (freed, has_more) = read().map_err(|why: Damaged| corrupt(&store.place, &why))?;
        runs += freed;
        if !has_more {
            store.call(&store.sql.remove_session, &[&session]).await?;
            return Ok(runs);
        }
        if freed == 0 {
            return Ok(runs);
        }
    }
}

/// What a takeover came to.
pub(crate) struct Taken {
    pub(crate) runs: u64,
    pub(crate) sessions: u64,
    /// Sessions whose lock is free: they will be taken over if they do not show that they live.
    pub(crate) unlocked: u64,
}

/// Ends every other session whose worker is gone or whose time is over.
pub(crate) async fn takeover(store: &Store, time: &Time, session: SessionId) -> Result<Taken, WorldError> {
    // A test's time stands still while the lock becomes free.
    let patience = if time.is_virtual() { 0 } else { micros(LOCK_FREE_TIME) };
    let values: [Values1<'_>; 4] = [&time.at(), &session.to_string(), &patience, &CLASS_MAX];
    let rows = store.call(&store.sql.takeover, &values).await?;
    let mut taken = None;
    let mut ended = Vec::new();
    for row in &rows {
        let mut read = || -> Result<(), Damaged> {
            if let Some(session) = get::<Option<&str>>(row, 0)? {
                ended.push(session.to_owned());
                return Ok(());
            }
            time.learn(moment(row, 1)?);
            taken = Some(Taken { runs: 0, sessions: number(row, 2)?, unlocked: number(row, 3)? });
            Ok(())
        };
        read().map_err(|why| corrupt(&store.place, &why))?;
    }
    let Some(mut taken) = taken else { return Err(session_gone(session)) };
    for session in ended {
        taken.runs += free(store, time, &session).await?;
    }
    Ok(taken)
}

/// Makes a run that nobody holds ready for every build.
pub(crate) async fn resume(store: &Store, time: &Time, run: RunId) -> Result<(), WorldError> {
    let rows = store.call(&store.sql.resume, &[&time.at(), &run.to_string()]).await?;
    let read = || {
        let Some(row) = rows.first() else { return Ok((None, false)) };
        Ok((maybe_word::<Status>(row, 0)?, get::<Option<bool>>(row, 1)?.unwrap_or(false)))
    };
    match read().map_err(|why: Damaged| corrupt(&store.place, &why))? {
        (None, _) => Err(no_run(run)),
        (Some(_), true) => Ok(()),
        (Some(status), false) => Err(not_resumable(run, status)),
    }
}
