//! Claiming: giving a session the runs that are ready, with what it needs to go on.

use std::path::Path;
use std::sync::Arc;

use outlast_core::limits::{CLAIM_RUNS_MAX, HISTORY_IN_CLAIM_EVENTS_MAX, INBOX_READ_MAX};
use outlast_core::refusal::{no_run, session_gone};
use outlast_core::{
    ClaimRequest, Claimed, ClaimedHistory, HeartbeatDetails, Message, RunId, SessionId, Status, Timestamp,
    TurnRecord, UnreadMessages, Work, WorldError,
};
use rusqlite::{Connection, Error, OptionalExtension, params};

use crate::connection::error::{Refusal, damage, of_sqlite};
use crate::schema::row::{number, stored, turn, word};
use crate::schema::sql;
use crate::sessions::heartbeat;
use crate::sessions::ready::{Found, Ready, look, next_overdue};
use crate::write::lease_cache::Holding;
use crate::write::message::message;
use crate::write::tx::{Standing, Tx};

/// A claim on its way to the writer.
pub(crate) struct Claim {
    pub(crate) session: SessionId,
    pub(crate) request: ClaimRequest,
}

/// What a claim brings.
pub(crate) struct Brought {
    pub(crate) claimed: Vec<Claimed>,
    pub(crate) unread: Vec<UnreadMessages>,
    pub(crate) next_due: Option<Timestamp>,
}

impl Brought {
    pub(crate) fn into_work(self, epoch: u64) -> Work {
        Work { claimed: self.claimed, unread: self.unread, next_due: self.next_due, epoch }
    }
}

impl Claim {
    fn limit(&self) -> usize {
        self.request.limit.min(CLAIM_RUNS_MAX)
    }

    /// Answers the claim without a write, if there is nothing to claim; `None` when there is.
    pub(crate) fn answer_without_write(
        &self,
        connection: &Connection,
        now: Timestamp,
    ) -> Result<Option<Brought>, Refusal> {
        let mut session = connection.prepare_cached(sql::SESSION_ROW)?;
        if !session.exists([self.session.to_string()])? {
            return Err(session_gone(self.session).into());
        }
        let Found { ready, next_due } =
            look(connection, now, self.session, &self.request, self.limit().min(1))?;
        if !ready.is_empty() {
            return Ok(None);
        }
        let next_due = self.with_overdue(connection, now, next_due)?;
        let unread = unread(connection, self.session)?;
        Ok(Some(Brought { claimed: Vec::new(), unread, next_due }))
    }

    /// When the next run could be claimed, those that become overdue included.
    fn with_overdue(
        &self,
        connection: &Connection,
        now: Timestamp,
        next_due: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, Error> {
        let overdue = next_overdue(connection, now, self.request.ends_overdue_from)?;
        Ok(next_due.into_iter().chain(overdue).min())
    }

    /// When the next run is due, once what was found is given. Only those that were given as overdue
    /// may have been due later.
    fn next_due(
        &self,
        tx: &Tx<'_>,
        found: Option<Timestamp>,
        gave_overdue: bool,
    ) -> Result<Option<Timestamp>, Error> {
        let next_due = if gave_overdue {
            look(tx.connection, tx.now, self.session, &self.request, 0)?.next_due
        } else {
            found
        };
        self.with_overdue(tx.connection, tx.now, next_due)
    }
}

/// Gives the session what is ready.
pub(crate) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<Brought, Refusal> {
    if tx.standing(claim.session)? == Standing::Gone {
        return Err(session_gone(claim.session).into());
    }
    let unread = unread(tx.connection, claim.session)?;
    let Found { ready, next_due } =
        look(tx.connection, tx.now, claim.session, &claim.request, claim.limit())?;
    let has_details = !ready.is_empty() && heartbeat::are_any(tx.connection)?;
    let mut brought = Brought { claimed: Vec::with_capacity(ready.len()), unread, next_due };
    for run in ready {
        let readings = Readings::of(tx.connection, claim.session, &run, has_details)?;
        brought.claimed.push(give(tx, claim, run, readings)?);
    }
    let gave_overdue = brought.claimed.iter().any(|claimed| claimed.is_overdue);
    brought.next_due = claim.next_due(tx, next_due, gave_overdue)?;
    Ok(brought)
}

/// What a claim reads of one run beside its row.
struct Readings {
    history: ClaimedHistory,
    inbox: Vec<Message>,
    details: Vec<HeartbeatDetails>,
}

impl Readings {
    /// Reads it. What this build cannot read is a result of the run, so that the claim goes on.
    fn of(
        connection: &Connection,
        session: SessionId,
        run: &Ready,
        has_details: bool,
    ) -> Result<Self, Error> {
        // A long history is read afterwards, so that the writer is not kept from committing.
        let is_left_out = run.preferred == Some(session) || run.next_seq > HISTORY_IN_CLAIM_EVENTS_MAX;
        let read = || {
            let history = if is_left_out {
                ClaimedHistory::LeftOut
            } else {
                ClaimedHistory::Whole(history(connection, run.run, 0, i64::MAX)?)
            };
            let has_unread = run.sent > run.consumed;
            let inbox = if has_unread { inbox(connection, run.run, run.consumed)? } else { Vec::new() };
            let details = if has_details { heartbeat::of_run(connection, run.run)? } else { Vec::new() };
            Ok(Self { history, inbox, details })
        };
        read().or_else(|error: Error| {
            let history = ClaimedHistory::Unreadable(unreadable(error)?);
            Ok(Self { history, inbox: Vec::new(), details: Vec::new() })
        })
    }
}

/// Why something stored cannot be read by this build; an error when SQLite itself refused.
fn unreadable(error: Error) -> Result<String, Error> {
    if error.sqlite_error_code().is_some() { Err(error) } else { Ok(damage(&error)) }
}

fn give(tx: &mut Tx<'_>, claim: &Claim, run: Ready, readings: Readings) -> Result<Claimed, Error> {
    let params = params![run.run.to_string(), claim.session.to_string(), tx.now.as_micros()];
    tx.execute(sql::RUN_CLAIM, params)?;
    tx.count_move(run.status, Status::Running);
    let (session, next_seq, consumed) = (claim.session, run.next_seq, run.consumed);
    tx.hold(run.run, Holding { session, turn: run.turn, next_seq, consumed });
    Ok(Claimed {
        run: run.run,
        workflow: name(&claim.request, run.workflow),
        version: run.version,
        turn: run.turn,
        seq: run.next_seq,
        turn_at: run.turn_at,
        consumed: run.consumed,
        inbox: readings.inbox,
        columns: run.columns,
        is_fresh: run.next_seq <= 1,
        is_overdue: run.is_overdue,
        history: readings.history,
        details: readings.details,
    })
}

/// The workflow's name, shared with the request where it has it.
fn name(request: &ClaimRequest, workflow: String) -> Arc<str> {
    let known = request.code.iter().find(|code| *code.workflow == *workflow);
    known.map_or_else(|| workflow.into(), |code| code.workflow.clone())
}

/// The unread messages of the runs that the session holds. Of a run with one that this build cannot read, those
/// before it: the run is claimed again once it waits, and then says so.
fn unread(connection: &Connection, session: SessionId) -> Result<Vec<UnreadMessages>, Error> {
    let mut statement = connection.prepare_cached(sql::UNREAD)?;
    let runs = statement.query_map([session.to_string()], |row| Ok((word(row, 0)?, number(row, 1)?)))?;
    let mut unread = Vec::new();
    for found in runs {
        let (run, consumed) = found?;
        let messages = readable(connection, run, consumed)?;
        if !messages.is_empty() {
            unread.push(UnreadMessages { run, messages });
        }
    }
    Ok(unread)
}

/// The messages of a run behind a position, up to the first that this build cannot read.
fn readable(connection: &Connection, run: RunId, after: u64) -> Result<Vec<Message>, Error> {
    let mut statement = connection.prepare_cached(sql::INBOX_READ)?;
    let params = params![run.to_string(), stored(after), INBOX_READ_MAX as i64];
    let mut messages = Vec::new();
    for found in statement.query_map(params, message)? {
        match found {
            Ok(message) => messages.push(message),
            Err(error) => {
                unreadable(error)?;
                break;
            }
        }
    }
    Ok(messages)
}

/// The messages of a run behind a position.
pub(crate) fn inbox(connection: &Connection, run: RunId, after: u64) -> Result<Vec<Message>, Error> {
    let mut statement = connection.prepare_cached(sql::INBOX_READ)?;
    let params = params![run.to_string(), stored(after), INBOX_READ_MAX as i64];
    statement.query_map(params, message)?.collect()
}

/// A part of a run's history.
pub(crate) fn history(
    connection: &Connection,
    run: RunId,
    from: u64,
    limit: i64,
) -> Result<Vec<TurnRecord>, Error> {
    let mut statement = connection.prepare_cached(sql::HISTORY)?;
    statement.query_map(params![run.to_string(), stored(from), limit], turn)?.collect()
}

/// The whole history of a run. One that this build cannot read is an error of its own.
pub(crate) fn whole_history(
    connection: &Connection,
    run: RunId,
    path: &Path,
) -> Result<Result<Vec<TurnRecord>, WorldError>, Refusal> {
    if consumed(connection, run)?.is_none() {
        return Ok(Err(no_run(run)));
    }
    match history(connection, run, 0, i64::MAX) {
        Ok(history) => Ok(Ok(history)),
        Err(error) if error.sqlite_error_code().is_none() => Ok(Err(of_sqlite(&error, path))),
        Err(error) => Err(error.into()),
    }
}

/// How many messages a run has consumed; `None` when there is no such run.
pub(crate) fn consumed(connection: &Connection, run: RunId) -> Result<Option<u64>, Error> {
    let mut statement = connection.prepare_cached(sql::RUN_EXISTS)?;
    statement.query_row([run.to_string()], |row| number(row, 0)).optional()
}
