//! Claiming: giving a session the runs that are ready, with what it needs to go on.

use std::sync::Arc;

use outlast_core::limits::{CLAIM_RUNS_MAX, INBOX_READ_MAX};
use outlast_core::refusal::session_gone;
use outlast_core::{
    ClaimRequest, Claimed, Message, RunId, SessionId, Status, Timestamp, TurnRecord, Unread, Work,
};
use rusqlite::{Connection, Error, OptionalExtension, params};

use crate::error::Refusal;
use crate::holdings::Holding;
use crate::message::message;
use crate::ready::{Found, Ready, look, next_overdue};
use crate::row::{number, stored, turn, word};
use crate::sql;
use crate::tx::{Standing, Tx};

/// Histories up to this many events are read in the claim itself; longer ones afterwards, so that the
/// writer is not kept from committing.
const HISTORY_IN_CLAIM_EVENTS_MAX: u64 = 64;

/// A claim on its way to the writer.
pub(crate) struct Claim {
    pub(crate) session: SessionId,
    pub(crate) request: ClaimRequest,
}

/// What a claim brings, and whose histories are still to be read.
pub(crate) struct Brought {
    pub(crate) claimed: Vec<Claimed>,
    pub(crate) unread: Vec<Unread>,
    pub(crate) next_due: Option<Timestamp>,
    pub(crate) long: Vec<usize>,
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
        Ok(Some(Brought { claimed: Vec::new(), unread, next_due, long: Vec::new() }))
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
    let mut brought =
        Brought { claimed: Vec::with_capacity(ready.len()), unread, next_due, long: Vec::new() };
    for run in ready {
        let history = if (claim.request.known)(run.run, run.turn) {
            None
        } else if run.next_seq <= HISTORY_IN_CLAIM_EVENTS_MAX {
            Some(history(tx.connection, run.run, 0, i64::MAX)?)
        } else {
            brought.long.push(brought.claimed.len());
            None
        };
        brought.claimed.push(give(tx, claim, run, history)?);
    }
    let gave_overdue = brought.claimed.iter().any(|claimed| claimed.is_overdue);
    brought.next_due = claim.next_due(tx, next_due, gave_overdue)?;
    Ok(brought)
}

fn give(
    tx: &mut Tx<'_>,
    claim: &Claim,
    run: Ready,
    history: Option<Vec<TurnRecord>>,
) -> Result<Claimed, Error> {
    let params = params![run.run.to_string(), claim.session.to_string(), tx.now.as_micros()];
    tx.execute(sql::RUN_CLAIM, params)?;
    tx.count_move(run.status, Status::Running);
    let (session, next_seq, consumed) = (claim.session, run.next_seq, run.consumed);
    tx.hold(run.run, Holding { session, turn: run.turn, next_seq, consumed });
    let inbox =
        if run.sent > run.consumed { inbox(tx.connection, run.run, run.consumed)? } else { Vec::new() };
    Ok(Claimed {
        run: run.run,
        workflow: name(&claim.request, run.workflow),
        version: run.version,
        turn: run.turn,
        seq: run.next_seq,
        turn_at: run.turn_at,
        consumed: run.consumed,
        inbox,
        crashes: run.crashes,
        is_fresh: run.next_seq <= 1,
        deadline: run.deadline,
        is_overdue: run.is_overdue,
        history,
    })
}

/// The workflow's name, shared with the request where it has it.
fn name(request: &ClaimRequest, workflow: String) -> Arc<str> {
    let known = request.code.iter().find(|code| *code.workflow == *workflow);
    known.map_or_else(|| workflow.into(), |code| code.workflow.clone())
}

/// The unread messages of the runs that the session holds.
fn unread(connection: &Connection, session: SessionId) -> Result<Vec<Unread>, Error> {
    let mut statement = connection.prepare_cached(sql::UNREAD)?;
    let runs = statement.query_map([session.to_string()], |row| Ok((word(row, 0)?, number(row, 1)?)))?;
    runs.map(|found| {
        let (run, consumed) = found?;
        Ok(Unread { run, messages: inbox(connection, run, consumed)? })
    })
    .collect()
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

/// How many messages a run has consumed; `None` when there is no such run.
pub(crate) fn consumed(connection: &Connection, run: RunId) -> Result<Option<u64>, Error> {
    let mut statement = connection.prepare_cached(sql::RUN_EXISTS)?;
    statement.query_row([run.to_string()], |row| number(row, 0)).optional()
}
