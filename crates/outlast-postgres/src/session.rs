//! Sessions: joining, beating, leaving, and taking over from the dead.

use std::time::Duration;

use outlast_core::limits::POISON_CRASHES;
use outlast_core::refusal::{no_run, not_stuck, session_gone};
use outlast_core::takeover::poison;
use outlast_core::{Beat, Held, Join, Report, RunId, SessionId, Status, WorldError};

use crate::clock::Time;
use crate::error::corrupt;
use crate::message::json_text;
use crate::row::{get, micros, moment, number, word};
use crate::store::Store;
use crate::text::stored;

/// How long a session's lock may be free before it is taken over: its connection may be made anew.
pub(crate) const SUSPICION: Duration = Duration::from_secs(1);

/// Stands in a text for a number of crashes that only the world knows.
const MARK_CRASHES: u32 = 4_000_000_007;

/// Stands in a text for a build that only the world knows.
const MARK_BUILD: &str = "\u{E000}build\u{E000}";

/// Opens a session; answers whether something became ready.
pub(crate) async fn join(
    store: &Store,
    time: &Time,
    join: &Join,
    has_lock: bool,
) -> Result<bool, WorldError> {
    let code: Vec<_> = join.code.iter().map(|code| (&*code.workflow, code.version)).collect();
    let workflows: Vec<String> = join.code.iter().map(|code| stored(&code.workflow).into_owned()).collect();
    let versions: Vec<i64> = join.code.iter().map(|code| i64::from(code.version)).collect();
    let queues: Vec<&str> = join.queues.iter().map(|queue| &**queue).collect();
    let served: Vec<String> = queues.iter().map(|queue| stored(queue).into_owned()).collect();
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
                &served,
                // Half of all time, so that adding it to a moment stays within time.
                &micros(join.time).min(i64::MAX / 2),
                &has_lock,
                &workflows,
                &versions,
            ],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let read = || {
        time.learn(moment(row, 0)?);
        get::<bool>(row, 1)
    };
    read().map_err(|why| corrupt(&store.place, &why))
}

/// Renews a session, with what its worker says of itself.
pub(crate) async fn beat(
    store: &Store,
    time: &Time,
    session: SessionId,
    report: &Report,
) -> Result<Beat, WorldError> {
    let values: [crate::message::Values1<'_>; 3] = [&time.at(), &session.to_string(), &report.to_json()];
    let rows = store.call(&store.sql.beat, &values).await?;
    let Some(row) = rows.first() else { return Err(session_gone(session)) };
    let read = || {
        time.learn(moment(row, 1)?);
        Ok(Beat { held: number(row, 0)? })
    };
    read().map_err(|why: crate::row::Damaged| corrupt(&store.place, &why))
}

/// The runs that a session holds, once none of its commits is under way.
pub(crate) async fn held(store: &Store, session: SessionId) -> Result<Vec<Held>, WorldError> {
    let id = session.to_string();
    if store.call(&store.sql.barrier, &[&id]).await?.is_empty() {
        return Err(session_gone(session));
    }
    let rows = store.call(&store.sql.held, &[&id]).await?;
    let held = rows
        .iter()
        .map(|row| Ok(Held { run: word(row, 0)?, turn: word(row, 1)?, seq: number(row, 2)?, session }));
    held.collect::<Result<_, crate::row::Damaged>>().map_err(|why| corrupt(&store.place, &why))
}

/// Ends a session; what it holds is ready for others.
pub(crate) async fn leave(store: &Store, time: &Time, session: SessionId) -> Result<(), WorldError> {
    store.call(&store.sql.leave, &[&time.at(), &session.to_string()]).await.map(|_| ())
}

/// What a takeover came to.
pub(crate) struct Taken {
    pub(crate) runs: u64,
    pub(crate) sessions: u64,
    /// Sessions that will be taken over if they do not show that they live.
    pub(crate) suspects: u64,
}

/// Ends every other session whose worker is gone or whose time is over.
pub(crate) async fn takeover(store: &Store, time: &Time, session: SessionId) -> Result<Taken, WorldError> {
    // A test's time stands still while the lock becomes free.
    let patience = if time.is_virtual() { 0 } else { micros(SUSPICION) };
    let message = poison(MARK_CRASHES, MARK_BUILD).map(|stuck| stuck.message).unwrap_or_default();
    let rows = store
        .call(
            &store.sql.takeover,
            &[
                &time.at(),
                &session.to_string(),
                &patience,
                &(POISON_CRASHES as i32),
                &message,
                &MARK_BUILD,
                &MARK_CRASHES.to_string(),
            ],
        )
        .await?;
    let Some(row) = rows.first() else { return Err(session_gone(session)) };
    let read = || {
        time.learn(moment(row, 2)?);
        Ok(Taken { runs: number(row, 0)?, sessions: number(row, 1)?, suspects: number(row, 3)? })
    };
    read().map_err(|why: crate::row::Damaged| corrupt(&store.place, &why))
}

/// Makes a stuck run ready for every build.
pub(crate) async fn resume(store: &Store, time: &Time, run: RunId) -> Result<(), WorldError> {
    let rows = store.call(&store.sql.resume, &[&time.at(), &run.to_string()]).await?;
    let status = rows.first().map(|row| crate::row::maybe_word::<Status>(row, 0)).transpose();
    match status.map_err(|why| corrupt(&store.place, &why))?.flatten() {
        None => Err(no_run(run)),
        Some(Status::Stuck) => Ok(()),
        Some(status) => Err(not_stuck(run, status)),
    }
}
